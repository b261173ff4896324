"""Loads with stride 2, 3 or 4, from contiguous vectors and shuffles.

A gather loads its elements one by one.  A few wide loads and shuffles are several times faster,
and stay within the first and the last element::

    lanes 4, stride 2     elements 0 2 4 6
    loads                 0 1 2 3   and   3 4 5 6
    shuffle               0 2 of the first, 1 3 of the second
"""

from __future__ import annotations

from collections.abc import Iterator

WIDEST = 4
"""Maximum stride of these loads."""


def starts(lanes: int, stride: int) -> tuple[int, ...]:
    """First element of each contiguous load of ``lanes``."""
    last = (lanes - 1) * stride + 1 - lanes
    return tuple(min(number * lanes, last) for number in range(stride))


def shuffles(lanes: int, stride: int) -> Iterator[tuple[int, ...]]:
    """Shuffle masks that merge each load after the first: per lane, its index in the result so far
    (below ``lanes``), in the new load (from ``lanes`` on), or -1 if it comes from a later load."""
    first = starts(lanes, stride)
    homes = [min(lane * stride // lanes, stride - 1) for lane in range(lanes)]
    for number in range(1, stride):
        yield tuple(
            lanes + lane * stride - first[number]
            if home == number
            else (lane * stride if number == 1 else lane)
            if home < number
            else -1
            for lane, home in enumerate(homes)
        )
