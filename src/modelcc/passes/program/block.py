"""Blocks of memory with live ranges, and bounds of their sizes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType


@dataclass(frozen=True)
class LiveBlock:
    """``size`` bytes (a multiple of the alignment), live in steps ``first`` to ``last``."""

    first: int
    last: int
    size: int


Offsets = tuple[int, ...]
"""First byte of each block."""

Leads = Mapping[tuple[int, int], tuple[int, int]]
"""Pairs of blocks that may overlap, if the first begins at least these numbers of bytes before, or
after, the second."""

NO_LEADS: Leads = MappingProxyType({})


def live_sizes(blocks: Sequence[LiveBlock]) -> dict[int, int]:
    """Bytes live at each step at which a block begins; the maximum is at one of these."""
    steps = sorted({b.first for b in blocks})
    change = [0] * (len(steps) + 1)
    for b in blocks:
        if b.first <= b.last:
            change[bisect_left(steps, b.first)] += b.size
            change[bisect_right(steps, b.last)] -= b.size
    return dict(zip(steps, accumulate(change), strict=False))


def lower_bound(blocks: Sequence[LiveBlock]) -> int:
    """A lower bound of the arena: the maximum of the sizes live at once."""
    return max(live_sizes(blocks).values(), default=0)


def shared_bound(blocks: Sequence[LiveBlock], leads: Leads) -> int:
    """As :func:`lower_bound`, with maximal overlap of pairs."""
    live = live_sizes(blocks)
    for (over, under), (before, behind) in leads.items():
        at, over_size, under_size = blocks[over].first, blocks[over].size, blocks[under].size
        least = min(max(over_size, before + under_size), max(under_size, behind + over_size))
        if at in live:
            live[at] -= over_size + under_size - least
    return max(live.values(), default=0)


def height(blocks: Sequence[LiveBlock], offsets: Sequence[int]) -> int:
    """Bytes of the arena."""
    return max((o + b.size for o, b in zip(offsets, blocks, strict=True)), default=0)


def pairs_live(blocks: Sequence[LiveBlock]) -> int:
    """Number of pairs of blocks that are live at a common step."""
    ends = sorted(b.last for b in blocks)
    starts = sorted(b.first for b in blocks)
    return sum(n - bisect_left(ends, first) for n, first in enumerate(starts))
