"""Constant folding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_interpreter import run_node
from modelcc.ir.index import Expr
from modelcc.ir.op import Op, is_items
from modelcc.ir.types import F32, Array, TensorType
from modelcc.ops.arithmetic import Cast
from modelcc.passes.graph.dead_code import with_nodes

MIB = 1 << 20


@dataclass(frozen=True)
class FoldConstants:
    """Nodes whose operands are all constants are evaluated by their reference.

    Results larger than ``max_bytes`` are folded only if they are not larger than their operands
    together: expanding a number to a large tensor would only make the artifact grow.  Ops in
    ``keep`` stay, and with ``narrow`` so do 8-bit floats, which machines multiply natively.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %a = "mcc.constant"() {value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>}
          %b = "mcc.constant"() {value = dense<2.0> : tensor<f32>}
          %c = "mcc.Mul"(%a, %b)
          %y = "mcc.Add"(%x, %c)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>):
          %c = "mcc.constant"() {value = dense<[2.0, 4.0, 6.0]> : tensor<3xf32>}
          %y = "mcc.Add"(%x, %c)
          "mcc.return"(%y)
        })
    """

    max_bytes: int = 16 * MIB
    keep: tuple[type[Op], ...] = ()
    narrow: bool = False
    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        constants = dict(graph.constants)
        nodes: list[Node] = []
        folded = 0
        for node in graph.nodes:
            within = self.limit is None or folded < self.limit
            if within and self._foldable(graph, node, constants):
                operands = tuple(constants[n].data if n else None for n in node.inputs)
                results = _results(node, operands)
                constants |= {n: Constant(a) for n, a in zip(node.outputs, results, strict=True)}
                folded += 1
            else:
                nodes.append(node)
        whole = replace(graph, constants=MappingProxyType(constants))
        return with_nodes(whole, tuple(nodes)) if folded else graph

    def _foldable(self, graph: Graph, node: Node, constants: dict[str, Constant]) -> bool:
        types = [graph.types[n] for n in node.outputs]
        if not node.op.pure or isinstance(node.op, self.keep):
            return False
        if self.narrow and _only_widens(graph, node):
            return False
        if not all(n in constants for n in node.inputs if n):
            return False
        if not all(t.is_static for t in types) or not _is_known(node.op.attributes().values()):
            return False
        size = sum(_bytes(t) for t in types)
        given = sum(constants[n].data.nbytes for n in node.inputs if n)
        return size <= max(self.max_bytes, given)


def _only_widens(graph: Graph, node: Node) -> bool:
    """Whether 8-bit floats become wider ones."""
    given = graph.types[node.inputs[0]].dtype if isinstance(node.op, Cast) else F32
    return given.is_float and given.bits == 8


def _bytes(type: TensorType) -> int:
    return type.bytes if isinstance(type.bytes, int) else 0


def _is_known(attributes: Iterable[object]) -> bool:
    """Whether no attribute uses a named dimension or has a sub-graph."""
    return all(
        _is_known(value) if is_items(value) else not isinstance(value, Expr | Graph)
        for value in attributes
    )


def _results(node: Node, operands: tuple[Array | None, ...]) -> tuple[Array, ...]:
    """Results of a node with constant operands; ModelError for an index that is out of range."""
    try:
        return run_node(node, operands, {})
    except IndexError as error:
        raise ModelError(str(error), node.source) from error
