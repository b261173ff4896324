"""Models without their large weights, which are regenerated from a seed: small portable files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.gpu.cases import Array

KEPT = 1 << 14
"""Elements of the largest tensor that is kept."""

DISTINCT = 256
"""Minimum distinct numbers among a tensor's first ones to be taken for weights, not for a mask."""

_FLOATS = ("float32", "float16", "bfloat16")
_HELD = "seeded"


def seeded(path: Path) -> onnx.ModelProto:
    """The model in ``path`` with large floats replaced by their mean and deviation."""
    model = onnx.load(str(path))
    told: dict[str, list[float]] = {}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        wide = array.astype(np.float32) if array.dtype.name in _FLOATS else array[:0]
        if array.size > KEPT and len(np.unique(wide.reshape(-1)[:KEPT])) > DISTINCT:
            told[tensor.name] = [float(wide.mean()), float(wide.std())]
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
            tensor.ClearField("int32_data")
    entry = model.metadata_props.add()
    entry.key, entry.value = _HELD, json.dumps(told)
    return model


def narrowed(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """A model from :func:`seeded`, with f32 converted to ``kind``."""
    wide, narrow = onnx.TensorProto.FLOAT, onnx.helper.tensor_dtype_to_np_dtype(kind)
    most = float(ml_dtypes.finfo(narrow).max)  # masked scores stay finite: 0 times them is 0

    def tensor(one: onnx.TensorProto) -> None:
        if one.data_type == wide and (one.raw_data or one.float_data):
            values = numpy_helper.to_array(one).clip(-most, most)
            one.raw_data = values.astype(narrow).tobytes()
            one.ClearField("float_data")
        one.data_type = kind if one.data_type == wide else one.data_type

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    del graph.value_info[:]
    for one in graph.initializer:
        tensor(one)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == wide:
            value.type.tensor_type.elem_type = kind
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                tensor(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == wide:
                attribute.i = kind
    return changed


def held(model: onnx.ModelProto) -> Mapping[str, tuple[float, float]]:
    """Mean and deviation of the weights that :func:`seeded` omitted, by name."""
    (entry,) = (p for p in model.metadata_props if p.key == _HELD)
    return json.loads(entry.value)


def drawn(name: str, shape: tuple[int, ...], mean: float, deviation: float) -> Array:
    """Random numbers determined by the name, in f32."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return (rng.standard_normal(shape, np.float32) * deviation + mean).astype(np.float32)


def grown(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model from :func:`seeded`, with weights of the same mean and deviation."""
    told = held(model)
    for tensor in model.graph.initializer:
        if tensor.name in told:
            values = drawn(tensor.name, tuple(tensor.dims), *told[tensor.name])
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            tensor.raw_data = values.astype(kind).tobytes()
    return model
