"""Copies that take a short run of each row: traversed along a few rows at a time.

In the order of the results, a matrix that is split into blocks of columns would be read down the
first block, then down the next: every run from another page, which hardware does not prefetch::

    for block: for row: run                 for 8 rows: for block: for each row: run

In the other order, rows are as many streams as a core prefetches, and a block gets runs of 8 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.index import coefficient
from modelcc.ir.scalar_tree import cost, reads
from modelcc.schedule.nest import LoopVar, Nest

ROWS = 8
"""Number of rows traversed at a time."""

FAR_BYTES = 512
"""Rows less far apart share pages."""

SHORT_BYTES = 128
"""Longer runs are several lines, which hardware prefetches."""

WORK = 8
"""Cost of an element above which computing a run hides the latency of the next."""


@dataclass(frozen=True)
class RunLoops:
    """``rows`` iterates over the rows, ``along`` over the consecutive runs of a row."""

    rows: LoopVar
    along: LoopVar


def find_runs(nests: Sequence[Nest], lane: LoopVar, blocks: LoopVar) -> RunLoops | None:
    """The loops of elementwise nests that write vectors along ``lane``, as many as ``blocks`` has,
    for each row in turn, then advance along the rows.

    If a run is one vector, ``blocks`` may be the loop along the rows.
    """
    final, size = nests[-1], nests[-1].body.dtype.bytes
    if len(nests) > 1 or final.own or cost(final.body) > WORK:
        return None
    joined = coefficient(final.store, blocks.name) == lane.extent
    inner = (lane.name, blocks.name) if joined else (lane.name,)
    outer = [v for v in final.parallel if v.name not in inner]
    if len(outer) < 2 or not isinstance(lane.extent, int):
        return None
    along, rows = outer[-2:]
    run = lane.extent * blocks.extent if joined else lane.extent
    if not isinstance(run, int) or run * size > SHORT_BYTES:
        return None
    offsets = [r.indices[0] for n in nests for r in reads(n.body) if len(r.indices) == 1]
    steady = coefficient(final.store, rows.name) == run and final.parallel[-1] == lane
    for offset in offsets if steady else ():
        row = coefficient(offset, rows.name)
        far = not isinstance(row, int) or row * size >= FAR_BYTES
        if far and coefficient(offset, along.name) == run and coefficient(offset, lane.name) == 1:
            return RunLoops(rows, along)
    return None
