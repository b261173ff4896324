"""Pointwise functions of bytes become tables of 256 bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import I8, U8, Array, DType
from modelcc.ops.arithmetic import Cast, Elementwise
from modelcc.ops.gather import Gather
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.graph_writer import GraphWriter
from modelcc.passes.graph.table_lookup import write_lookup

_LEAST = 5
"""Fewer nodes are a table already, or cost no more than one."""

_ELEMENTS = 64
"""Elements of a tensor from which a table pays off."""

_MOST = 64
"""Maximum number of nodes that one table replaces."""

_BYTES = (I8, U8)


@dataclass(frozen=True)
class TabulateBytes:
    """Chains of functions, requantizations and products of one byte tensor, including floats in
    between.  The table's contents are not shown here.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<64xi8>):
          %a = "mcc.Cast"(%x) {to = f32}
          %b = "mcc.Tanh"(%a)
          %c = "mcc.Mul"(%a, %b)
          %d = "mcc.Sqrt"(%c)
          %y = "mcc.Cast"(%d) {to = i8}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<64xi8>):
          %t = "mcc.constant"() {value = dense<0> : tensor<256xi8>}
          %l = "mcc.constant"() {value = dense<128> : tensor<i32>}
          %w = "mcc.Cast"(%x) {to = i32}
          %p = "mcc.Add"(%w, %l)
          %y = "mcc.Gather"(%t, %p) {axis = 0}
          "mcc.return"(%y)
        })
    """

    def __call__(self, graph: Graph) -> Graph:
        makers = {name: n for n, node in enumerate(graph.nodes) for name in node.outputs}
        found: dict[int, tuple[str, tuple[int, ...]]] = {}
        inside: set[int] = set()
        for number in reversed(range(len(graph.nodes))):
            if number in inside or not _makes_bytes(graph, graph.nodes[number]):
                continue
            chain = _chain(graph, makers, number)
            if chain is not None:
                found[number] = chain
                inside.update(chain[1])
        return _tabulated(graph, found) if found else graph


def _makes_bytes(graph: Graph, node: Node) -> bool:
    if len(node.outputs) != 1 or graph.types[node.outputs[0]].dtype not in _BYTES:
        return False
    elements = graph.types[node.outputs[0]].elements
    return not isinstance(elements, int) or elements >= _ELEMENTS


def _chain(
    graph: Graph, makers: Mapping[str, int], last: int
) -> tuple[str, tuple[int, ...]] | None:
    """The byte tensor from which node ``last`` is computed, element by element, and the nodes that
    do so, in order; the farthest such tensor."""
    shape = graph.types[graph.nodes[last].outputs[0]].shape
    open_: set[str] = {graph.nodes[last].outputs[0]}
    taken: list[int] = []
    best: tuple[str, tuple[int, ...]] | None = None
    while len(taken) < _MOST:
        number = max(makers.get(name, -1) for name in open_)
        if number < 0:
            break
        node = graph.nodes[number]
        operands = _operands(graph, node)
        if operands is None or any(graph.types[n].shape != shape for n in operands):
            break
        open_ = (open_ - {*node.outputs}) | {*operands}
        taken.append(number)
        if len(open_) == 1:
            (source,) = open_
            if graph.types[source].dtype in _BYTES:
                best = source, tuple(sorted(taken))
    return None if best is None or len(best[1]) < _LEAST else best


def _operands(graph: Graph, node: Node) -> list[str] | None:
    """Operands of a node that computes each element of its result from one element; None for other
    nodes."""
    match node.op:
        case Gather(axis=0) if node.inputs[0] in graph.constants:
            return [node.inputs[1]] if graph.types[node.inputs[0]].rank == 1 else None
        case Elementwise() | Cast() | QuantizeLinear() | DequantizeLinear():
            varying = [name for name in node.inputs if name not in graph.constants]
            constants = (graph.types[n].shape for n in node.inputs if n in graph.constants)
            single = all(extent == 1 for shape in constants for extent in shape)
            return varying if single and len(node.outputs) == 1 else None
        case _:
            return None


def _tabulated(graph: Graph, found: Mapping[int, tuple[str, tuple[int, ...]]]) -> Graph:
    writer = GraphWriter(graph)
    for number, node in enumerate(graph.nodes):
        if number not in found:
            writer.append(node)
            continue
        x, chain = found[number]
        parts = [graph.nodes[n] for n in chain]
        source = tuple(dict.fromkeys(name for part in parts for name in part.source))
        table = writer.constant(_values(graph, x, parts), "table")
        least = int(np.iinfo(graph.types[x].dtype.numpy).min)
        write_lookup(writer, table, least, x, node, source)
    return DeadCode()(writer.graph())


def _values(graph: Graph, source: str, nodes: Sequence[Node]) -> Array:
    """Results of ``nodes`` for each byte, in ascending order."""
    known: dict[str, Array] = {source: _all_bytes(graph.types[source].dtype)}

    def operand(name: str, table: bool) -> Array:
        if name in known:
            return known[name]
        data = graph.constants[name].data
        return data if table else data.reshape(())

    with np.errstate(all="ignore"):
        for node in nodes:
            table = isinstance(node.op, Gather)
            given = [operand(name, table and n == 0) for n, name in enumerate(node.inputs)]
            known[node.outputs[0]] = np.asarray(node.op.reference(*given))
    return known[nodes[-1].outputs[0]]


def _all_bytes(dtype: DType) -> Array:
    info = np.iinfo(dtype.numpy)
    return np.arange(int(info.min), int(info.max) + 1).astype(dtype.numpy)
