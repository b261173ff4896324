"""Handlers of quotients, remainders and rounding, with PyTorch's signs and its rounding."""

from __future__ import annotations

from modelcc.frontends.torch.aten import Aten, Operand, table
from modelcc.ops import elementwise as ew
from modelcc.ops import logic
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.views import cast


def divide(call: Aten, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    """True division, or rounded towards zero (``trunc``) or down (``floor``)."""
    if rounding_mode == "floor":
        return floor_divide(call, x, y)
    quotient = call.op(ew.Div(), x, y)
    if rounding_mode is None or not call.result.dtype.is_float:
        return quotient
    return truncated(quotient)


def floor_divide(call: Aten, x: Operand, y: Operand) -> Value:
    top, bottom = call.as_value(x), call.as_value(y)
    rest = of(ew.Mod(True), top, bottom)
    apart = of(logic.Xor(), _negative(rest), _negative(bottom))
    uneven = of(logic.And(), of(ew.NotEqual(), rest, rest.lift(0)), apart)
    if not call.result.dtype.is_float:
        # Integer division truncates: subtract one if there is a remainder of the other sign.
        return of(ew.Div(), top, bottom) - cast(uneven, call.result.dtype)
    return _floored(top, bottom, rest, uneven)


def _floored(top: Value, bottom: Value, rest: Value, uneven: Value) -> Value:
    """As c10::div_floor_floating: the dividend is made a multiple of the divisor, up to one
    rounding."""
    exact = top / bottom
    quotient = (top - rest) / bottom
    quotient = where(uneven, quotient - 1.0, quotient)
    whole = of(ew.Floor(), quotient)
    late = of(ew.Greater(), quotient - whole, whole.lift(0.5))
    whole = where(late, whole + 1.0, whole)
    whole = where(_zero(quotient), exact * 0.0, whole)
    return where(_zero(bottom), exact, whole)


def _negative(x: Value) -> Value:
    return of(ew.Less(), x, x.lift(0))


def _zero(x: Value) -> Value:
    return of(ew.Equal(), x, x.lift(0))


def remainder(call: Aten, x: Operand, y: Operand) -> Value:
    """With the sign of ``y``."""
    return call.op(ew.Mod(), x, y)


def fmod(call: Aten, x: Operand, y: Operand) -> Value:
    """With the sign of ``x``."""
    return call.op(ew.Mod(True), x, y)


def truncated(x: Value) -> Value:
    """``x`` rounded towards zero."""
    return of(ew.Where(), _negative(x), of(ew.Ceil(), x), of(ew.Floor(), x))


def trunc(call: Aten, x: Value) -> Value:
    return truncated(x) if x.type.dtype.is_float else x


def frac(call: Aten, x: Value) -> Value:
    return x - truncated(x)


def floor(call: Aten, x: Value) -> Value:
    return of(ew.Floor(), x) if x.type.dtype.is_float else x


def ceil(call: Aten, x: Value) -> Value:
    return of(ew.Ceil(), x) if x.type.dtype.is_float else x


def rounded(call: Aten, x: Value, decimals: int = 0) -> Value:
    """Rounds half to even, at the given number of decimals."""
    if not x.type.dtype.is_float:
        return x
    scale = 10.0 ** abs(decimals)
    if decimals == 0:
        return of(ew.Round(), x)
    return of(ew.Round(), x * scale) / scale if decimals > 0 else of(ew.Round(), x / scale) * scale


DIVISION = table(
    div=divide,
    true_divide=divide,
    floor_divide=floor_divide,
    remainder=remainder,
    fmod=fmod,
    trunc=trunc,
    fix=trunc,
    frac=frac,
    floor=floor,
    ceil=ceil,
    round=rounded,
)
