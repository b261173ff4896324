"""Models with weights as inputs: trainable weights must not be folded into constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from onnx import GraphProto, ModelProto, NodeProto, TensorProto
from onnx.helper import make_tensor_value_info

from modelcc.frontends.onnx.loader import LoadedModel, Model, load
from modelcc.frontends.onnx.structure import subgraphs
from modelcc.frontends.onnx.tensors import to_array
from modelcc.ir.types import Array

FLOATS = frozenset(
    (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
)

SETTINGS = frozenset(
    ("Clip", "DequantizeLinear", "Dropout", "NonMaxSuppression", "Pad", "QuantizeLinear", "Range",
     "Resize", "TfIdfVectorizer", "Upsample")
)  # fmt: skip
"""Operators whose initializers are settings, not weights."""


@dataclass(frozen=True)
class OpenModel:
    """A model with its weights as inputs, and their initial values, by name."""

    model: LoadedModel
    weights: Mapping[str, Array]


def with_open_weights(source: Model) -> OpenModel:
    """The model of a path, bytes or a ``ModelProto`` with its float initializers as inputs.

    Scalars, and settings of operators, stay constants.
    """
    loaded = load(source)
    graph = loaded.proto.graph
    settings = {name for node in _nodes(graph) if node.op_type in SETTINGS for name in node.input}
    chosen = {
        i
        for i, tensor in enumerate(graph.initializer)
        if tensor.data_type in FLOATS and tensor.dims and tensor.name not in settings
    }
    weights = {t.name: _array(loaded, i) for i, t in enumerate(graph.initializer) if i in chosen}
    others = [i for i in range(len(graph.initializer)) if i not in chosen]
    raw = {new: loaded.raw[old] for new, old in enumerate(others) if old in loaded.raw}
    proto = ModelProto()
    proto.CopyFrom(loaded.proto)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(graph.initializer[i] for i in others)
    given = {value.name for value in graph.input}
    for i in sorted(chosen):
        tensor = graph.initializer[i]
        if tensor.name not in given:
            info = make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            proto.graph.input.append(info)
    return OpenModel(replace(loaded, proto=proto, raw=raw), weights)


def _array(loaded: LoadedModel, number: int) -> Array:
    tensor = loaded.proto.graph.initializer[number]
    what = f"initializer {tensor.name!r}"
    return to_array(tensor, loaded.folder, what, loaded.raw.get(number))


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Nodes of a graph and, recursively, of its sub-graphs."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from _nodes(inner)
