"""Loops that go through the same weights again and again: there and back.

A cache that a kernel's weights do not quite fit into has lost the first of them when the last have
been read: a loop that starts over finds none (cyclic access under least-recently-used
replacement).  If every other iteration goes through the tiles from the last to the first, it finds
as many as the cache holds::

    for p in 0 .. 8 { … }          for turn in 0 .. 8 {
                                     let p = turn if t is even else 7 - turn
                                     …
                                   }
"""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.index import Sym, mod
from modelcc.ir.loop import BindIndex, For, Function, IndexOf, Stmt
from modelcc.ir.types import I64


def there_and_back(function: Function, counter: str) -> Function:
    """``function`` with the tiles of its outermost loop reversed where ``counter`` is odd.

    Unchanged if the counter is none of its sizes, or it does not consist of one loop over tiles.
    """
    loops = [s for s in function.body if isinstance(s, For)]
    if counter not in function.sizes or len(loops) != 1 or not _reversible(loops[0]):
        return function
    body: tuple[Stmt, ...] = tuple(
        _turned(s, counter) if isinstance(s, For) else s for s in function.body
    )
    return replace(function, body=body)


def _reversible(loop: For) -> bool:
    """Whether the order of iterations is free, as it is between tiles of a result."""
    counted = isinstance(loop.stop, int) and loop.stop > 1
    return loop.start == 0 and loop.step == 1 and counted and loop.kind == "parallel"


def _turned(loop: For, counter: str) -> For:
    turn = f"{loop.variable}.turn"
    odd = mod(Sym(counter), 2)
    place = Sym(turn) + odd * (loop.stop - 1 - 2 * Sym(turn))
    bind = BindIndex(loop.variable, IndexOf(place, I64))
    return replace(loop, variable=turn, body=(bind, *loop.body))
