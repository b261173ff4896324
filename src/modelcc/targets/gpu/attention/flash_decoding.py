"""FlashDecoding: attention of few rows by many keys, as of new tokens with long caches, split along
the keys.

grid b, parts of keys; thread w (warps), l (lanes of them): a slot is the lanes that load a row
  queries to registers; keys and values of the first steps are copied, a commit group each
  for each step of the part: a slot has several keys
    wait for its commit group; the one that comes ``buffers - 1`` later is copied
    products of keys and queries, exchanged
    the running maximum, and sums so far times exp(previous - current)
    totals += exp(score - maximum) * values
  slots are combined: maxima to shared memory; barrier; sums and totals relative to the overall
    maximum to shared memory; barrier
  the part's maximum, sum and totals to memory; the last group of a batch combines those of all
    parts in the same way, and computes the epilogue

A thread reads only what it copied itself, so warps do not synchronise before the end of their part,
and each has its own keys and values in flight all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from modelcc.ir.copies import CommitCopies, Exchange, WaitCopies
from modelcc.ir.index import Index, Sym, ceildiv, floordiv, minimum, mod
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Expr,
    For,
    Function,
    MulAdd,
    Reduce,
    ScalarCall,
    Stmt,
    Var,
)
from modelcc.ir.tensor import Condition, Scalar
from modelcc.ir.types import F32
from modelcc.schedule.group_schedule import FlashDecoding
from modelcc.schedule.lanes import widen
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.async_copy_rows import AsyncCopyRows, copied_read
from modelcc.targets.gpu.attention.decode_nests import in_memory_order
from modelcc.targets.gpu.attention.flash_decoding_nests import (
    FlashDecodingNests,
    find_flash_decoding,
)
from modelcc.targets.gpu.attention.online_softmax import (
    LEAST,
    ZERO,
    GroupPlace,
    RowTotals,
    Running,
    where,
)
from modelcc.targets.gpu.attention.row_lanes import RowLanes
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    extent_of,
    only_where,
)
from modelcc.targets.gpu.rows.reduction import is_power_of_two, lanes_of
from modelcc.targets.gpu.rows.team import combine_two

MOST_ROWS = 4
"""All lanes of a slot compute the same exponentials: with more rows, slower than memory."""

MOST_TOTALS = 32
"""Registers of a thread for totals of all rows."""


def lower_flash_decoding(kernel: GroupKernel, schedule: FlashDecoding) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no attention of few rows, keys and
    values are no whole vectors, or there are parts and the number of batches is not a constant."""
    s = schedule
    if not (is_power_of_two(s.warp) and s.warp > 1) or s.threads % s.warp or s.keys < 1:
        raise ScheduleError("groups are warps of a power of two of threads, which read keys")
    if s.parts < 1 or s.buffers < 2:
        raise ScheduleError("keys are cut into parts, and copied to two buffers at least")
    if kernel.checks:
        raise ScheduleError("indices of keys are known to be in their bounds")
    parts = find_flash_decoding(kernel)
    verify_flash_decoding(parts, s)
    return _FlashDecodingThreads(kernel, s, parts).function()


def verify_flash_decoding(parts: FlashDecodingNests, s: FlashDecoding) -> None:
    """:class:`ScheduleError` unless the lanes of a slot have a key and its value."""
    by_terms, by_columns = RowLanes.of(parts.depth, s), RowLanes.of(parts.width, s)
    if s.lanes not in (1, 2, 4, 8) or not parts.takes_lanes(s.lanes):
        raise ScheduleError("keys and values are no whole vectors: lanes")
    copied_read(parts.key, parts.product.reduce[-1], s.lanes)
    copied_read(parts.value, parts.columns[-1], s.lanes)
    if by_terms.across != by_columns.across:
        raise ScheduleError("as many lanes read a key as a value")
    if parts.rows > MOST_ROWS or parts.rows * by_columns.own * s.lanes > MOST_TOTALS:
        raise ScheduleError("threads have totals of few rows")
    if s.parts > 1 and not isinstance(extent_of(parts.batch), int):
        raise ScheduleError("keys in parts are of batches whose number is known")


def flash_decoding_shared(parts: FlashDecodingNests, s: FlashDecoding) -> int:
    """Bytes of shared memory of a group: keys and values of all buffers, and what slots exchange at
    the end."""
    keys, values = RowLanes.of(parts.depth, s), RowLanes.of(parts.width, s)
    own = keys.own * parts.key_bytes + values.own * parts.value_bytes
    copied = s.buffers * s.keys * s.threads * s.lanes * own
    return copied + values.slots * parts.rows * (values.pitch + 2) * F32.bytes


def flash_decoding_registers(parts: FlashDecodingNests, s: FlashDecoding) -> int:
    """Registers a thread is expected to take: totals, queries, scores, and the rest."""
    return 48 + 20 * parts.rows * RowLanes.of(parts.width, s).own * s.lanes // 8


class _FlashDecodingThreads:
    def __init__(self, kernel: GroupKernel, s: FlashDecoding, parts: FlashDecodingNests) -> None:
        self._kernel, self._s, self._parts = kernel, s, parts
        fresh = self._fresh = kernel.names.fresh
        gb, w, lane = fresh("gb"), fresh("w"), fresh("t")
        tiles = extent_of(parts.batch)
        loops = ((w, s.threads // s.warp), (lane, s.warp))
        self._launch = Launching(((gb, tiles * s.parts),), loops, kernel.dims)
        self._lane, self._thread = Sym(lane), Sym(w) * s.warp + Sym(lane)
        self._by_terms, self._by_columns = RowLanes.of(parts.depth, s), RowLanes.of(parts.width, s)
        self._slot = self._by_terms.slot(Sym(w), self._lane)
        self._outer = Evaluation(kernel.names)
        tile = Sym(gb) if s.parts == 1 else self._outer.bind("tile", mod(Sym(gb), tiles))
        self._part = 0 if s.parts == 1 else self._outer.bind("part", floordiv(Sym(gb), tiles))
        batch = in_memory_order(parts.key, parts.batch)
        self._batch = self._outer.place(batch, tile) if batch else {}
        place = GroupPlace(Sym(w), self._lane, tile, tiles, self._batch, self._part)
        self._totals = RowTotals(kernel, s, parts, place)
        self._copied_keys = self._rows_of("keys", parts.key, parts.product.reduce, self._by_terms)
        self._copied_values = self._rows_of("values", parts.value, parts.columns, self._by_columns)
        self._operands = (
            (self._copied_keys, self._by_terms),
            (self._copied_values, self._by_columns),
        )

    def _rows_of(
        self, stem: str, factor: Scalar, along: tuple[LoopVar, ...], spread: RowLanes
    ) -> AsyncCopyRows:
        s = self._s
        count, name = s.keys * spread.own, self._fresh(stem)
        return AsyncCopyRows(
            self._kernel, factor, along, s.lanes, count, s.threads, s.buffers, name
        )

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        at, parts = self._outer, self._parts
        steps = ceildiv(parts.keys, self._by_terms.slots * self._s.keys)
        first, last = (floordiv((self._part + n) * steps, self._s.parts) for n in (0, 1))
        queries, running = self._queries(), self._totals.nothing(at)
        for ahead in range(self._s.buffers - 1):
            at.statements += self._copied(first + ahead, last)
        step, inner = Sym(self._fresh("k")), at.nested()
        inner.statements.append(WaitCopies(self._s.buffers - 2))
        inner.statements += self._copied(step + (self._s.buffers - 1), last)
        self._step(inner, step, queries, running)
        at.statements.append(For(step.name, first, last, tuple(inner.statements)))
        self._totals.finish(at, running)
        copied = (self._copied_keys.memory, self._copied_values.memory)
        shared = [Alloc(b) for b in (*copied, *self._totals.shared)]
        return self._kernel.function(
            self._launch.around(shared, at.statements), self._totals.working
        )

    # --- rows of operands

    def _queries(self) -> list[list[Expr]]:
        """Vectors of all rows, padded with zeros to the lanes' vectors."""
        spread, parts, at = self._by_terms, self._parts, self._outer
        found: list[list[Expr]] = []
        for row in range(parts.rows):
            line: list[Expr] = []
            for own in range(spread.own):
                vector, there = spread.vector(self._lane, own)
                one = at.beside(lanes_of(self._kernel, self._s.lanes))
                place = one.place_lanes(parts.product.reduce, vector)
                point = {**self._batch, parts.pair.row.name: row, **place}
                value = widen(one.value(parts.query, point), self._s.lanes)
                line.append(at.named("q", where(there, value, ZERO)))
            found.append(line)
        return found

    def _copied(self, step: Index, last: Index) -> list[Stmt]:
        """Copies of keys and values of a ``step`` before the ``last``, as a commit group."""
        at = self._outer.nested()
        buffer = at.bind("b", mod(step, self._s.buffers))
        places = [
            {**self._batch, self._parts.pair.key.name: at.bind("key", self._there(key)[0])}
            for key in self._keys(at, step)
        ]
        for rows, spread in self._operands:
            for number, place in enumerate(places):
                for own in range(spread.own):
                    vector, which = spread.vector(self._lane, own)[0], number * spread.own + own
                    copy = rows.copy(at, buffer, which, self._thread, place, vector)
                    at.statements.append(copy)
        return [*only_where((Condition(step, "<", last),), at.statements), CommitCopies()]

    def _vectors(
        self, at: Evaluation, step: Index, rows: AsyncCopyRows, spread: RowLanes
    ) -> list[list[Expr]]:
        """Vectors of the keys, or values, of a step."""
        buffer = at.bind("b", mod(step, self._s.buffers))
        found: list[list[Expr]] = []
        for number, key in enumerate(self._keys(at, step)):
            place = {**self._batch, self._parts.pair.key.name: self._there(key)[0]}
            found.append([
                rows.value(
                    at, buffer, number * spread.own + own, self._thread, place,
                    spread.vector(self._lane, own)[0],
                )
                for own in range(spread.own)
            ])  # fmt: skip
        return found

    def _keys(self, at: Evaluation, step: Index) -> list[Index]:
        """The keys of this thread's slot."""
        first = at.bind("key", step * (self._s.keys * self._by_terms.slots) + self._slot)
        return [first + number * self._by_terms.slots for number in range(self._s.keys)]

    def _there(self, key: Index) -> tuple[Index, tuple[Condition, ...]]:
        """A key, or the last one, and the conditions that the key is in range."""
        keys, step = self._parts.keys, self._by_terms.slots * self._s.keys
        if isinstance(keys, int) and keys % step == 0:
            return key, ()
        return minimum(key, keys - 1), (Condition(key, "<", keys),)

    # --- a step

    def _step(
        self, at: Evaluation, step: Sym, queries: Sequence[Sequence[Expr]], running: Running
    ) -> None:
        """The work on keys and values of a ``step``."""
        (keys, by_terms), (values, by_columns) = self._operands
        vectors, numbers = self._vectors(at, step, keys, by_terms), self._keys(at, step)
        own = [[self._dot(at, query, vector) for vector in vectors] for query in queries]
        scores = self._exchanged(at, [score for line in own for score in line])
        count = len(numbers)
        powers = [
            self._raise(at, row, numbers, scores[row * count : (row + 1) * count], running)
            for row in range(self._parts.rows)
        ]
        vectors = self._vectors(at, step, values, by_columns)
        for row, line in enumerate(powers):
            for number, power, vector in zip(numbers, line, vectors, strict=True):
                self._add(at, self._there(number)[1], power, vector, running.totals[row])

    def _dot(self, at: Evaluation, query: Sequence[Expr], key: Sequence[Expr]) -> Expr:
        """A lane's partial sum of a score."""
        total: Expr | None = None
        for own, (one, other) in enumerate(zip(query, key, strict=True)):
            product = ScalarCall("mul", (one, other), F32, other.lanes)
            whole = product if total is None else MulAdd(one, other, total)
            total = where(self._by_terms.vector(self._lane, own)[1], whole, total or ZERO)
        assert total is not None
        return at.named("own", Reduce("add", total) if total.lanes > 1 else total)

    def _exchanged(self, at: Evaluation, own: Sequence[Expr]) -> list[Expr]:
        """Sums of each of ``own`` over the lanes of a slot, in all of them; the shuffles of all are
        in flight together."""
        totals = [at.register("all", value) for value in own]
        others = [at.register("other", value) for value in own]
        across = self._by_terms.across // 2
        while across:
            at.statements += [Exchange(other.name, across) for other in others]
            for total, other in zip(totals, others, strict=True):
                at.statements.append(Assign(total.name, combine_two("sum", (total, other))))
            if across > 1:
                pairs = zip(totals, others, strict=True)
                at.statements += [Assign(other.name, total) for total, other in pairs]
            across //= 2
        return [*totals]

    def _raise(
        self,
        at: Evaluation,
        row: int,
        keys: Sequence[Index],
        products: Sequence[Expr],
        running: Running,
    ) -> list[Expr]:
        """Exponentials relative to the running maximum of a row; its sums so far are rescaled."""
        found = [
            self._score(at, row, key, score) for key, score in zip(keys, products, strict=True)
        ]
        largest = reduce(lambda a, b: combine_two("max", (a, b)), found)
        top = at.named("top", combine_two("max", (running.tops[row], largest)))
        change, *powers = self._totals.powers(at, top, (running.tops[row], *found))
        whole = reduce(lambda a, b: combine_two("sum", (a, b)), powers)
        more = MulAdd(running.sums[row], change, whole)
        at.statements.append(Assign(running.sums[row].name, more))
        self._totals.scale(at, running.totals[row], change)
        at.statements.append(Assign(running.tops[row].name, top))
        return powers

    def _score(self, at: Evaluation, row: int, key: Index, product: Expr) -> Expr:
        """The exponent; -inf where the key is out of range."""
        parts = self._parts
        place, there = self._there(key)
        point = {**self._batch, parts.pair.row.name: row, parts.pair.key.name: place}
        one = at.beside()
        made: dict[str, Expr] = {parts.product.output: product}
        for nest in parts.scores:
            made[nest.output] = one.named("v", one.value(nest.body, point, made))
        return at.named("x", where(there, one.value(parts.shifted, point, made), LEAST))

    def _add(
        self,
        at: Evaluation,
        there: Sequence[Condition],
        power: Expr,
        vector: Sequence[Expr],
        totals: Sequence[Var],
    ) -> None:
        """Adds a weighted value to the totals of a row."""
        made = {self._parts.pair.weight: power}
        weight = at.named("w", at.value(self._parts.weighted, {}, made))
        for total, value in zip(totals, vector, strict=True):
            more = MulAdd(widen(weight, total.lanes), value, total)
            at.statements.append(Assign(total.name, where(there, more, total)))
