"""Where the greatest elements of windows stand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, guard, index_value, select
from modelcc.ir.index import product
from modelcc.ir.op import Op
from modelcc.ir.scalar import identity
from modelcc.ir.types import I64, Array, TensorType, dtype_of
from modelcc.ops.accumulate import Point, combined
from modelcc.ops.pool import MaxPool, Pool
from modelcc.ops.samples import sample
from modelcc.ops.window import row_major, taps


@dataclass(frozen=True)
class MaxPoolIndices(Pool):
    """The position of the first greatest element of each window in the flattened x.

    ``column_major`` numbers the last two axes, rows and columns, the other way round.
    """

    column_major: bool = False
    samples = (
        *MaxPool.samples[:10],
        sample(*MaxPool.samples[0].operands, **MaxPool.samples[0].attributes, column_major=True),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        (pooled,) = super().infer(x)
        return (TensorType(pooled.shape, I64),)

    def reference(self, x: Array) -> Array:
        values = np.stack([view for _, view in taps(x, self.window, identity("max", dtype_of(x)))])
        numbers = np.arange(x.size).reshape(x.shape)
        if self.column_major:
            numbers = np.moveaxis(
                np.arange(x.size).reshape(*x.shape[:-2], *x.shape[:-3:-1]), -1, -2
            )
        places = np.stack([view for _, view in taps(numbers, self.window, -1)])
        first = np.argmax(np.where(places >= 0, values, -np.inf), 0)
        return np.take_along_axis(places, first[None], 0)[0]

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)
        best = self.greatest(at, x, result.shape)
        never = index_value(product(x.shape), I64)

        def place(o: Point, r: Point) -> Element:
            at_tap = self.window.places(o[2:], r)
            number = index_value(row_major((*o[:2], *at_tap), x.shape), I64)
            chosen = apply("eq", x[(*o[:2], *at_tap)], best[o])
            if x.dtype.is_float:
                chosen = apply("or", chosen, apply("isnan", best[o]))
            found = select(chosen, number, never)
            return guard(self.window.conditions(at_tap, x.shape[2:]), found, never)

        first = combined(at, result.shape, self.kernel, "min", place)
        if not self.column_major:
            return first
        rows, columns = (index_value(e, I64) for e in x.shape[-2:])

        def turned(o: Point) -> Element:
            number = first[o]
            row = apply("mod", apply("div", number, columns), rows)
            column = apply("mod", number, columns)
            return number - row * columns - column + column * rows + row

        return at.stage(result.shape, turned)


OPS: tuple[type[Op], ...] = (MaxPoolIndices,)
