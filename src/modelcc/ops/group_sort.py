"""Long lines sorted by many groups of threads, in launches that follow each other.

Least significant digit first, four bits at a time, each pass a stable counting sort in three
launches: every group counts the digits of a block of elements, the counts are added up along the
line, and every group puts its elements where these say (Satish, Harris and Garland, "Designing
efficient sorting algorithms for manycore GPUs", 2009).  So no result depends on who comes first.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    number,
    predicate,
)
from modelcc.ir.capacity import GroupCapacity
from modelcc.ir.index import Index, Sym, ceildiv
from modelcc.ir.loop import Buffer, Expr, Var
from modelcc.ir.types import I32, I64
from modelcc.ops.group_scan import RunningTotals, running_totals, up_to_each
from modelcc.ops.group_top import line_of, pairs_at_once
from modelcc.ops.radix_sort import KeyOrder
from modelcc.ops.selection import Row

BITS = 4
DIGITS = 1 << BITS
EACH = 16
"""Neighbouring elements of a thread."""

LONG = 16
"""Turns of one group that takes the best of some elements at a time, from which on a line is sorted
as a whole."""


@dataclass(frozen=True)
class _Pass:
    """A counting sort of ``lines`` by a digit: of x, or of the keys and places of a ``source``."""

    row: Row
    lines: Index
    order: KeyOrder
    digit: int
    source: tuple[Buffer, Buffer] | None
    threads: int

    @property
    def blocks(self) -> Index:
        """Parts of a line, of which a group has one."""
        return ceildiv(self.row.extent, self.threads * EACH)

    def pair(self, at: AlgorithmBuilder, line: Index, slot: Index) -> tuple[Var, Expr]:
        """The key at ``slot``, and the place of its element."""
        if self.source is None:
            row = line_of(self.row, line)
            return at.let(self.order.of(at, row.element(at, slot))), index_number(slot, I32)
        keys, places = self.source
        slot = line * self.row.extent + slot
        return at.let(at.load(keys, slot)), at.load(places, slot)

    def digit_of(self, at: AlgorithmBuilder, key: Var) -> Sym:
        """The digit of a key that the pass sorts by."""
        moved = call("shr", key, number(self.digit * BITS, key.dtype))
        return at.index(convert(call("and", moved, number(DIGITS - 1, key.dtype)), I64))


@dataclass(frozen=True)
class _DigitCounts:
    """What a thread has of a block of a line, and the shared memory of its group: ``counts`` by
    digits, then by threads."""

    sort: _Pass
    line: Index
    number: Index
    thread: Sym
    counts: Buffer
    part: Buffer

    def counter(self, digit: Index) -> Index:
        """Where the thread counts a digit."""
        return digit * self.sort.threads + self.thread

    @contextmanager
    def each(self, at: AlgorithmBuilder) -> Generator[Index]:
        """Slots of the thread's elements."""
        first = (self.number * self.sort.threads + self.thread) * EACH
        with at.loop(0, EACH) as n, at.when(predicate(first + n, "<", self.sort.row.extent)):
            yield first + n

    @contextmanager
    def each_digit(self, at: AlgorithmBuilder) -> Generator[tuple[Index, Index]]:
        """The digits that a thread sees to, and where the group's counts of them are in memory."""
        threads = self.sort.threads
        with at.loop(0, ceildiv(DIGITS, threads)) as turn:
            digit = turn * threads + self.thread
            with at.when(predicate(digit, "<", DIGITS)):
                place = (self.line * DIGITS + digit) * self.sort.blocks + self.number
                yield digit, place

    def count(self, at: AlgorithmBuilder) -> Index:
        """``counts`` become how many elements of the block come before those of a digit that a
        thread has; where in ``part`` the number of all is."""
        threads, zero = self.sort.threads, number(0, I32)
        with at.loop(0, DIGITS) as digit:
            at.store(self.counts, self.counter(digit), zero)
        with self.each(at) as slot:
            key, _ = self.sort.pair(at, self.line, slot)
            own = self.counter(self.sort.digit_of(at, key))
            at.store(self.counts, own, add(at.load(self.counts, own), 1))
        at.barrier()
        total = at.register(zero)
        with at.loop(0, DIGITS) as n:
            at.assign(total, add(total, at.load(self.counts, self.thread * DIGITS + n)))
        before = at.register(call("sub", zero, total))
        half = up_to_each(at, add, self.part, total, self.thread, threads)
        at.assign(before, add(before, total))
        with at.loop(0, DIGITS) as n:
            place = self.thread * DIGITS + n
            more = at.let(at.load(self.counts, place))
            at.store(self.counts, place, before)
            at.assign(before, add(before, more))
        at.barrier()
        return half + threads - 1


def is_short(order: KeyOrder, k: Index, extent: Index, groups: GroupCapacity) -> bool:
    """Whether one group finds the ``k`` best of a line faster than many sort it."""
    room = pairs_at_once(order, k, extent, groups)
    if k == 1 or not isinstance(k, int) or not isinstance(extent, int):
        return bool(room)
    return bool(room) and extent - room <= LONG * (room - k)


def sort_in_groups(
    at: AlgorithmBuilder, row: Row, lines: Index, order: KeyOrder, groups: GroupCapacity
) -> None:
    """The results of ``lines``, of which ``row`` is the first."""
    threads = _threads(groups)
    source, count = None, -(-order.bits // BITS)
    for digit in range(count):
        step = _Pass(row, lines, order, digit, source, threads)
        size = lines * DIGITS * step.blocks
        counts, starts = at.scratch(I32, size), at.scratch(I32, size)
        _count(at, step, counts)
        extent = DIGITS * step.blocks
        running_totals(
            at,
            RunningTotals(counts, starts, lines, extent, 1, False, True, number(0, I32), add),
            groups,
        )
        source = None
        if digit + 1 < count:
            source = at.scratch(order.key, lines * row.extent), at.scratch(I32, lines * row.extent)
        _put(at, step, starts, source)


def _threads(groups: GroupCapacity) -> int:
    """Threads of a group, of which each has a counter for each digit in shared memory."""
    room = (groups.shared_bytes // I32.bytes - DIGITS) // (DIGITS + 2)
    return 1 << min(groups.threads, max(room, 1)).bit_length() - 1


@contextmanager
def _each_block(
    at: AlgorithmBuilder, step: _Pass, *shared: int
) -> Generator[tuple[_DigitCounts, Sequence[Buffer]]]:
    """A group for each block, with so much more of shared memory."""
    sizes = (DIGITS * step.threads, 2 * step.threads, *shared)
    with at.groups(step.lines * step.blocks, (step.threads,), *((I32, n) for n in sizes)) as (
        group,
        (thread,),
        (counts, part, *more),
    ):
        yield (
            _DigitCounts(step, group // step.blocks, group % step.blocks, thread, counts, part),
            more,
        )


def _count(at: AlgorithmBuilder, step: _Pass, counts: Buffer) -> None:
    """How many elements of each block have each digit, digit by digit."""
    with _each_block(at, step) as (block, _):
        end = block.count(at)
        with block.each_digit(at) as (digit, place):
            above = at.register(at.load(block.part, end))
            with at.when(predicate(digit, "<", DIGITS - 1)):
                at.assign(above, at.load(block.counts, (digit + 1) * step.threads))
            own = at.load(block.counts, digit * step.threads)
            at.store(counts, place, call("sub", above, own))


def _put(
    at: AlgorithmBuilder, step: _Pass, starts: Buffer, target: tuple[Buffer, Buffer] | None
) -> None:
    """Elements where the ``starts`` of their digits say: in a ``target``, or the results."""
    with _each_block(at, step, DIGITS) as (block, (shifts,)):
        block.count(at)
        with block.each_digit(at) as (digit, place):
            own = at.load(block.counts, digit * step.threads)
            at.store(shifts, digit, call("sub", at.load(starts, place), own))
        at.barrier()
        with block.each(at) as slot:
            key, place = step.pair(at, block.line, slot)
            digit = step.digit_of(at, key)
            own = block.counter(digit)
            inside = at.let(at.load(block.counts, own))
            at.store(block.counts, own, add(inside, 1))
            to = at.index(add(inside, at.load(shifts, digit)))
            _store(at, step, block.line, to, (key, place), target)


def _store(
    at: AlgorithmBuilder,
    step: _Pass,
    line: Index,
    to: Index,
    pair: tuple[Expr, Expr],
    target: tuple[Buffer, Buffer] | None,
) -> None:
    if target is not None:
        for buffer, value in zip(target, pair, strict=True):
            at.store(buffer, line * step.row.extent + to, value)
        return
    with at.when(predicate(to, "<", step.row.k)):
        row, place = line_of(step.row, line), at.index(pair[1])
        row.write(at, to, row.element(at, place), index_number(place))
