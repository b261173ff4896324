"""External data files of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from onnx import AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto

from modelcc.frontends.onnx.loader import LoadedModel


def external_files(model: LoadedModel) -> tuple[Path, ...]:
    """Existing files that tensors of ``model`` are read from, in order."""
    folder = model.folder
    if folder is None:
        return ()
    nodes = [node for function in model.proto.functions for node in function.node]
    tensors = (*_of_graph(model.proto.graph), *_of_nodes(nodes))
    names = {_location(t) for t in tensors if t.data_location == TensorProto.EXTERNAL}
    paths = (folder / name for name in names if name and "\0" not in name)
    return tuple(sorted(path for path in paths if path.is_file()))


def _location(tensor: TensorProto) -> str:
    return next((e.value for e in tensor.external_data if e.key == "location"), "")


def _of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    yield from _of_sparse(graph.sparse_initializer)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from _of_attribute(attribute)


def _of_attribute(attribute: AttributeProto) -> Iterator[TensorProto]:
    match attribute.type:
        case AttributeProto.TENSOR:
            yield attribute.t
        case AttributeProto.TENSORS:
            yield from attribute.tensors
        case AttributeProto.SPARSE_TENSOR:
            yield from _of_sparse([attribute.sparse_tensor])
        case AttributeProto.SPARSE_TENSORS:
            yield from _of_sparse(attribute.sparse_tensors)
        case AttributeProto.GRAPH:
            yield from _of_graph(attribute.g)
        case AttributeProto.GRAPHS:
            for graph in attribute.graphs:
                yield from _of_graph(graph)
        case _:
            pass


def _of_sparse(tensors: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    for tensor in tensors:
        yield tensor.values
        yield tensor.indices
