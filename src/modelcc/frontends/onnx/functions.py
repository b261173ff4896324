"""Function bodies: attribute references and operand types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import AttributeProto, NodeProto, TypeProto

from modelcc.frontends.onnx.structure import subgraphs
from modelcc.frontends.onnx.tensors import DTYPES
from modelcc.ir.types import TensorType


def bound(node: NodeProto, arguments: Mapping[str, AttributeProto]) -> NodeProto:
    """``node`` with references to the function's attributes replaced by their values.

    A reference to an attribute that the call does not set is omitted: the default applies.
    """
    if not _has_references(node):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    _bind(copy, arguments)
    return copy


def _has_references(node: NodeProto) -> bool:
    if any(a.ref_attr_name for a in node.attribute):
        return True
    return any(_has_references(n) for g in subgraphs(node) for n in g.node)


def _bind(node: NodeProto, arguments: Mapping[str, AttributeProto]) -> None:
    kept: list[AttributeProto] = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            kept.append(attribute)
        elif attribute.ref_attr_name in arguments:
            given = AttributeProto()
            given.CopyFrom(arguments[attribute.ref_attr_name])
            given.name = attribute.name
            kept.append(given)
    kept = [_copied(a) for a in kept]
    del node.attribute[:]
    node.attribute.extend(kept)
    for graph in subgraphs(node):
        for inner in graph.node:
            _bind(inner, arguments)


def _copied(attribute: AttributeProto) -> AttributeProto:
    copy = AttributeProto()
    copy.CopyFrom(attribute)
    return copy


def specialised(types: Sequence[TensorType | None]) -> list[TypeProto]:
    """ONNX types of operands; a symbolic extent is left open."""
    codes = {dtype: code for code, dtype in DTYPES.items()}
    result: list[TypeProto] = []
    for type in types:
        proto = TypeProto()
        if type is not None:
            proto.tensor_type.elem_type = codes[type.dtype]
            for extent in type.shape:
                dim = proto.tensor_type.shape.dim.add()
                if isinstance(extent, int):
                    dim.dim_value = extent
        result.append(proto)
    return result
