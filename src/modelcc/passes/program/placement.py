"""Offsets for blocks of memory that are live at known times: two-dimensional strip packing.

Finding the least arena is NP-hard ("dynamic storage allocation", Garey & Johnson SR2).  Here
several greedy orders are tried with first fit and best fit; while the result is above the lower
bound, orders are refined by hill climbing, moving blocks that reach the top, as the allocator of
Arm's Vela does.  The orders are those of Pisarchyk & Lee, "Efficient memory management for deep
neural net inference" (2020), and contention as in Maas et al., "TelaMalloc" (2022).
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

Fit = Literal["first", "best", "ends"]

WORK = 400_000
"""Pairs of blocks that hill climbing may look at, so that large models stay quick to compile."""


@dataclass(frozen=True)
class Block:
    """``size`` bytes (a multiple of the alignment), live in steps ``first`` to ``last``."""

    first: int
    last: int
    size: int


Offsets = tuple[int, ...]


def neighbours(blocks: Sequence[Block]) -> tuple[tuple[int, ...], ...]:
    """For each block, the others that are live at a common step."""
    found: list[list[int]] = [[] for _ in blocks]
    live: list[int] = []
    for i in sorted(range(len(blocks)), key=lambda i: blocks[i].first):
        live = [j for j in live if blocks[j].last >= blocks[i].first]
        for j in live:
            found[i].append(j)
            found[j].append(i)
        live.append(i)
    return tuple(tuple(sorted(ids)) for ids in found)


def live_sizes(blocks: Sequence[Block]) -> dict[int, int]:
    """Bytes live at each step at which a block begins; the sum is greatest at one of these."""
    steps = sorted({b.first for b in blocks})
    change = [0] * (len(steps) + 1)
    for b in blocks:
        if b.first <= b.last:
            change[bisect_left(steps, b.first)] += b.size
            change[bisect_right(steps, b.last)] -= b.size
    return dict(zip(steps, accumulate(change), strict=False))


def lower_bound(blocks: Sequence[Block]) -> int:
    """No arena is smaller than the greatest sum of sizes live at once."""
    return max(live_sizes(blocks).values(), default=0)


def height(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    """Bytes of the arena."""
    return max((o + b.size for o, b in zip(offsets, blocks, strict=True)), default=0)


def candidate_placements(blocks: Sequence[Block]) -> tuple[Offsets, ...]:
    """Good placements, best first: each greedy order with each fit, and the refined best."""
    near = neighbours(blocks)
    bound = lower_bound(blocks)
    tried: dict[Offsets, tuple[list[int], Fit]] = {}
    for order in _orders(blocks):
        for fit in ("first", "best", "ends"):
            tried.setdefault(place(order, blocks, near, fit, bound), (order, fit))
    best = min(tried, key=lambda offsets: height(blocks, offsets))
    if height(blocks, best) > bound:
        order, fit = tried[best]
        refined = _climb(order, fit, best, blocks, near, bound)
        tried.setdefault(refined, (order, fit))
    return tuple(sorted(tried, key=lambda offsets: height(blocks, offsets)))


def place(
    order: Sequence[int],
    blocks: Sequence[Block],
    near: Sequence[Sequence[int]],
    fit: Fit,
    capacity: int = 0,
) -> Offsets:
    """Each block in turn in a gap between its placed neighbours, or above them.

    ``first`` takes the lowest gap it fits in, ``best`` the smallest.  ``ends`` takes the first
    too, but leans on the ceiling at ``capacity`` if that bounds the gap: in a chain, blocks then
    alternate between floor and ceiling, which is optimal.
    """
    offsets = [-1] * len(blocks)
    for i in order:
        placed = sorted(
            (offsets[j], offsets[j] + blocks[j].size) for j in near[i] if offsets[j] >= 0
        )
        if fit == "ends":
            placed = sorted([*placed, (capacity, capacity)])
        offsets[i] = _gap(placed, blocks[i].size, fit, capacity)
    return tuple(offsets)


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


def _orders(blocks: Sequence[Block]) -> list[list[int]]:
    crowd = live_sizes(blocks)
    steps, sums = list(crowd), list(crowd.values())
    contentions = [
        max(sums[bisect_left(steps, b.first) : bisect_right(steps, b.last)]) for b in blocks
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


def _climb(
    order: Sequence[int],
    fit: Fit,
    start: Offsets,
    blocks: Sequence[Block],
    near: Sequence[Sequence[int]],
    bound: int,
) -> Offsets:
    """Swaps blocks at the top, or their neighbours, with others; keeps what is not worse."""
    rng = random.Random(0)
    cost = len(blocks) + sum(len(ids) for ids in near)
    current, best = list(order), start
    for _ in range(min(1000, WORK // cost)):
        top = height(blocks, best)
        if top <= bound:
            break
        peak = [i for i, b in enumerate(blocks) if best[i] + b.size == top]
        moved = sorted({*peak, *(j for i in peak for j in near[i])})
        trial = list(current)
        a, b = trial.index(rng.choice(moved)), rng.randrange(len(trial))
        trial[a], trial[b] = trial[b], trial[a]
        offsets = place(trial, blocks, near, fit, bound)
        if height(blocks, offsets) <= top:
            current, best = trial, offsets
    return best
