"""Functions of 16-bit numbers become tables of all their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Graph
from modelcc.ir.types import I16
from modelcc.ops.fixed_point_functions import FixedPointActivation
from modelcc.passes.graph.graph_writer import GraphWriter
from modelcc.passes.graph.table_lookup import write_lookup

LEAST = -32768


@dataclass(frozen=True)
class TabulateFunctions:
    """A table of 128 KB is faster than a hundred operations, where there is memory for it.
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
        writer = GraphWriter(graph)
        tables: dict[FixedPointActivation, str] = {}
        for node in graph.nodes:
            op = node.op
            if not isinstance(op, FixedPointActivation):
                writer.append(node)
                continue
            if op not in tables:
                values = op.reference(np.arange(LEAST, -LEAST).astype(I16.numpy))
                tables[op] = writer.constant(values, "table")
            write_lookup(writer, tables[op], LEAST, node.inputs[0], node, node.source)
        return writer.graph() if tables else graph
