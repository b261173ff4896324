"""Reference results from the engine of a model's own format, if installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from modelcc.frontends.choice import ONNX, frontend_of
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array

_LITERT = "ai_edge_litert"


def reference_outputs(path: Path, feeds: Mapping[str, Array]) -> tuple[str, Sequence[Array]] | None:
    """Name of the engine, and its outputs in the model's order, for inputs in that order."""
    if path.suffix.lower() == ".tflite" and find_spec(_LITERT) is not None:
        return "LiteRT's reference kernels", _litert(path, [*feeds.values()])
    if frontend_of(path) is ONNX and find_spec("onnxruntime") is not None:
        return "onnxruntime", _onnxruntime(path, feeds)
    return None


def _onnxruntime(path: Path, feeds: Mapping[str, Array]) -> list[Array]:
    make: Any = import_module("modelcc.bench.onnxruntime_peer").OnnxruntimeModel
    try:
        peer = make(path, 1)
    except ModelError:  # it lacks exact integer kernels
        peer = make(path, 1, exact=False)
    results: Mapping[str, Array] = peer.run(feeds)
    return [*results.values()]


def _litert(path: Path, feeds: Sequence[Array]) -> list[Array]:
    module: Any = import_module(f"{_LITERT}.interpreter")
    kernels = module.OpResolverType.BUILTIN_REF
    engine = module.Interpreter(str(path), experimental_op_resolver_type=kernels)
    for detail, feed in zip(engine.get_input_details(), feeds, strict=True):
        engine.resize_tensor_input(detail["index"], feed.shape)
    engine.allocate_tensors()
    for detail, feed in zip(engine.get_input_details(), feeds, strict=True):
        engine.set_tensor(detail["index"], feed)
    engine.invoke()
    return [np.asarray(engine.get_tensor(d["index"])) for d in engine.get_output_details()]
