"""Products of a model that are computed in lower precision than specified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import DTYPES, F32, DType
from modelcc.ops.control import Control


def lowered_text(graphs: Sequence[Graph], precision: str) -> str:
    """The number of products of 16-bit floats, and sources of others; empty if none is wanted."""
    dtype = DTYPES.get(precision, F32)
    if dtype == F32:
        return ""
    products = [found for graph in graphs for found in products_of(graph)]
    others = [node for found, node in products if found != dtype]
    places = dict.fromkeys(", ".join(node.source) or node.outputs[0] for node in others)
    rest = f"; as they were: {', '.join(places)}" if others else ""
    count = len(products) - len(others)
    return f"{count} of {len(products)} products multiply {dtype} and add in f32{rest}"


def products_of(graph: Graph) -> Iterator[tuple[DType, Node]]:
    """Products of floats and their operand types, including those in bodies."""
    for node in graph.nodes:
        if isinstance(node.op, Control):
            for body in node.op.graphs().values():
                yield from products_of(body)
        elif node.op.narrowing.kind == "products":
            dtype = graph.types[node.inputs[0]].dtype
            if dtype.is_float:
                yield dtype, node
