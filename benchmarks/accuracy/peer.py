"""ONNX Runtime in one thread, on models given in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from benchmarks.accuracy.subjects import Arrays


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session in one thread.

    With several, it quantises the state of DynamicQuantizeLSTM by the rows of each thread, so that
    results depend on their number.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    # Else sums of u8 times i8 saturate on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def observed(model: onnx.ModelProto, feeds: Arrays, names: Sequence[str]) -> Arrays:
    """ONNX Runtime's values of these names."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    running = session(watched)
    found = [output.name for output in running.get_outputs()]
    return dict(zip(found, map(np.asarray, running.run(found, feeds)), strict=True))


def nudged(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """``model`` with every f32 constant moved to an adjacent number, randomly up or down."""
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    generator = np.random.default_rng(seed)
    for tensor in moved.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            value = numpy_helper.to_array(tensor)
            towards = np.where(generator.integers(0, 2, value.shape), np.inf, -np.inf)
            near = np.nextafter(value, towards.astype(np.float32))
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(near), tensor.name))
    return moved
