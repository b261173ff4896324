"""The length of the union of a dynamic set of intervals.

A segment tree over all end points, as in Bentley's sweep ("Algorithms for Klee's rectangle
problems", 1977): an interval is recorded at the few nodes that it covers completely, so each change
takes time logarithmic in the number of intervals.
"""

from __future__ import annotations

from collections.abc import Iterable


class Union:
    """Intervals ``[start, end)``, all of whose ends are among ``ends``; initially none."""

    def __init__(self, ends: Iterable[int]) -> None:
        self._ends = sorted(set(ends))
        self._places = {end: place for place, end in enumerate(self._ends)}
        stretches = max(1, len(self._ends) - 1)
        self._leaves = 1 << (stretches - 1).bit_length()
        self._noted = [0] * (2 * self._leaves)
        self._covered = [0] * (2 * self._leaves)

    @property
    def length(self) -> int:
        """Length of the union."""
        return self._covered[1]

    def add(self, start: int, end: int) -> None:
        """Insert an interval."""
        self._change(start, end, 1)

    def remove(self, start: int, end: int) -> None:
        """Remove an inserted interval."""
        self._change(start, end, -1)

    def _change(self, start: int, end: int, by: int) -> None:
        if start < end:
            self._note(1, 0, self._leaves, self._places[start], self._places[end], by)

    def _note(self, node: int, first: int, last: int, start: int, end: int, by: int) -> None:
        """Record the segments ``start`` to ``end`` below a node of segments ``first`` to
        ``last``."""
        middle = (first + last) // 2
        if start <= first and last <= end:
            self._noted[node] += by
        else:
            if start < middle:
                self._note(2 * node, first, middle, start, end, by)
            if end > middle:
                self._note(2 * node + 1, middle, last, start, end, by)
        self._covered[node] = self._length(node, first, last)

    def _length(self, node: int, first: int, last: int) -> int:
        if self._noted[node]:
            return self._ends[min(last, len(self._ends) - 1)] - self._ends[first]
        if node >= self._leaves:
            return 0
        return self._covered[2 * node] + self._covered[2 * node + 1]
