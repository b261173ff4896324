"""The work of a model: multiply-adds and constant bytes, counted in its ONNX file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime

COUNTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU"})
PROVIDER = "CPUExecutionProvider"

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Workload:
    """Multiply-adds of one run and bytes of the constants that it reads as a whole."""

    macs: int
    constant_bytes: int


def workload(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Workload:
    """Counts Conv, ConvTranspose, Gemm, MatMul, LSTM and GRU of one run on `feeds`.

    Changes `model`: its input shapes become those of `feeds`.
    """
    for value in model.graph.input:
        if value.name in feeds:
            dims = value.type.tensor_type.shape.dim
            for dim, size in zip(dims, feeds[value.name].shape, strict=True):
                dim.dim_value = size
    del model.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = _shapes(inferred)
    counted = [node for node in inferred.node if node.op_type in COUNTED]
    needed = dict.fromkeys(name for node in counted for name in (*node.input[:2], node.output[0]))
    unknown = [name for name in needed if name not in shapes]
    if unknown:
        shapes |= _observed(model, feeds, unknown)
    macs = sum(_macs(node, shapes) for node in counted)
    return Workload(macs, _read_bytes(model.graph))


def _read_bytes(graph: onnx.GraphProto) -> int:
    """Bytes of all constants except tables, of which `Gather` reads some rows."""
    read = {
        name
        for node in graph.node
        for position, name in enumerate(node.input)
        if not (node.op_type == "Gather" and position == 0)
    }
    return sum(_bytes(tensor) for tensor in graph.initializer if tensor.name in read)


def _observed(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Shapes that inference does not find, observed by running the model."""
    present = {output.name for output in model.graph.output}
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in present
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[PROVIDER])
    values = session.run(list(names), dict(feeds))
    return {name: np.asarray(value).shape for name, value in zip(names, values, strict=True)}


def _bytes(tensor: onnx.TensorProto) -> int:
    item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return math.prod(tensor.dims) * item


def _shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            shapes[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
    return shapes


def _macs(node: onnx.NodeProto, shapes: Shapes) -> int:
    match node.op_type:
        case "Conv":
            weight = shapes[node.input[1]]
            return math.prod(shapes[node.output[0]]) * math.prod(weight[1:])
        case "ConvTranspose":
            weight = shapes[node.input[1]]
            return math.prod(shapes[node.input[0]]) * math.prod(weight[1:])
        case "Gemm":
            transposed = any(a.name == "transA" and a.i for a in node.attribute)
            depth = shapes[node.input[0]][0 if transposed else 1]
            return math.prod(shapes[node.output[0]]) * depth
        case "MatMul":
            return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
        case _:  # LSTM and GRU: the recurrent weights are (directions, gates * hidden, hidden)
            steps, batch, features = shapes[node.input[0]]
            directions, rows, _ = shapes[node.input[1]]
            gates = 4 if node.op_type == "LSTM" else 3
            return steps * batch * directions * rows * (features + rows // gates)
