"""The layout of a group's shared memory.

Buffers lie one after the other.  Those that are used only after a barrier, after which no tiles are
used any more, alias the tiles::

    barrier                           # products of all tiles are done
    run @store_panel(%slab[...], %sums[...])    # aliases the tiles

Without tiles, so do buffers that are ``over`` others, which they alias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.loop import Alloc, Barrier, Buffer, For, Function, RoutineCall, Stmt
from modelcc.ir.loop_traversal import names_used, statements
from modelcc.ir.tiles import WaitRoutines

SHARED = ("shared", "tile", "arrivals")
"""Memory spaces that a group shares."""


@dataclass(frozen=True)
class SharedLayout:
    """The first byte of each buffer, and the end of its last."""

    places: Mapping[str, tuple[int, int]]
    overlaid: bool

    @property
    def size(self) -> int:
        """Bytes of all."""
        return max((end for _, end in self.places.values()), default=0)


def shared_layout(function: Function) -> SharedLayout:
    """The layout of the shared memory of ``function``."""
    allocs = (s.buffer for s in statements(function.body) if isinstance(s, Alloc))
    buffers = [buffer for buffer in allocs if buffer.space in SHARED]
    tiles = [buffer for buffer in buffers if buffer.space == "tile"]
    if not tiles and any(buffer.over for buffer in buffers):
        tiles = [buffer for buffer in buffers if not buffer.over]
    later = _later(function, buffers, tiles) if tiles else frozenset[str]()
    if not later:
        return SharedLayout(_placed(buffers, 0), False)
    both = _placed(tiles, 0) | _placed([b for b in buffers if b.name in later], 0)
    others = [b for b in buffers if b.name not in both]
    return SharedLayout(both | _placed(others, SharedLayout(both, True).size), True)


def _placed(buffers: Sequence[Buffer], start: int) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    for buffer in buffers:
        assert isinstance(buffer.size, int)
        start += -start % buffer.align
        end = start + buffer.size * buffer.dtype.bytes
        places[buffer.name] = start, end
        start = end
    return places


def _later(
    function: Function, buffers: Sequence[Buffer], tiles: Sequence[Buffer]
) -> frozenset[str]:
    """Those ``shared`` ones of ``buffers`` that are used only after the last use of ``tiles`` and
    of arrivals, and a barrier in between."""
    body = _threads(function.body)
    before = {b.name for b in buffers if b.space == "arrivals"} | {b.name for b in tiles}
    uses = [set(names_used((s,))) for s in body]
    last = max((n for n, used in enumerate(uses) if used & before), default=-1)
    behind = _first(body, last + 1)
    if behind is None:
        return frozenset()
    met = set[str]().union(*uses[:behind])
    return frozenset(b.name for b in buffers if b.space == "shared" and b.name not in met)


def _first(body: Sequence[Stmt], start: int) -> int | None:
    """The first barrier from ``start`` on at which no asynchronous routine is pending."""
    waited = not any(isinstance(s, RoutineCall) and s.beside for s in statements(body[:start]))
    for number, s in enumerate(body[start:], start):
        waited = waited or s == WaitRoutines(0)
        if isinstance(s, Barrier) and waited:
            return number
    return None


def _threads(body: Sequence[Stmt]) -> Sequence[Stmt]:
    """The statements of each thread."""
    for s in body:
        if isinstance(s, For) and s.kind in ("grid", "thread"):
            return _threads(s.body)
    return body
