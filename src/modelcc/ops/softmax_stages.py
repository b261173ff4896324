"""Stages of a softmax."""

from __future__ import annotations

from modelcc.ir.compute import Operand, StageBuilder, apply
from modelcc.ir.types import DType
from modelcc.ops.accumulate import accumulator, combined
from modelcc.ops.broadcast import with_axis


def exponentials(at: StageBuilder, x: Operand, axis: int) -> tuple[Operand, Operand, Operand]:
    """Maximum along ``axis``, ``exp(x - maximum)`` and its sum, in the accumulator of ``x``."""
    wide, kept, extent = accumulator(x.dtype), with_axis(x.shape, axis, 1), x.shape[axis : axis + 1]
    highest = combined(at, kept, extent, "max", lambda o, r: x[with_axis(o, axis, r[0])].cast(wide))
    powers = at.stage(
        x.shape, lambda o: apply("exp", x[o].cast(wide) - highest[with_axis(o, axis, 0)])
    )
    total = combined(at, kept, extent, "sum", lambda o, r: powers[with_axis(o, axis, r[0])])
    return highest, powers, total


def softmax_stages(at: StageBuilder, x: Operand, axis: int, dtype: DType) -> Operand:
    """Softmax along ``axis`` as maximum, exponential, sum and quotient, rounded to ``dtype``."""
    _, powers, total = exponentials(at, x, axis)
    return at.stage(x.shape, lambda o: (powers[o] / total[with_axis(o, axis, 0)]).cast(dtype))
