"""Metadata of an ONNX file, without importing it or reading weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto

from modelcc.frontends.onnx.loader import load

_LARGEST = 10
_BITS: Mapping[str, float] = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}


def onnx_facts(path: Path) -> dict[str, Any]:
    """Interface, operator sets, operators (including those in bodies and functions) and weights."""
    loaded = load(path)
    proto = loaded.proto
    graph = proto.graph
    bodies = [graph, *_bodies(graph.node)]
    functions = [node for function in proto.functions for node in function.node]
    nodes = [node for body in bodies for node in body.node] + functions
    weights = [tensor for body in bodies for tensor in body.initializer]
    named = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in named]
    return {
        "file": str(path),
        "kind": "onnx",
        "bytes": path.stat().st_size,
        "name": graph.name,
        "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
        "ir_version": proto.ir_version,
        "opsets": {o.domain or "ai.onnx": o.version for o in proto.opset_import},
        "metadata": {entry.key: entry.value for entry in proto.metadata_props},
        "inputs": {value.name: _type(value) for value in inputs},
        "outputs": {value.name: _type(value) for value in graph.output},
        "dims": sorted({name for value in inputs for name in _names(value)}),
        "nodes": len(nodes),
        "ops": dict(Counter(map(_operator, nodes)).most_common()),
        "subgraphs": len(bodies) - 1,
        "functions": len(proto.functions),
        "weights": _weights(weights),
        "external": _external(weights),
    }


def _bodies(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    """The graphs nested in nodes, recursively."""
    pending = list(nodes)
    while pending:
        for attribute in pending.pop().attribute:
            one = attribute.type == AttributeProto.GRAPH
            for body in [attribute.g] if one else attribute.graphs:
                yield body
                pending += body.node


def _operator(node: NodeProto) -> str:
    domain = node.domain if node.domain != "ai.onnx" else ""
    return f"{domain}.{node.op_type}" if domain else node.op_type


def _type(value: ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return kind.removesuffix("_type") if kind else "unknown"
    tensor = value.type.tensor_type
    name = TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return f"{name}, of any shape"
    extents = (d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?")
               for d in tensor.shape.dim)  # fmt: skip
    return f"{name}[{', '.join(extents)}]"


def _names(value: ValueInfoProto) -> list[str]:
    return [d.dim_param for d in value.type.tensor_type.shape.dim if d.dim_param]


def _weights(tensors: Iterable[TensorProto]) -> dict[str, Any]:
    sized = [(_bytes(t), t) for t in tensors]
    by_type: Counter[str] = Counter()
    for size, tensor in sized:
        by_type[_element(tensor)] += size
    ranked = sorted(sized, key=lambda pair: -pair[0])
    return {
        "count": len(sized),
        "bytes": sum(size for size, _ in sized),
        "by_type": dict(by_type.most_common()),
        "largest": [
            {"name": t.name, "type": f"{_element(t)}{list(t.dims)}", "bytes": size}
            for size, t in ranked[:_LARGEST]
        ],
    }


def _element(tensor: TensorProto) -> str:
    known = tensor.data_type in TensorProto.DataType.values()
    return TensorProto.DataType.Name(tensor.data_type).lower() if known else "unknown"


def _bytes(tensor: TensorProto) -> int:
    """Size in bytes by type and shape; strings count their contents."""
    if tensor.data_type == TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    name = _element(tensor).upper()
    if name in ("UNKNOWN", "UNDEFINED"):
        return 0
    bits = _BITS.get(name) or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(-(-prod(tensor.dims) * bits // 8))


def _external(tensors: Iterable[TensorProto]) -> list[str]:
    """External files that weights are stored in."""
    entries = (
        e for t in tensors if t.data_location == TensorProto.EXTERNAL for e in t.external_data
    )
    return sorted({entry.value for entry in entries if entry.key == "location"})
