"""OpenVINO: restricted to f32, and by default, which is bf16 on CPUs that support it."""

from __future__ import annotations

from pathlib import Path

import openvino

from benchmarks.peers import Arrays, Run


def load_f32(path: Path, threads: int) -> Run:
    """Latency mode in f32."""
    return _load(path, threads, {"INFERENCE_PRECISION_HINT": "f32"})


def load_default(path: Path, threads: int) -> Run:
    """Latency mode at the precision OpenVINO picks."""
    return _load(path, threads, {})


def _load(path: Path, threads: int, precision: dict[str, str]) -> Run:
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        **precision,
    }
    compiled = openvino.Core().compile_model(str(path), "CPU", options)
    request = compiled.create_infer_request()
    outputs = [(port.get_any_name(), port) for port in compiled.outputs]

    def run(feeds: Arrays) -> Arrays:
        request.infer(dict(feeds), share_inputs=True)
        return {name: request.get_tensor(port).data for name, port in outputs}

    return run
