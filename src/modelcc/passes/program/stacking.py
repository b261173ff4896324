"""Symbolic offsets: the vertical order of a numeric placement, then sums and maxima of sizes.

A placement for typical sizes determines, for two blocks live at once, which is the lower one.
With that order kept, each block starts at the highest end of the blocks below it.  This is valid
for every size, and for the typical one no higher than the original placement.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from zlib import crc32

from modelcc.ir.index import (
    DIM,
    Bounds,
    Expr,
    Index,
    Range,
    Sym,
    compare,
    index_size,
    maximum,
    substitute,
    symbols,
)
from modelcc.ir.program import Definition
from modelcc.passes.program.block import LiveBlock

INLINE = 7
"""Offsets with more terms than this are named."""

SAMPLES = 8
"""Points at which ends are compared before attempting a proof."""

SPREAD = 1 << 10
"""Sizes at these points exceed their lower bounds by at most this."""


@dataclass(frozen=True)
class Stacking:
    """``order`` goes from the bottom up; ``below[i]`` are the blocks that block i rests on."""

    order: tuple[int, ...]
    below: tuple[tuple[int, ...], ...]


def stacking(offsets: Sequence[int], blocks: Sequence[LiveBlock]) -> Stacking:
    """The vertical order of a placement; an empty block is below those that start at its offset.

    A block rests on those that are the topmost at one of its steps when it is added; blocks below
    these are left out of ``below``.
    """
    order = sorted(range(len(offsets)), key=lambda i: (offsets[i], blocks[i].size, i))
    below: list[frozenset[int]] = [frozenset()] * len(offsets)
    skyline = _Skyline()
    for i in order:
        seen = skyline.put(i, blocks[i].first, blocks[i].last + 1)
        below[i] = seen.difference(*(seen & below[j] for j in seen))
    rank = {block: position for position, block in enumerate(order)}
    return Stacking(
        tuple(order), tuple(tuple(sorted(ids, key=lambda j: -rank[j])) for ids in below)
    )


class _Skyline:
    """The topmost block at each step; -1 where there is none."""

    def __init__(self) -> None:
        self._starts: list[float] = [float("-inf")]
        self._tops = {self._starts[0]: -1}

    def put(self, block: int, start: int, end: int) -> frozenset[int]:
        """The topmost blocks from ``start`` to before ``end``, on which ``block`` is placed."""
        first = bisect_right(self._starts, start) - 1
        last = bisect_left(self._starts, end)
        after = self._tops[self._starts[last - 1]]
        seen = {self._tops[each] for each in self._starts[first:last]}
        kept = first if self._starts[first] == start else first + 1
        for each in self._starts[kept:last]:
            del self._tops[each]
        follows = last < len(self._starts) and self._starts[last] == end
        self._starts[kept:last] = [start] if follows else [start, end]
        self._tops[start] = block
        if not follows:
            self._tops[end] = after
        return frozenset(seen - {-1})


def stacked_offsets(stack: Stacking, sizes: Sequence[int]) -> tuple[int, ...]:
    """Offsets for blocks of ``sizes``."""
    offsets = [0] * len(sizes)
    for i in stack.order:
        offsets[i] = max((offsets[j] + sizes[j] for j in stack.below[i]), default=0)
    return tuple(offsets)


@dataclass(frozen=True)
class SymbolicOffsets:
    """Offset of each block and height of all, in terms of dimensions and ``definitions``."""

    offsets: tuple[Index, ...]
    height: Index
    definitions: tuple[Definition, ...]


def symbolic_offsets(
    stack: Stacking, sizes: Sequence[Index], dims: Bounds, taken: Collection[str]
) -> SymbolicOffsets:
    """As :func:`stacked_offsets`, for symbolic sizes; ``taken`` are names in use."""
    ranges = {name: dims.get(name, DIM) for size in sizes for name in symbols(size)}
    namer = _Namer(frozenset((*taken, *ranges)))
    ends = _Ends(ranges)
    offsets: list[Index] = [0] * len(sizes)
    for i in stack.order:
        offsets[i] = namer.named(_highest([offsets[j] + sizes[j] for j in stack.below[i]], ends))
    carrying = {j for ids in stack.below for j in ids}
    tops = [offsets[i] + sizes[i] for i in stack.order if i not in carrying]
    total = namer.named(_highest(tops, ends))
    return SymbolicOffsets(tuple(offsets), total, tuple(namer.definitions))


class _Namer:
    """Gives names to long expressions, one name per expression."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = taken
        self._names: dict[Index, Index] = {}
        self.definitions: list[Definition] = []

    def named(self, value: Index) -> Index:
        if index_size(value) <= INLINE:
            return value
        if value not in self._names:
            symbol = f"at{len(self.definitions)}"
            while symbol in self._taken:
                symbol += "_"
            self.definitions.append(Definition(symbol, value))
            self._names[value] = Sym(symbol)
        return self._names[value]


class _Ends:
    """Compares ends of blocks; no proof is attempted if some sizes refute it."""

    def __init__(self, dims: Bounds) -> None:
        self._dims = dims
        self._values: dict[Index, tuple[int, ...] | None] = {}

    def within(self, one: Index, other: Index) -> bool:
        """Whether ``one`` is provably never higher.  Names of offsets are unbounded, and proofs
        for long sums are slow."""
        above, below = self._sampled(one), self._sampled(other)
        if above and below and any(a > b for a, b in zip(above, below, strict=True)):
            return False
        above, below = (self._unknown(end) for end in (one, other))
        apart = above and below and above.isdisjoint(below)
        return not apart and compare(one, "<=", other, self._dims) is True

    def _unknown(self, end: Index) -> frozenset[str]:
        return frozenset(name for name in symbols(end) if name not in self._dims)

    def _sampled(self, end: Index) -> tuple[int, ...] | None:
        """The end at some sizes within bounds; None if there are none."""
        if end not in self._values:
            limits = {name: self._dims.get(name, DIM) for name in symbols(end)}
            self._values[end] = _samples(end, limits)
        return self._values[end]


def _samples(end: Index, limits: Bounds) -> tuple[int, ...] | None:
    """``end`` at ``SAMPLES`` points; None if undefined there, or if bounds are symbolic."""
    if any(isinstance(e, Expr) for bounds in limits.values() for e in (bounds.lo, bounds.hi)):
        return None
    points = [{n: _inside(k, f"{n}{seed}") for n, k in limits.items()} for seed in range(SAMPLES)]
    try:
        values = [substitute(end, point) for point in points]
    except ZeroDivisionError:
        return None
    return tuple(value for value in values if isinstance(value, int))


def _inside(bounds: Range, seed: str) -> int:
    """A pseudo-random number within constant ``bounds``, from a seed."""
    low = bounds.lo if isinstance(bounds.lo, int) else 0
    found = low + crc32(seed.encode()) % SPREAD
    return min(found, bounds.hi) if isinstance(bounds.hi, int) else found


def _highest(ends: Sequence[Index], compared: _Ends) -> Index:
    """The maximum, without ends that are provably never the highest."""
    kept: list[Index] = []
    for end in dict.fromkeys(ends):
        if any(compared.within(end, other) for other in kept):
            continue
        kept = [other for other in kept if not compared.within(other, end)]
        kept.append(end)
    return maximum(*kept) if kept else 0
