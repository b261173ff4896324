"""Attention of new tokens (decoding): back-to-back contractions with few rows.

grid b; thread w (warps), l (lanes of them)
  first keys to registers; queries of all rows to shared memory; barrier
  for each step: lanes load a key together, multiply it with all queries, and exchange sums
    scores[row, key] = these
  first values to registers; barrier
  for each row of a warp: the epilogue of scores and the weights of its keys, in registers, then to
    the memory of the scores; barrier
  for each step: lanes load a value together, and add it to all rows, weighted
  sums[w, …] = these; barrier; threads add them up, and compute the epilogue

Keys and values are loaded once, as vectors.  Long rows of keys are split into parts, each with its
own group (:mod:`modelcc.targets.gpu.passes.split_keys`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import lcm

from modelcc.ir.index import Index, Sym, floordiv, minimum, mod
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Load,
    MulAdd,
    Predicate,
    Reduce,
    ScalarCall,
    Select,
    Store,
    Var,
)
from modelcc.ir.scalar import identity
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Condition, Scalar
from modelcc.ir.types import F32
from modelcc.schedule.expression import accumulate
from modelcc.schedule.group_schedule import GroupDecode
from modelcc.schedule.lanes import widen
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.decode_nests import DecodeParts, find_decode, in_memory_order
from modelcc.targets.gpu.attention.row_lanes import RowLanes
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    Point,
    extent_of,
    only_where,
)
from modelcc.targets.gpu.rows.reduction import is_power_of_two, lanes_of
from modelcc.targets.gpu.rows.team import combine_two, exchanged

MOST_SUMS = 32
"""Registers of a thread for sums of several rows: for more rows, values are loaded again."""


def lower_decode(kernel: GroupKernel, schedule: GroupDecode) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no attention of few rows, or keys
    and values are no whole vectors."""
    s = schedule
    if not (is_power_of_two(s.warp) and s.warp > 1) or s.threads % s.warp or s.keys < 1:
        raise ScheduleError("groups are warps of a power of two of threads, which read keys")
    if kernel.checks:
        raise ScheduleError("indices of keys are known to be in their bounds")
    parts = find_decode(kernel)
    if s.lanes not in (1, 2, 4, 8) or not parts.takes_lanes(s.lanes):
        raise ScheduleError("keys and values are no whole vectors: lanes")
    return _DecodeThreads(kernel, s, parts).function()


@dataclass
class _KeyPlace:
    """A key of a row, the conditions that it is in range (``there``), and its values so far."""

    key: Index
    there: tuple[Condition, ...]
    evaluation: Evaluation
    point: Point
    values: dict[str, Expr] = field(default_factory=dict[str, Expr])


@dataclass(frozen=True)
class _Rows:
    """Vectors of ``keys``, or of their values, as loaded by a thread: converted where they are
    used, so that no thread waits for them earlier."""

    vectors: Sequence[Sequence[Expr]]
    keys: Sequence[Index]

    def named(self, at: Evaluation) -> list[list[Expr]]:
        return [[at.named("e", vector) for vector in row] for row in self.vectors]


class _DecodeThreads:
    def __init__(self, kernel: GroupKernel, s: GroupDecode, parts: DecodeParts) -> None:
        self._kernel, self._s, self._parts = kernel, s, parts
        fresh = self._fresh = kernel.names.fresh
        gb, w, lane = fresh("gb"), fresh("w"), fresh("t")
        loops = ((w, s.threads // s.warp), (lane, s.warp))
        self._launch = Launching(((gb, extent_of(parts.batch)),), loops, kernel.dims)
        self._warp, self._lane = Sym(w), Sym(lane)
        self._thread = self._warp * s.warp + self._lane
        self._outer = Evaluation(kernel.names)
        batch = in_memory_order(parts.key, parts.batch)
        self._batch = self._outer.place(batch, Sym(gb)) if batch else {}
        self._by_terms, self._by_columns = RowLanes.of(parts.depth, s), RowLanes.of(parts.width, s)
        most = lcm(self._by_terms.slots * s.keys, self._by_columns.slots * s.keys, s.warp)
        self._keys = -(-parts.keys // most) * most
        """Keys, padded to whole steps; weights of padding are 0."""
        self._at_once = max(1, MOST_SUMS // (self._by_columns.own * s.lanes))
        held = min(self._at_once, parts.rows)
        self._queries = self._shared("queries", parts.rows * self._by_terms.pitch)
        self._scores = self._shared("scores", parts.rows * self._keys)
        self._sums = self._shared("sums", self._by_columns.slots * held * self._by_columns.pitch)

    def _shared(self, stem: str, size: int) -> Buffer:
        return Buffer(self._fresh(stem), F32, size, "shared")

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        body, parts = self._outer.statements, self._parts
        keys = self._read(self._outer, self._by_terms, 0, parts.key, parts.product.reduce)
        self._put_queries()
        body.append(Barrier())
        self._multiply(keys)
        values = self._read(self._outer, self._by_columns, 0, parts.value, parts.columns)
        body.append(Barrier())
        self._weigh()
        for first in range(0, self._parts.rows, self._at_once):
            count = min(self._at_once, self._parts.rows - first)
            body.append(Barrier())
            self._add(first, count, values if first == 0 else None)
            body.append(Barrier())
            self._finish(first, count)
        shared = [Alloc(b) for b in (self._queries, self._scores, self._sums)]
        return self._kernel.function(self._launch.around(shared, body))

    # --- scores

    def _put_queries(self) -> None:
        """Rows of queries, padded with zeros to the lanes' vectors."""
        parts, pitch, inner = self._parts, self._by_terms.pitch, self._outer.nested()
        name = self._fresh("i")
        row, term = floordiv(Sym(name), pitch), mod(Sym(name), pitch)
        value = inner.register("query", Const(0, F32))
        found = inner.nested()
        point = {**self._batch, parts.pair.row.name: row, **found.place(parts.product.reduce, term)}
        found.statements.append(Assign(value.name, found.value(parts.query, point)))
        there = () if pitch == parts.depth else (Condition(term, "<", parts.depth),)
        inner.statements += only_where(there, found.statements)
        inner.statements.append(Store(self._queries.name, Sym(name), value))
        self._each(name, parts.rows * pitch, inner)

    def _each(self, name: str, count: int, inner: Evaluation) -> None:
        """``inner`` for each of ``count`` elements, by all threads."""
        body = tuple(inner.statements)
        self._outer.statements.append(For(name, self._thread, count, body, self._s.threads))

    def _multiply(self, ahead: _Rows) -> None:
        """Products of keys and queries; the first keys are already loaded."""
        spread, parts = self._by_terms, self._parts
        self._scores_of(self._outer, ahead)
        inner, step = self._outer.nested(), self._fresh("k")
        self._scores_of(
            inner, self._read(inner, spread, Sym(step), parts.key, parts.product.reduce)
        )
        self._steps(step, spread, inner, 1)

    def _scores_of(self, at: Evaluation, read: _Rows) -> None:
        """Products of the keys of a step and all queries."""
        spread, row = self._by_terms, Sym(self._fresh("r"))
        vectors = read.named(at)
        line = at.nested()
        queries = [
            line.named("q", Load(self._queries.name, self._at(row, spread, o), F32, self._s.lanes))
            for o in range(spread.own)
        ]
        for key, vector in zip(read.keys, vectors, strict=True):
            total = self._dot(queries, vector)
            whole = exchanged(line, "sum", total, spread.across)
            store = Store(self._scores.name, row * self._keys + key, whole)
            first = Condition(self._within(spread), "==", 0)
            line.statements += only_where((first,), (store,))
        at.statements.append(For(row.name, 0, self._parts.rows, tuple(line.statements)))

    def _steps(self, step: str, spread: RowLanes, inner: Evaluation, first: int) -> None:
        """``inner`` for the steps from the ``first`` on."""
        count = self._keys // (spread.slots * self._s.keys)
        if first < count:
            self._outer.statements.append(For(step, first, count, tuple(inner.statements)))

    def _within(self, spread: RowLanes) -> Index:
        """The index of a lane among those that load a row together."""
        return mod(self._lane, spread.across)

    def _at(self, row: Index, spread: RowLanes, number: int) -> Index:
        vector = self._within(spread) + number * spread.across
        return row * spread.pitch + vector * self._s.lanes

    def _slot(self, spread: RowLanes) -> Index:
        return self._warp * (self._s.warp // spread.across) + floordiv(self._lane, spread.across)

    def _dot(self, queries: Sequence[Expr], read: Sequence[Expr]) -> Expr:
        total: Expr | None = None
        for query, key in zip(queries, read, strict=True):
            product = ScalarCall("mul", (query, key), F32, key.lanes)
            total = product if total is None else MulAdd(query, key, total)
        assert total is not None
        return Reduce("add", total) if total.lanes > 1 else total

    def _read(
        self,
        at: Evaluation,
        spread: RowLanes,
        step: Index,
        factor: Scalar,
        along: Sequence[LoopVar],
    ) -> _Rows:
        """This thread's vectors of keys or values of a step; beyond the last key, that one is
        loaded."""
        lanes, found, keys = (
            lanes_of(self._kernel, self._s.lanes),
            list[list[Expr]](),
            list[Index](),
        )
        slot = at.bind("slot", self._slot(spread))
        first = step * self._s.keys
        for number in range(self._s.keys):
            key = at.bind("key", (first + number) * spread.slots + slot)
            keys.append(key)
            place = self._last(key)
            place = place if place is key else at.bind("key", place)
            row: list[Expr] = []
            for own in range(spread.own):
                vector = self._within(spread) + own * spread.across
                if spread.own * spread.across > spread.vectors:
                    vector = minimum(vector, spread.vectors - 1)
                one = at.beside(lanes)
                point = {**self._batch, **one.place_lanes(along, vector)}
                point[self._parts.pair.key.name] = place
                row.append(widen(one.value(factor, point), self._s.lanes))
            found.append(row)
        return _Rows(found, keys)

    def _last(self, key: Index) -> Index:
        keys = self._parts.keys
        return key if self._keys == keys else minimum(key, keys - 1)

    # --- weights

    def _weigh(self) -> None:
        """Rows of scores become weights, a row per warp at a time."""
        parts, warps, row = self._parts, self._s.threads // self._s.warp, Sym(self._fresh("r"))
        inner = self._outer.nested()
        point = {**self._batch, parts.pair.row.name: row}
        places = [self._place(inner, row, n, point) for n in range(self._keys // self._s.warp)]
        values: dict[str, Expr] = {}
        nests = {nest.output: nest for nest in (*parts.scores, *parts.weights)}
        for nest in nests.values():
            if nest.reduce:
                values[nest.output] = self._reduced(inner, nest, places, values, nests)
            elif parts.pair.key.name not in {v.name for v in nest.parallel}:
                values[nest.output] = inner.named("s", inner.value(nest.body, point, values))
            if nest.output in self._kernel.stored:
                stored = inner.nested()
                stored.store(nest, point, values[nest.output])
                first = Condition(self._lane, "==", 0)
                inner.statements += only_where((first,), stored.statements)
        for place in places:
            weight = self._value_of(parts.weight, place, values, nests)
            if place.there:
                weight = Select(Predicate(place.there), weight, Const(0, F32))
            offset = row * self._keys + place.key
            inner.statements.append(Store(self._scores.name, offset, weight))
        body = tuple(inner.statements)
        self._outer.statements.append(For(row.name, self._warp, parts.rows, body, warps))

    def _place(self, inner: Evaluation, row: Index, number: int, point: Point) -> _KeyPlace:
        """Key ``number`` of a lane."""
        key = self._lane + number * self._s.warp
        beyond = (number + 1) * self._s.warp > self._parts.keys
        there = (Condition(key, "<", self._parts.keys),) if beyond else ()
        at = minimum(key, self._parts.keys - 1) if beyond else key
        score = Load(self._scores.name, row * self._keys + key, F32)
        place = _KeyPlace(key, there, inner.beside(), {**point, self._parts.pair.key.name: at})
        place.values[self._parts.product.output] = inner.named("score", score)
        return place

    def _value_of(
        self, name: str, place: _KeyPlace, values: Mapping[str, Expr], nests: Mapping[str, Nest]
    ) -> Expr:
        """The value at a key of the row of the stage that makes ``name``."""
        if name in values:
            return values[name]
        if name not in place.values:
            value = self._body_of(nests[name], place, values, nests)
            place.values[name] = place.evaluation.named("v", value)
        return place.values[name]

    def _body_of(
        self, nest: Nest, place: _KeyPlace, values: Mapping[str, Expr], nests: Mapping[str, Nest]
    ) -> Expr:
        for read in reads(nest.body):
            if read.tensor in nests:
                self._value_of(read.tensor, place, values, nests)
        return place.evaluation.value(nest.body, place.point, {**values, **place.values})

    def _reduced(
        self,
        inner: Evaluation,
        nest: Nest,
        places: Sequence[_KeyPlace],
        values: Mapping[str, Expr],
        nests: Mapping[str, Nest],
    ) -> Expr:
        """The reduction over all keys of a row, in all lanes of a warp."""
        assert nest.combine is not None
        own = inner.register("own", inner.neutral(nest))
        neutral = Const(identity(nest.combine, F32), F32)
        for place in places:
            value = self._body_of(nest, place, values, nests)
            if place.there:
                value = Select(Predicate(place.there), value, neutral)
            inner.statements.append(accumulate(nest.combine, own.name, value, 1))
        return inner.named("s", exchanged(inner, nest.combine, own, self._s.warp))

    # --- sums

    def _add(self, first: int, count: int, ahead: _Rows | None) -> None:
        """Weighted values of ``count`` rows from ``first`` on, summed by each thread over its keys;
        those of the first step are loaded ``ahead``, if given."""
        spread, parts, outer, lanes = self._by_columns, self._parts, self._outer, self._s.lanes
        zero = widen(Const(0, F32), lanes)
        totals = [[outer.register("total", zero) for _ in range(spread.own)] for _ in range(count)]
        if ahead is not None:
            self._weighted(outer, first, totals, ahead)
        inner, step = outer.nested(), self._fresh("k")
        read = self._read(inner, spread, Sym(step), parts.value, parts.columns)
        self._weighted(inner, first, totals, read)
        self._steps(step, spread, inner, 0 if ahead is None else 1)
        self._share(totals)

    def _weighted(
        self, at: Evaluation, first: int, totals: Sequence[Sequence[Var]], read: _Rows
    ) -> None:
        """Adds the weighted values of a step to the ``totals`` of rows from ``first`` on."""
        parts, lanes = self._parts, self._s.lanes
        for key, vector in zip(read.keys, read.named(at), strict=True):
            there = () if self._keys == parts.keys else (Condition(key, "<", parts.keys),)
            for number, line in enumerate(totals):
                place = (first + number) * self._keys + key
                made = {parts.weight: Load(self._scores.name, place, F32)}
                weight = widen(at.named("w", at.value(parts.weighted, {}, made)), lanes)
                for total, value in zip(line, vector, strict=True):
                    more: Expr = MulAdd(weight, value, total)
                    if there:
                        more = Select(widen(Predicate(there), lanes), more, total)
                    at.statements.append(Assign(total.name, more))

    def _share(self, totals: Sequence[Sequence[Var]]) -> None:
        spread, count = self._by_columns, len(totals)
        for number, line in enumerate(totals):
            for own, total in enumerate(line):
                row = self._slot(spread) * count + number
                self._outer.statements.append(
                    Store(self._sums.name, self._at(row, spread, own), total)
                )

    def _finish(self, first: int, count: int) -> None:
        """Sums of all threads become results."""
        spread, parts, inner, name = (
            self._by_columns,
            self._parts,
            self._outer.nested(),
            self._fresh("i"),
        )
        row, column = floordiv(Sym(name), parts.width), mod(Sym(name), parts.width)
        loads: list[Expr] = [
            Load(self._sums.name, (slot * count + row) * spread.pitch + column, F32)
            for slot in range(spread.slots)
        ]
        whole = inner.named("whole", reduce(lambda a, b: combine_two("sum", (a, b)), loads))
        made = {parts.total.output: whole}
        point = {
            **self._batch,
            parts.pair.row.name: first + row,
            **inner.place(parts.columns, column),
        }
        for nest in parts.results:
            made[nest.output] = inner.named("v", inner.value(nest.body, point, made))
        final = (parts.total, *parts.results)[-1]
        inner.store(final, point, made[final.output])
        self._each(name, count * parts.width, inner)
