"""The elements of fragments that a thread of a warpgroup holds: indices, and loops over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import Buffer, Expr, For, Load, Stmt, Store
from modelcc.schedule.expression import FreshNames
from modelcc.targets.isa.nvidia_wgmma import own_element
from modelcc.targets.isa.tile_products import ROWS

SIDE = 8
"""Columns of which a thread holds two, and the distance of its two rows."""

BOTH = (0, 1)


def each_side(names: FreshNames, columns: int) -> tuple[Sym, Callable[[Sequence[Stmt]], For]]:
    """A number of 8 columns, and an unrolled loop over all of them."""
    number = Sym(names.fresh("q"))

    def every(body: Sequence[Stmt]) -> For:
        return For(number.name, 0, columns // SIDE, tuple(body), kind="unrolled")

    return number, every


def own(lane: Index, side: Index, row: int, column: int = 0) -> Index:
    """The index of the thread's element in a fragment."""
    return own_element(lane) + ROWS * (SIDE * side + column) + SIDE * row


def pair(fragment: Buffer, lane: Index, side: Index, row: int) -> Expr:
    """Two neighbours of a row."""
    return Load(fragment.name, own(lane, side, row), fragment.dtype, 2, ROWS)


def put(fragment: Buffer, lane: Index, side: Index, row: int, value: Expr) -> Stmt:
    """Stores two neighbours of a row."""
    return Store(fragment.name, own(lane, side, row), value, ROWS)
