"""Loops that traverse the same weights repeatedly: in alternating directions.

When a kernel's weights slightly exceed a cache, it has lost the first of them when the last have
been read: a loop that starts over misses always (cyclic access under least-recently-used
replacement).  If every other iteration traverses the tiles in reverse, it hits as many as the cache
holds::

    for p in 0 .. 8 { … }          for turn in 0 .. 8 {
                                     let p = turn if t is even else 7 - turn
                                     …
                                   }

The tiles of each thread are reversed separately: they stay with it, in its core's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.index import Bounds, Range, Sym, bounds_of, floordiv, mod
from modelcc.ir.loop import BindIndex, For, Function, IndexOf, Stmt
from modelcc.ir.loop_traversal import map_blocks
from modelcc.ir.types import I64


def there_and_back(function: Function, counter: str, threads: int) -> Function:
    """``function`` with the tiles of its outermost loop reversed where ``counter`` is odd.

    The loop is divided between ``threads``.  Unchanged if the counter is not among its sizes, or
    the body is not one loop over tiles with an equal number for each thread.
    """
    loops = [s for s in function.body if isinstance(s, For)]
    if counter not in function.sizes or len(loops) != 1:
        return function
    piece = _tiles_of_a_thread(loops[0], threads)
    if piece < 2:
        return function
    body: tuple[Stmt, ...] = tuple(
        _turned(s, counter, piece) if isinstance(s, For) else s for s in function.body
    )
    return replace(function, body=body)


def _tiles_of_a_thread(loop: For, threads: int) -> int:
    """Iterations of each thread; 0 if they differ, or their order is fixed."""
    free = loop.start == 0 and loop.step == 1 and loop.kind == "parallel"
    if not free or not isinstance(loop.stop, int) or loop.stop % threads:
        return 0
    return loop.stop // threads


def _turned(loop: For, counter: str, piece: int) -> For:
    turn = f"{loop.variable}.turn"
    odd = mod(Sym(counter), 2)
    first = floordiv(Sym(turn), piece) * piece if loop.stop != piece else 0
    place = Sym(turn) + odd * (2 * first + piece - 1 - 2 * Sym(turn))
    bind = BindIndex(loop.variable, IndexOf(place, I64))
    return replace(loop, variable=turn, body=(bind, *loop.body))


def without_idle_loops(body: Sequence[Stmt], bounds: Bounds) -> tuple[Stmt, ...]:
    """``body`` without loops that are provably empty."""
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
