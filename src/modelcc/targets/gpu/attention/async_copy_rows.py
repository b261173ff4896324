"""Rows of keys or values that a thread copies to shared memory for itself, several steps ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.copies import CopyAsync
from modelcc.ir.index import Index, substitute
from modelcc.ir.loop import Buffer, Expr, Load, Stmt
from modelcc.ir.scalar_tree import depends_on, reads, walk
from modelcc.ir.tensor import Bind, Guard, Read, Scalar
from modelcc.schedule.lanes import widen
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel
from modelcc.targets.gpu.rows.reduction import lanes_of

COPIED_BYTES = (4, 8, 16)
"""Sizes of an asynchronous copy."""


def copied_read(factor: Scalar, along: LoopVar, lanes: int) -> Read:
    """The read that vectors of ``lanes`` of an operand copy; :class:`ScheduleError` unless it is
    one element at each point of it."""
    found = [r for r in reads(factor) if depends_on(r, along.name)]
    plain = not any(isinstance(s, Guard | Bind) for s in walk(factor))
    if len(found) != 1 or not plain or [r.tensor for r in reads(factor)].count(found[0].tensor) > 1:
        raise ScheduleError("keys and values are read as they are")
    if found[0].dtype.bytes * lanes not in COPIED_BYTES:
        raise ScheduleError("keys and values are copied by 4, 8 or 16 bytes")
    return found[0]


@dataclass(frozen=True)
class AsyncCopyRows:
    """Vectors of ``lanes`` of a ``factor`` along some loops: ``count`` per thread and step, in
    ``memory`` for ``buffers`` steps."""

    kernel: GroupKernel
    factor: Scalar
    along: tuple[LoopVar, ...]
    lanes: int
    count: int
    threads: int
    buffers: int
    stem: str

    @property
    def read(self) -> Read:
        """The copied read."""
        return copied_read(self.factor, self.along[-1], self.lanes)

    @property
    def memory(self) -> Buffer:
        """Shared memory of the group; each thread accesses its own part."""
        size = self.buffers * self.count * self.threads * self.lanes
        return Buffer(self.stem, self.read.dtype, size, "shared")

    def copy(
        self, at: Evaluation, buffer: Index, number: int, thread: Index, point: Mapping[str, Index],
        vector: Index,
    ) -> Stmt:  # fmt: skip
        """Copies the thread's vector ``number`` at ``point`` to a ``buffer``."""
        here = {**point, **at.place_vector(self.along, vector, self.lanes)}
        source = substitute(self.read.indices[0], here)
        to = self._place(buffer, number, thread)
        return CopyAsync(self.stem, to, self.read.tensor, source, self.lanes)

    def value(
        self, at: Evaluation, buffer: Index, number: int, thread: Index, point: Mapping[str, Index],
        vector: Index,
    ) -> Expr:  # fmt: skip
        """The operand, computed from the copy."""
        one = at.beside(lanes_of(self.kernel, self.lanes))
        place = self._place(buffer, number, thread)
        copied = at.named("c", Load(self.stem, place, self.read.dtype, self.lanes))
        here = {**point, **one.place_lanes(self.along, vector)}
        whole = one.value(self.factor, here, {self.read.tensor: copied})
        return at.named("e", widen(whole, self.lanes))

    def _place(self, buffer: Index, number: int, thread: Index) -> Index:
        return ((buffer * self.count + number) * self.threads + thread) * self.lanes
