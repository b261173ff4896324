"""What algorithms may take of a machine: neutral numbers, which the target gives."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.index import Index
from modelcc.ir.types import F64, DType


@dataclass(frozen=True)
class GroupCapacity:
    """What a group has: ``threads``, a power of two, ``shared_bytes`` that they share, and whether
    they compute with 64-bit floats."""

    threads: int
    shared_bytes: int
    doubles: bool = True

    def are_many(self, iterations: Index) -> bool:
        """Whether a thread for each is faster than a processor's few: one is far slower."""
        return not isinstance(iterations, int) or iterations >= self.threads


@dataclass(frozen=True)
class Capacity:
    """How much an algorithm (:mod:`modelcc.ir.algorithm`) does at once.

    It works on vectors of ``lanes`` elements, a power of two (1: on one after the other).  Passing
    over ``parallel_from`` elements is worth several threads, which take ``shares`` of the work.
    ``groups`` are those of an accelerator, for algorithms that have a form for them.
    """

    lanes: int
    parallel_from: int
    shares: int
    groups: GroupCapacity | None = None

    def groups_of(self, dtype: DType) -> GroupCapacity | None:
        """Groups that compute with elements of ``dtype``."""
        return self.groups if self.groups is None or self.groups.doubles or dtype != F64 else None

    def each_thread(self, groups: GroupCapacity) -> Capacity:
        """That of threads without vectors, of which a few ``groups`` have memory of their own."""
        return replace(self, lanes=1, parallel_from=1, shares=4 * groups.threads)

    def joined(self, vectors: int) -> int:
        """Elements of so many vectors that are taken as one; still 1 where there are none."""
        return vectors * self.lanes if self.lanes > 1 else 1

    def is_little(self, work: Index) -> bool:
        """Whether passing over ``work`` elements is known not to be worth several threads."""
        return isinstance(work, int) and work < self.parallel_from

    def blocks(self, rows: Index) -> int:
        """Blocks of ``rows`` to share, where each takes memory for a whole row: half the shares."""
        most = max(1, self.shares // 2)
        return min(rows, most) if isinstance(rows, int) else most


SCALAR = Capacity(lanes=1, parallel_from=1, shares=1)
"""One element after the other: for whoever asks what algorithms mean, and for no machine."""
