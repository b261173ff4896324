"""Table lookups in place of functions of integers."""

from __future__ import annotations

import numpy as np

from modelcc.ir.graph import Node
from modelcc.ir.types import I32
from modelcc.ops.arithmetic import Add, Cast
from modelcc.ops.gather import Gather
from modelcc.passes.graph.graph_writer import GraphWriter


def write_lookup(
    writer: GraphWriter, table: str, least: int, x: str, node: Node, source: tuple[str, ...]
) -> None:
    """Replaces ``node``, of ``source``: its results are the elements of ``table`` at the integers
    ``x``, the first one for ``least``."""
    place = writer.emit(Cast(I32), x, source=source)
    if least:
        first = writer.constant(np.asarray(-least, np.int32), "first")
        place = writer.emit(Add(), place, first, source=source)
    writer.append(Node(Gather(0), (table, place), node.outputs, source))
