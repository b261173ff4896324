"""ONNX Runtime on the same device, by its CUDA provider or TensorRT."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.gpu.clock import Measure, MissingPeerError, call_seconds
from benchmarks.gpu.entries import Entry
from benchmarks.gpu.weights import grown

PROVIDERS = {"onnxruntime": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}


def model(engine: str, entry: Entry, device: str) -> tuple[float, Measure]:
    """The error, and seconds of a call with inputs and results on the device."""
    if find_spec("onnxruntime") is None:
        raise MissingPeerError("ONNX Runtime is not installed")
    runtime: Any = import_module("onnxruntime")
    wanted = PROVIDERS[engine] if device == "cuda" else "CPUExecutionProvider"
    if wanted not in runtime.get_available_providers() or (device, engine) == ("cpu", "tensorrt"):
        raise MissingPeerError(f"ONNX Runtime {runtime.__version__} has no {PROVIDERS[engine]}")
    settings = {"use_tf32": "0"} if wanted == PROVIDERS["onnxruntime"] else {}
    whole = grown(entry.read()).SerializeToString()
    session = runtime.InferenceSession(whole, providers=[(wanted, settings)])
    if session.get_providers()[0] != wanted:
        raise MissingPeerError(f"ONNX Runtime's {wanted} does not load")
    names = [output.name for output in session.get_outputs()]
    binding = session.io_binding()
    for name, value in entry.feeds().items():
        binding.bind_ortvalue_input(name, runtime.OrtValue.ortvalue_from_numpy(value, device, 0))
    for name in names:
        binding.bind_output(name, device)
    session.run_with_iobinding(binding)
    found = map(np.asarray, binding.copy_outputs_to_cpu())
    error = entry.error(dict(zip(names, found, strict=True)))

    def step() -> None:
        session.run_with_iobinding(binding)

    return error, lambda: call_seconds(step)
