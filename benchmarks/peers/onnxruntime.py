"""ONNX Runtime on its default CPU provider."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.peers import Arrays, Run


def load(path: Path, threads: int) -> Run:
    """A session with every graph optimisation and `threads` threads inside an operator."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(feeds: Arrays) -> Arrays:
        return dict(zip(names, map(np.asarray, session.run(names, dict(feeds))), strict=True))

    return run
