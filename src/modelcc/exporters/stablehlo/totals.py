"""Cumulative ops: for each element a masked reduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from modelcc.exporters.stablehlo.builder import Hlo
from modelcc.exporters.stablehlo.writing import Names, Types, Writing
from modelcc.ir.compute import Element, Operand, StageBuilder, apply, guard, select
from modelcc.ir.condition import Condition
from modelcc.ir.index import Index
from modelcc.ir.scalar import Combine, identity
from modelcc.ops.accumulate import accumulator
from modelcc.ops.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum

_COMBINES: Mapping[type, Combine] = MappingProxyType(
    {CumSum: "sum", CumProd: "prod", CumMax: "max", CumMin: "min"}
)
Running = CumSum | CumProd | CumMax | CumMin | CumLogSumExp
Point = tuple[Index, ...]


def totals(at: Writing, op: Running, inputs: Names, types: Types) -> tuple[Hlo, ...]:
    """Cumulative sums, products and extrema."""

    def compute(build: StageBuilder, x: Operand) -> Operand:
        wide = accumulator(x.dtype)
        total = _running(build, op, x, _COMBINES[type(op)], lambda o, source: x[source].cast(wide))
        return build.stage(x.shape, lambda o: total[o].cast(x.dtype))

    return at.computed(compute, inputs)


def log_totals(at: Writing, op: CumLogSumExp, inputs: Names, types: Types) -> tuple[Hlo, ...]:
    """Cumulative log-sum-exp, relative to the running maximum."""

    def compute(build: StageBuilder, x: Operand) -> Operand:
        wide = accumulator(x.dtype)
        high = _running(build, op, x, "max", lambda o, source: x[source].cast(wide))

        def power(o: Point, source: Point) -> Element:
            value = x[source].cast(wide)
            same = apply("eq", value, high[o])  # the difference of infinities is NaN
            return select(same, 1.0, apply("exp", value - high[o]))

        total = _running(build, op, x, "sum", power)
        return build.stage(x.shape, lambda o: (high[o] + apply("log", total[o])).cast(x.dtype))

    return at.computed(compute, inputs)


def _running(
    build: StageBuilder,
    op: Running,
    x: Operand,
    combine: Combine,
    value: Callable[[Point, Point], Element],
) -> Operand:
    k = op.axis

    def body(o: Point, r: Point) -> Element:
        near, far = (o[k], r[0]) if op.reverse else (r[0], o[k])
        found = value(o, (*o[:k], r[0], *o[k + 1 :]))
        counts = Condition(near, "<" if op.exclusive else "<=", far)
        return guard((counts,), found, identity(combine, found.dtype))

    return build.reduce(x.shape, (x.shape[k],), combine, body)
