"""Numbers of fragments that a thread of four warps has itself: places, and loops over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import Buffer, Expr, For, Load, Stmt, Store
from modelcc.schedule.expression import FreshNames
from modelcc.targets.isa.nvidia_wgmma import own_element
from modelcc.targets.isa.tile_products import ROWS

SIDE = 8
"""Columns of which a thread has two, and rows between the two that it has."""

BOTH = (0, 1)


def each_side(names: FreshNames, columns: int) -> tuple[Sym, Callable[[Sequence[Stmt]], For]]:
    """A number of 8 columns, and a loop over all, whose registers have numbers."""
    number = Sym(names.fresh("q"))

    def every(body: Sequence[Stmt]) -> For:
        return For(number.name, 0, columns // SIDE, tuple(body), kind="unrolled")

    return number, every


def own(lane: Index, side: Index, row: int, column: int = 0) -> Index:
    """Where a number of the thread's is in a fragment."""
    return own_element(lane) + ROWS * (SIDE * side + column) + SIDE * row


def pair(fragment: Buffer, lane: Index, side: Index, row: int) -> Expr:
    """Two neighbours of a row."""
    return Load(fragment.name, own(lane, side, row), fragment.dtype, 2, ROWS)


def put(fragment: Buffer, lane: Index, side: Index, row: int, value: Expr) -> Stmt:
    """They become ``value``."""
    return Store(fragment.name, own(lane, side, row), value, ROWS)
