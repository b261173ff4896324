"""Functions of 16-bit numbers become tables of all their values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.naming import Names
from modelcc.ir.types import I16, I32, Array, TensorType
from modelcc.ops.arithmetic import Add, Cast
from modelcc.ops.fixed_point_functions import FixedPointActivation
from modelcc.ops.gather import Gather
from modelcc.passes.graph.dead_code import with_nodes

LEAST = -32768


@dataclass(frozen=True)
class TabulateFunctions:
    """A table of 128 KB answers faster than a hundred operations, where there is memory for it.
    Its contents are not shown here.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<4xi16>):
          %y = "mcc.FixedPointActivation"(%x) {function = "tanh", integer_bits = 3}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<4xi16>):
          %t = "mcc.constant"() {value = dense<0> : tensor<65536xi16>}
          %l = "mcc.constant"() {value = dense<32768> : tensor<i32>}
          %w = "mcc.Cast"(%x) {to = i32}
          %p = "mcc.Add"(%w, %l)
          %y = "mcc.Gather"(%t, %p) {axis = 0}
          "mcc.return"(%y)
        })
    """

    def __call__(self, graph: Graph) -> Graph:
        wanted = [node for node in graph.nodes if isinstance(node.op, FixedPointActivation)]
        return _tabulated(graph, wanted) if wanted else graph


def _tabulated(graph: Graph, wanted: list[Node]) -> Graph:
    names, constants, types = Names(graph.types), dict(graph.constants), dict(graph.types)
    tables: dict[FixedPointActivation, str] = {}

    def constant(data: Array) -> str:
        name = names.fresh("c")
        constants[name] = Constant(data)
        types[name] = constants[name].type
        return name

    least = constant(np.asarray(-LEAST, np.int32))
    steps: dict[int, tuple[Node, ...]] = {}
    for node in wanted:
        op = node.op
        assert isinstance(op, FixedPointActivation)
        if op not in tables:
            tables[op] = constant(op.reference(np.arange(LEAST, -LEAST).astype(I16.numpy)))
        wide, place = names.fresh("wide"), names.fresh("place")
        types |= dict.fromkeys((wide, place), TensorType(types[node.inputs[0]].shape, I32))
        steps[id(node)] = (
            Node(Cast(I32), node.inputs, (wide,), node.source),
            Node(Add(), (wide, least), (place,), node.source),
            Node(Gather(0), (tables[op], place), node.outputs, node.source),
        )
    nodes = [one for node in graph.nodes for one in steps.get(id(node), (node,))]
    return with_nodes(replace(graph, types=types, constants=constants), tuple(nodes))
