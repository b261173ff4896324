"""Offsets for blocks of memory with live ranges: two-dimensional strip packing.

Finding the least arena is NP-hard ("dynamic storage allocation", Garey & Johnson SR2).  Here
several greedy orders are tried with first fit and best fit; while the result is above the lower
bound, orders are refined by hill climbing, moving blocks that reach the top, as the allocator of
Arm's Vela does.  The orders are those of Pisarchyk & Lee, "Efficient memory management for deep
neural net inference" (2020), and contention as in Maas et al., "TelaMalloc" (2022).
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import Literal

from modelcc.passes.program.block import (
    NO_LEADS,
    Leads,
    LiveBlock,
    Offsets,
    height,
    live_sizes,
    lower_bound,
    pairs_live,
    shared_bound,
)
from modelcc.passes.program.sweep import swept, swept_back

Fit = Literal["first", "best", "ends"]

FITS: tuple[Fit, ...] = ("first", "best", "ends")

EFFORT, EFFORT_EACH = 1_000_000, 300
"""Pairs of blocks that greedy orders may examine: in total, and additionally for each block."""

WORK = 400_000
"""Pairs of blocks that hill climbing may examine, to limit the compile time of large models."""


def neighbours(blocks: Sequence[LiveBlock]) -> tuple[tuple[int, ...], ...]:
    """For each block, the others that are live at a common step."""
    adjacent: list[list[int]] = [[] for _ in blocks]
    live: list[int] = []
    for i in sorted(range(len(blocks)), key=lambda i: blocks[i].first):
        live = [j for j in live if blocks[j].last >= blocks[i].first]
        for j in live:
            adjacent[i].append(j)
            adjacent[j].append(i)
        live.append(i)
    return tuple(tuple(sorted(ids)) for ids in adjacent)


def placements(blocks: Sequence[LiveBlock], leads: Leads = NO_LEADS) -> Iterator[Offsets]:
    """Good placements: of greedy orders with each fit, of sweeps, and the refined best.

    The effort is linear in the number of blocks, not in that of their pairs: if many are live at
    once, fewer orders are tried, or sweeps only.
    """
    bound = shared_bound(blocks, leads) if leads else lower_bound(blocks)
    cost = len(blocks) + 2 * pairs_live(blocks)
    trials = (EFFORT + EFFORT_EACH * len(blocks)) // max(1, cost)
    near = neighbours(blocks) if trials else ()
    tried: dict[Offsets, tuple[list[int], Fit]] = {}
    for order, fit in islice(product(_orders(blocks), FITS), trials):
        offsets = place(order, blocks, near, fit, bound, leads)
        tried.setdefault(offsets, (order, fit))
        yield offsets
    yield swept(blocks)
    yield swept_back(blocks)
    if tried:
        best = min(tried, key=lambda offsets: height(blocks, offsets))
        yield _climb(*tried[best], best, blocks, near, bound, leads)


def place(
    order: Sequence[int],
    blocks: Sequence[LiveBlock],
    near: Sequence[Sequence[int]],
    fit: Fit,
    capacity: int = 0,
    leads: Leads = NO_LEADS,
) -> Offsets:
    """Places each block in order in a gap between its placed neighbours, or above them.

    ``first`` takes the lowest gap it fits in, ``best`` the smallest.  ``ends`` is first fit, but
    aligns with the ceiling at ``capacity`` if that bounds the gap: in a chain, blocks then
    alternate between floor and ceiling, which is optimal.
    """
    offsets = [-1] * len(blocks)
    for i in order:
        placed = sorted(_taken(i, j, offsets, blocks, leads) for j in near[i] if offsets[j] >= 0)
        if fit == "ends":
            placed = sorted([*placed, (capacity, capacity)])
        offsets[i] = _gap(placed, blocks[i].size, fit, capacity)
    return tuple(offsets)


def _taken(
    i: int, j: int, offsets: Sequence[int], blocks: Sequence[LiveBlock], leads: Leads
) -> tuple[int, int]:
    """The range in which block ``j`` conflicts with ``i``: ``i`` begins at its end or later, or
    ends at its start or before; for overlapping blocks the start may be greater."""
    start, size = offsets[j], blocks[i].size
    if (i, j) in leads:
        before, behind = leads[i, j]
        return start + size - before, start + behind
    if (j, i) in leads:
        before, behind = leads[j, i]
        return start + size - behind, start + before
    return start, start + blocks[j].size


def _gap(placed: Sequence[tuple[int, int]], size: int, fit: Fit, capacity: int) -> int:
    top, chosen, smallest = 0, -1, -1
    for start, end in placed:
        room = start - top
        if room >= size and (chosen < 0 or room < smallest):
            if fit == "first":
                return top
            if fit == "ends":
                return start - size if top and start == capacity else top
            chosen, smallest = top, room
        top = max(top, end)
    return top if chosen < 0 else chosen


def _orders(blocks: Sequence[LiveBlock]) -> list[list[int]]:
    crowd = live_sizes(blocks)
    steps, greatest = list(crowd), _Greatest(list(crowd.values()))
    contentions = [
        greatest.within(bisect_left(steps, b.first), bisect_right(steps, b.last)) for b in blocks
    ]

    def duration(i: int) -> int:
        return blocks[i].last - blocks[i].first + 1

    keys: list[Callable[[int], tuple[int, ...]]] = [
        lambda i: (-blocks[i].size, -duration(i)),
        lambda i: (-duration(i), -blocks[i].size),
        lambda i: (-blocks[i].size * duration(i),),
        lambda i: (-contentions[i], -duration(i), -blocks[i].size),
        lambda i: (-contentions[i], -blocks[i].size),
        lambda i: (blocks[i].first, -blocks[i].last),
        lambda i: (-blocks[i].last, blocks[i].first),
    ]
    return [sorted(range(len(blocks)), key=key) for key in keys]


class _Greatest:
    """Range maxima of a list: a sparse table of runs of 1, 2, 4 … items."""

    def __init__(self, items: Sequence[int]) -> None:
        self._levels = [items]
        while (length := 1 << (len(self._levels) - 1)) * 2 <= len(items):
            level = self._levels[-1]
            self._levels.append(list(map(max, level, level[length:])))

    def within(self, start: int, end: int) -> int:
        """The maximum of a non-empty range."""
        level = (end - start).bit_length() - 1
        items = self._levels[level]
        return max(items[start], items[end - (1 << level)])


def _climb(
    order: Sequence[int],
    fit: Fit,
    start: Offsets,
    blocks: Sequence[LiveBlock],
    near: Sequence[Sequence[int]],
    bound: int,
    leads: Leads,
) -> Offsets:
    """Swaps blocks at the top, or their neighbours, with others; keeps moves that are not worse."""
    rng = random.Random(0)
    cost = len(blocks) + sum(len(ids) for ids in near)
    current, best = list(order), start
    for _ in range(min(1000, WORK // max(1, cost))):
        top = height(blocks, best)
        if top <= bound:
            break
        peak = [i for i, b in enumerate(blocks) if best[i] + b.size == top]
        moved = sorted({*peak, *(j for i in peak for j in near[i])})
        trial = list(current)
        a, b = trial.index(rng.choice(moved)), rng.randrange(len(trial))
        trial[a], trial[b] = trial[b], trial[a]
        offsets = place(trial, blocks, near, fit, bound, leads)
        if height(blocks, offsets) <= top:
            current, best = trial, offsets
    return best
