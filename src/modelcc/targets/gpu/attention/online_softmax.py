"""Online softmax of rows whose keys are split over several lanes, and several groups: the running
maximum, the sum of exponentials relative to it, and totals of values weighted by these.

  maxima to shared memory; barrier
  sums and totals relative to the overall maximum to shared memory; barrier
  all of them added up: results, or the part's own to memory
  the last group of a batch reads those of all parts, and does the same again
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from modelcc.ir.index import Index, Sym, floordiv, minimum, mod
from modelcc.ir.loop import (
    Arrive,
    Assign,
    Barrier,
    Buffer,
    Const,
    Expr,
    For,
    Load,
    MulAdd,
    Predicate,
    ScalarCall,
    Select,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.tensor import Condition
from modelcc.ir.types import BF16, F16, F32, I32
from modelcc.schedule.group_schedule import FlashDecoding
from modelcc.schedule.lanes import widen
from modelcc.targets.gpu.attention.attention_parts import TOTAL, binary_power, powers_of
from modelcc.targets.gpu.attention.flash_decoding_nests import FlashDecodingNests
from modelcc.targets.gpu.attention.row_lanes import RowLanes
from modelcc.targets.gpu.evaluation import Evaluation, GroupKernel, Point, only_where
from modelcc.targets.gpu.rows.team import combine_two

LEAST = Const(float("-inf"), F32)
ZERO = Const(0.0, F32)


@dataclass(frozen=True)
class Running:
    """Registers of a lane's statistics of each row: the running maximum, the sum relative to it,
    and totals by vectors."""

    tops: tuple[Var, ...]
    sums: tuple[Var, ...]
    totals: tuple[tuple[Var, ...], ...]


@dataclass(frozen=True)
class GroupPlace:
    """The position of a thread: its ``warp``, and its ``lane`` of it; and of its group: the
    ``tile`` of ``tiles``, its point of the batch, and the ``part`` of the keys."""

    warp: Index
    lane: Index
    tile: Index
    tiles: Index
    batch: Point
    part: Index


class RowTotals:
    """Combines a kernel's rows by a schedule, for the thread at a ``place``."""

    def __init__(
        self, kernel: GroupKernel, s: FlashDecoding, parts: FlashDecodingNests, place: GroupPlace
    ) -> None:
        self._names, self._s, self._parts, self._at = kernel.names, s, parts, place
        fresh, spread = kernel.names.fresh, RowLanes.of(parts.width, s)
        self._spread = spread
        self._slot = spread.slot(place.warp, place.lane)
        self._thread = place.warp * s.warp + place.lane
        self._tops, self._sums, self._totals = (
            Buffer(fresh(stem), F32, spread.slots * parts.rows * size, "shared")
            for stem, size in (("tops", 1), ("sums", 1), ("totals", spread.pitch))
        )
        count = place.tiles * s.parts * parts.rows
        self._kept_totals, self._kept_sums, self._kept_tops = (
            Buffer(fresh(stem), F32, count * size)
            for stem, size in (("parts", parts.width), ("sum", 1), ("top", 1))
        )
        self._counters = Buffer(fresh("arrivals"), I32, place.tiles)

    @property
    def shared(self) -> tuple[Buffer, ...]:
        """Shared memory of a group."""
        return self._tops, self._sums, self._totals

    @property
    def working(self) -> tuple[Buffer, ...]:
        """Buffers that the function needs besides operands and results."""
        kept = (self._kept_totals, self._kept_sums, self._kept_tops, self._counters)
        return kept if self._s.parts > 1 else ()

    def nothing(self, at: Evaluation) -> Running:
        """Statistics before the first key."""
        rows, own = range(self._parts.rows), range(self._spread.own)
        zero = widen(ZERO, self._s.lanes)
        return Running(
            tuple(at.register("top", LEAST) for _ in rows),
            tuple(at.register("sum", ZERO) for _ in rows),
            tuple(tuple(at.register("total", zero) for _ in own) for _ in rows),
        )

    def powers(self, at: Evaluation, top: Expr, values: Sequence[Expr]) -> list[Expr]:
        """Exponentials of ``values`` relative to a row's maximum, as exact as 16-bit operands
        need."""
        if not self._parts.operands <= {F16, BF16}:
            return powers_of(at, top, values)
        return powers_of(at, top, values, binary_power(1.0))

    def scale(self, at: Evaluation, totals: Sequence[Var], change: Expr) -> None:
        """``totals`` times a ``change``."""
        for total in totals:
            factors = (total, widen(change, total.lanes))
            at.statements.append(Assign(total.name, ScalarCall("mul", factors, F32, total.lanes)))

    def finish(self, at: Evaluation, running: Running) -> None:
        """The statistics of slots become results, through global memory if there are parts."""
        tops = self._together(at, running)
        if self._s.parts == 1:
            at.statements.append(self._results())
            return
        at.statements += [self._keep_totals(), *self._keep_rows(tops)]
        inner = at.nested()
        self._together(inner, self._of_parts(inner))
        inner.statements.append(self._results())
        body = tuple(inner.statements)
        at.statements.append(Arrive(self._counters.name, self._at.tile, self._s.parts, body))

    def _together(self, at: Evaluation, running: Running) -> list[Expr]:
        """Sums and totals of slots relative to the overall maximum, to shared memory; the maximum
        of each row."""
        rows, spread = self._parts.rows, self._spread
        first, place = (Condition(self._spread.within(self._at.lane), "==", 0),), self._slot * rows
        tops = [Store(self._tops.name, place + r, top) for r, top in enumerate(running.tops)]
        at.statements += [*only_where(first, tops), Barrier()]
        found: list[Expr] = []
        for row, top in enumerate(running.tops):
            all_ = [Load(self._tops.name, n * rows + row, F32) for n in range(spread.slots)]
            found.append(at.named("top", reduce(lambda a, b: combine_two("max", (a, b)), all_)))
            (change,) = self.powers(at, found[row], (top,))
            self.scale(at, running.totals[row], change)
            for own, total in enumerate(running.totals[row]):
                vector = (self._spread.within(self._at.lane) + own * spread.across) * self._s.lanes
                offset = (place + row) * spread.pitch + vector
                at.statements.append(Store(self._totals.name, offset, total))
            scaled = ScalarCall("mul", (running.sums[row], change), F32)
            at.statements += only_where(first, [Store(self._sums.name, place + row, scaled)])
        at.statements.append(Barrier())
        return found

    def _whole(self, buffer: Buffer, row: Index, column: Index, pitch: int) -> Expr:
        """The sum over slots."""
        rows = self._parts.rows
        places = ((slot * rows + row) * pitch + column for slot in range(self._spread.slots))
        loads: list[Expr] = [Load(buffer.name, place, F32) for place in places]
        return reduce(lambda a, b: combine_two("sum", (a, b)), loads)

    def _each(self, body: Callable[[Evaluation, Index, Index], None]) -> Stmt:
        """``body`` for every row and column, by all threads."""
        inner, name, width = Evaluation(self._names), self._names.fresh("i"), self._parts.width
        body(inner, floordiv(Sym(name), width), mod(Sym(name), width))
        count = self._parts.rows * width
        return For(name, self._thread, count, tuple(inner.statements), self._s.threads)

    def _results(self) -> Stmt:
        """The epilogue of sums and totals."""
        parts = self._parts

        def result(at: Evaluation, row: Index, column: Index) -> None:
            total = self._whole(self._totals, row, column, self._spread.pitch)
            whole = at.named("whole", self._whole(self._sums, row, 0, 1))
            made: dict[str, Expr] = {TOTAL: at.named("whole", total)}
            made |= dict.fromkeys(parts.sums, whole)
            point = {**self._at.batch, parts.pair.row.name: row, **at.place(parts.columns, column)}
            for nest in parts.results:
                made[nest.output] = at.named("v", at.value(nest.body, point, made))
            at.store(parts.results[-1], point, made[parts.results[-1].output])

        return self._each(result)

    def _place(self, part: Index, row: Index) -> Index:
        """The index of a row of a part in memory."""
        return (self._at.tile * self._s.parts + part) * self._parts.rows + row

    def _keep_totals(self) -> Stmt:
        """Totals of this part, to memory."""

        def kept(at: Evaluation, row: Index, column: Index) -> None:
            total = self._whole(self._totals, row, column, self._spread.pitch)
            place = self._place(self._at.part, row) * self._parts.width + column
            at.statements.append(Store(self._kept_totals.name, place, total))

        return self._each(kept)

    def _keep_rows(self, tops: Sequence[Expr]) -> list[Stmt]:
        """Maxima and sums of this part, stored by one thread."""
        inner = list[Stmt]()
        for row, top in enumerate(tops):
            place = self._place(self._at.part, row)
            inner.append(Store(self._kept_sums.name, place, self._whole(self._sums, row, 0, 1)))
            inner.append(Store(self._kept_tops.name, place, top))
        return only_where((Condition(self._thread, "==", 0),), inner)

    def _of_parts(self, at: Evaluation) -> Running:
        """The statistics of this thread's slot over all parts, strided by the number of slots."""
        found, slots = self.nothing(at), self._spread.slots
        numbers = [self._slot + n * slots for n in range(-(-self._s.parts // slots))]
        for row in range(self._parts.rows):
            read = [self._part_of(at, number, row) for number in numbers]
            tops = [top for top, *_ in read]
            most = at.named("top", reduce(lambda a, b: combine_two("max", (a, b)), tops))
            at.statements.append(Assign(found.tops[row].name, most))
            for change, (_, own, vectors) in zip(self.powers(at, most, tops), read, strict=True):
                more = MulAdd(own, change, found.sums[row])
                at.statements.append(Assign(found.sums[row].name, more))
                for total, vector in zip(found.totals[row], vectors, strict=True):
                    weighted = MulAdd(vector, widen(change, vector.lanes), total)
                    at.statements.append(Assign(total.name, weighted))
        return found

    def _part_of(self, at: Evaluation, part: Index, row: int) -> tuple[Expr, Expr, list[Expr]]:
        """The maximum, the sum and this lane's totals of a row of a part; neutral ones if there is
        no such part."""
        slots, parts = self._spread.slots, self._s.parts
        beyond = parts % slots != 0
        there = (Condition(part, "<", parts),) if beyond else ()
        place = self._place(minimum(part, parts - 1) if beyond else part, row)
        top = at.named("p", Load(self._kept_tops.name, place, F32))
        own = at.named("p", Load(self._kept_sums.name, place, F32))
        vectors: list[Expr] = []
        for own_vector in range(self._spread.own):
            vector = self._spread.vector(self._at.lane, own_vector)[0]
            offset = place * self._parts.width + vector * self._s.lanes
            vectors.append(at.named("p", Load(self._kept_totals.name, offset, F32, self._s.lanes)))
        return (
            at.named("p", where(there, top, LEAST)),
            at.named("p", where(there, own, ZERO)),
            [at.named("p", where(there, vector, ZERO)) for vector in vectors],
        )


def where(conditions: Sequence[Condition], value: Expr, other: Expr) -> Expr:
    """``value`` where all ``conditions`` hold, else ``other``."""
    if not conditions:
        return value
    there = widen(Predicate(tuple(conditions)), value.lanes)
    return Select(there, value, widen(other, value.lanes))
