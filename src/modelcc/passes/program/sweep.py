"""Placement of blocks in temporal order, like a memory allocator with a list of free gaps.

Finding the gaps between all blocks that are live together takes time quadratic in their number.
In temporal order, gaps change little from one block to the next, so that n blocks take n log n
steps, however many are live at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from modelcc.passes.program.block import LiveBlock, Offsets


def swept(blocks: Sequence[LiveBlock]) -> Offsets:
    """Places blocks in the order in which they begin, each in the smallest free gap that fits.

    Of several that begin together the one that lives longest comes first.
    """
    offsets = [0] * len(blocks)
    memory = _SweptMemory()
    ending: list[tuple[int, int]] = []
    for i in sorted(range(len(blocks)), key=lambda i: (blocks[i].first, -blocks[i].last)):
        while ending and ending[0][0] < blocks[i].first:
            _, done = heappop(ending)
            memory.release(offsets[done], offsets[done] + blocks[done].size)
        if blocks[i].size:
            offsets[i] = memory.take(blocks[i].size)
            heappush(ending, (blocks[i].last, i))
    return tuple(offsets)


def swept_back(blocks: Sequence[LiveBlock]) -> Offsets:
    """As :func:`swept`, from the last step to the first."""
    return swept([replace(block, first=-block.last, last=-block.first) for block in blocks])


@dataclass
class _SweptMemory:
    """Disjoint gaps below ``top``, by offset and by size; above it all is free."""

    top: int = 0
    ends: dict[int, int] = field(default_factory=dict[int, int])
    starts: dict[int, int] = field(default_factory=dict[int, int])
    by_size: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def take(self, size: int) -> int:
        """Allocates ``size`` bytes in a gap, else at the top; the offset."""
        place = bisect_left(self.by_size, (size, -1))
        if place < len(self.by_size):
            start = self.by_size[place][1]
            end = self._drop(start)
            if start + size < end:
                self._add(start + size, end)
            return start
        start = self._drop_before(self.top)
        self.top = start + size
        return start

    def release(self, start: int, end: int) -> None:
        """Frees bytes."""
        if end in self.ends:
            end = self._drop(end)
        start = self._drop_before(start)
        if end == self.top:
            self.top = start
        else:
            self._add(start, end)

    def _drop_before(self, end: int) -> int:
        """Removes the gap that ends at ``end``, if there is one; returns the start of the gap."""
        start = self.starts.get(end)
        if start is None:
            return end
        self._drop(start)
        return start

    def _add(self, start: int, end: int) -> None:
        self.ends[start] = end
        self.starts[end] = start
        insort(self.by_size, (end - start, start))

    def _drop(self, start: int) -> int:
        end = self.ends.pop(start)
        del self.starts[end]
        del self.by_size[bisect_left(self.by_size, (end - start, start))]
        return end
