"""Loops that never run go: with ``n <= 18``, what is done for every 64 elements of n."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import Bounds, Range, bounds_of
from modelcc.ir.loop import For, Stmt
from modelcc.ir.loop_traversal import map_blocks


def without_idle_loops(body: Sequence[Stmt], bounds: Bounds) -> tuple[Stmt, ...]:
    """``body`` without loops whose ends are known to be no further than their starts."""
    kept: list[Stmt] = []
    for s in body:
        inner = bounds
        if isinstance(s, For):
            most = bounds_of(s.stop - s.start, bounds).hi
            if most is not None and most <= 0:
                continue
            inner = {**bounds, s.variable: Range(s.start, s.stop - 1)}
        kept.append(map_blocks(s, lambda b, inner=inner: without_idle_loops(b, inner)))
    return tuple(kept)
