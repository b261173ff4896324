"""The epilogue of attention's totals, of which a thread holds two rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelcc.ir.index import Index, Sym, coefficient, floordiv
from modelcc.ir.loop import Buffer, Const, Expr, Load, Predicate, ScalarCall, Select
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Apply, Condition, Guard, Read
from modelcc.ir.types import F32
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.lanes import Lanes, widen
from modelcc.targets.gpu.attention.attention_parts import TOTAL, AttentionParts, store_of_rows
from modelcc.targets.gpu.evaluation import Evaluation, Point, only_where
from modelcc.targets.gpu.products.fragment_elements import BOTH, SIDE, each_side, own, pair
from modelcc.targets.isa.nvidia_wgmma import own_column


class AttentionResults:
    """Results of a ``batch`` in a thread ``lane`` of 128, made of ``totals``; with ``halves``,
    results have so few bits that a row is multiplied by one reciprocal of its sum."""

    def __init__(
        self,
        names: FreshNames,
        parts: AttentionParts,
        batch: Mapping[str, Index],
        totals: Buffer,
        lane: Sym,
        halves: bool,
    ) -> None:
        self._names, self._parts, self._batch = names, parts, batch
        self._totals, self._lane, self._divides_once = totals, lane, halves

    def store(
        self, outer: Evaluation, rows: Sequence[Index], wholes: Sequence[Expr], tops: Sequence[Expr]
    ) -> None:
        """Stores the results of a thread's two ``rows``, if they exist; ``wholes`` are the sums of
        their exponentials, ``tops`` their maximum scores."""
        parts = self._parts
        first = parts.results[0]
        for row in BOTH:
            number = rows[row]
            there = (Condition(number, "<", parts.pair.row.extent),)
            side, every = each_side(self._names, parts.width)
            point = {**self._batch, parts.pair.row.name: number}
            share = self._share(outer, {n.output: wholes[row] for n in parts.sums})
            lanes = Lanes(self._names.fresh("c"), len(BOTH)) if self._stores_pairs else None
            inner = outer.nested(lanes)
            for column in (0,) if lanes else BOTH:
                if lanes:
                    total = pair(self._totals, self._lane, side, row)
                else:
                    total = Load(self._totals.name, own(self._lane, side, row, column), F32)
                made: dict[str, Expr] = {
                    n.output: widen(wholes[row], total.lanes) for n in parts.sums
                }
                if share is not None:
                    factors = total, widen(share, total.lanes)
                    given = ScalarCall("mul", factors, F32, total.lanes)
                    made[first.output] = inner.named("v", self._of_some(given))
                self._result(inner, point, {**made, TOTAL: total}, side, column)
            line = [every(inner.statements)]
            if parts.of_rows:
                cell, sums = outer.nested(), {n.output: wholes[row] for n in parts.sums}
                point = {**self._batch, parts.pair.row.name: number}
                store_of_rows(cell, parts, point, tops[row], sums)
                of_one = (Condition(own_column(self._lane), "==", 0),)
                line += only_where(of_one, cell.statements)
            outer.statements += only_where(there, line)

    @property
    def _stores_pairs(self) -> bool:
        """Whether a thread's two neighbours of a row are contiguous results, made of nothing but
        the totals."""
        parts = self._parts
        last, results = parts.second.columns[-1], parts.results
        made = {TOTAL, *(n.output for n in (*parts.sums, *results))}
        return (
            isinstance(last.extent, int)
            and last.extent % len(BOTH) == 0
            and coefficient(results[-1].store, last.name) == 1
            and not isinstance(results[0].body, Guard)
            and all(read.tensor in made for nest in results for read in reads(nest.body))
        )

    def _of_some(self, value: Expr) -> Expr:
        """``value``, or 0 if there are no keys, of which a block still computes sums."""
        body = self._parts.results[0].body
        if not isinstance(body, Guard):
            return value
        return Select(Predicate(body.conditions), value, Const(0.0, F32))

    def _share(self, at: Evaluation, sums: Mapping[str, Expr]) -> Expr | None:
        """The reciprocal that a row's totals are multiplied by instead of a division each, where
        results have too few bits for a difference; None if they are not divided by a sum."""
        body = self._parts.results[0].body
        match body.inside if isinstance(body, Guard) else body:
            case Apply(function="div", args=(Read(tensor=total), Read(tensor=name))) if (
                total == TOTAL and name in sums and self._divides_once
            ):
                share = ScalarCall("div", (Const(1.0, F32), sums[name]), F32)
                return at.named("share", share)
            case _:
                return None

    def _result(
        self, at: Evaluation, point: Point, made: dict[str, Expr], side: Sym, column: int
    ) -> None:
        """One of a thread's results; intermediate values are added to ``made``."""
        parts = self._parts
        columns = parts.second.columns
        if at.lanes is None:
            place = SIDE * side + own_column(self._lane) + column
            point = {**point, **at.place(columns, place)}
        else:
            vector = floordiv(SIDE * side + own_column(self._lane), at.lanes.count)
            point = {**point, **at.place_lanes(columns, vector)}
        for nest in parts.results:
            if nest.output not in made:
                made[nest.output] = at.named("v", at.value(nest.body, point, made))
        at.store(parts.results[-1], point, made[parts.results[-1].output])
