"""Floating-point operands computed at run time, as ratios of index symbols.

The graph itself computes the fraction that each number means, with small tensors: the one with the
smallest denominator within f32 precision, as :func:`modelcc.ops.coordinates.rational` does for
constants.
"""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.ratio import Ratio
from modelcc.frontends.kit.vectors import Vector
from modelcc.ir.index import Expr, Index, Range
from modelcc.ir.types import F64, I64
from modelcc.ops import elementwise as ew
from modelcc.ops import reduce as rd
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.coordinates import Scale
from modelcc.ops.views import reshaped

LARGEST = 4096
"""Denominators that are tried; if none fits, it is ``FALLBACK``."""
FALLBACK = 1 << 20
PRECISION = 20_000_000


def scales_of(call: Conversion, i: int, what: str, known: Range) -> tuple[Scale, ...]:
    """Operand ``i`` as numbers if constant, else as ratios.

    ``known`` bounds the numerators of those computed at run time.
    """
    contents = call.known(i)
    if contents is None:
        return _read(call, i, what, known)
    return tuple(_scale(element, what) for element in contents.reshape(-1).tolist())


def _scale(element: object, what: str) -> Scale:
    match element:
        case Ratio(numerator, denominator):
            return numerator, denominator
        case Expr():
            return element, 1
        case int() | float():
            return float(element)
        case _:
            unsupported(f"{what} of {element}")


def _read(call: Conversion, i: int, what: str, known: Range) -> tuple[tuple[Index, Index], ...]:
    (count,) = call.shape(i)
    if not isinstance(count, int):
        unsupported(f"the number of elements of its {what} is not known before the model runs")
    values = of(ew.Cast(F64), call.value(i))
    below = reshaped(_denominators(call, reshaped(values, count, 1)), count)
    parts = (of(ew.Cast(I64), side).name for side in (of(ew.Round(), values * below), below))
    above, below_ = (Vector(call, part) for part in parts)
    both = above.joined(below_)
    bounds = [known] * count + [Range(1, FALLBACK)] * count
    found = both.read(f"{call.labels[i] or what}_ratio", bounds)
    return tuple(zip(found[:count], found[count:], strict=True))


def _denominators(call: Conversion, values: Value) -> Value:
    """The first of 1, 2, … that scales each of ``values`` [n, 1] to almost an integer."""
    tried = call.literal(np.arange(1, LARGEST + 1, dtype=np.float64))
    product = values * tried
    error = of(ew.Abs(), product - of(ew.Round(), product))
    fits = of(ew.LessOrEqual(), error, of(ew.Abs(), product) / float(PRECISION))
    return of(rd.ReduceMin((1,), True), where(fits, tried, float(FALLBACK)))
