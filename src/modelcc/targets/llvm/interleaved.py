"""Vectors of every second, third or fourth element, from whole vectors of neighbours.

A gather loads its elements one by one.  A few wide loads and shuffles are several times faster,
and stay between the first element and the last::

    lanes 4, stride 2     elements 0 2 4 6
    loads                 0 1 2 3   and   3 4 5 6
    shuffle               0 2 of the first, 1 3 of the second
"""

from __future__ import annotations

from collections.abc import Iterator

WIDEST = 4
"""Strides up to this are loaded so."""


def starts(lanes: int, stride: int) -> tuple[int, ...]:
    """First element of each load of ``lanes`` neighbours."""
    last = (lanes - 1) * stride + 1 - lanes
    return tuple(min(number * lanes, last) for number in range(stride))


def shuffles(lanes: int, stride: int) -> Iterator[tuple[int, ...]]:
    """What each load after the first adds: of every lane, its place in the lanes so far (below
    ``lanes``), in the new load (from ``lanes`` on), or -1 if it is still to come."""
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
