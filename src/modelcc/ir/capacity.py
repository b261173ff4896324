"""Resources of a machine that algorithms may use: target-independent numbers from the target."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.index import Index
from modelcc.ir.types import F64, DType


@dataclass(frozen=True)
class GroupCapacity:
    """Resources of a group: ``threads``, a power of two, ``shared_bytes`` of shared memory, and
    whether they compute with 64-bit floats."""

    threads: int
    shared_bytes: int
    doubles: bool = True

    def are_many(self, iterations: Index) -> bool:
        """Whether a thread per iteration beats a few CPU threads: a single one is far slower."""
        return not isinstance(iterations, int) or iterations >= self.threads


@dataclass(frozen=True)
class Capacity:
    """Vector width and parallelism of an algorithm (:mod:`modelcc.ir.algorithm`).

    It uses vectors of ``lanes`` elements, a power of two (1: scalars).  From ``parallel_from``
    elements on several threads pay off, which share the work in ``shares`` chunks.  ``groups`` are
    those of an accelerator, for algorithms that have a version for them.
    """

    lanes: int
    parallel_from: int
    shares: int
    groups: GroupCapacity | None = None

    def groups_of(self, dtype: DType) -> GroupCapacity | None:
        """Groups that compute with elements of ``dtype``."""
        return self.groups if self.groups is None or self.groups.doubles or dtype != F64 else None

    def each_thread(self, groups: GroupCapacity) -> Capacity:
        """The capacity for scalar threads, few of whose ``groups`` have memory of their own."""
        return replace(self, lanes=1, parallel_from=1, shares=4 * groups.threads)

    def joined(self, vectors: int) -> int:
        """Elements of ``vectors`` vectors that are handled as one; still 1 without vectors."""
        return vectors * self.lanes if self.lanes > 1 else 1

    def is_little(self, work: Index) -> bool:
        """Whether ``work`` elements are known to be too few for several threads."""
        return isinstance(work, int) and work < self.parallel_from

    def blocks(self, rows: Index) -> int:
        """Parallel blocks of ``rows`` when each needs memory for a whole row: half the shares."""
        most = max(1, self.shares // 2)
        return min(rows, most) if isinstance(rows, int) else most


SCALAR = Capacity(lanes=1, parallel_from=1, shares=1)
"""Scalar and serial: for reference semantics of algorithms, not for a machine."""
