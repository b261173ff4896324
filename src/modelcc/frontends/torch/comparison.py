"""Handlers of comparison, selection, logical and bitwise operators."""

from __future__ import annotations

from modelcc.frontends.torch.aten import Aten, Handler, Operand, table
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, I8, I16, I32, I64, U8
from modelcc.ops import elementwise as ew
from modelcc.ops import logic
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where as chosen
from modelcc.ops.generate import Full
from modelcc.ops.views import cast

INTEGERS = {8: I8, 16: I16, 32: I32, 64: I64}
"""Signed integers by their bits."""


def comparing(op: Op) -> Handler:
    """A comparison ``op`` on operands converted to their promoted type."""

    def handler(call: Aten, *operands: Operand) -> Value:
        dtype = call.promoted()
        xs = (call.as_value(x, dtype) for x in operands)
        return of(op, *(cast(x, U8) if dtype == BOOL else x for x in xs))

    return handler


def logical(op: Op) -> Handler:
    """A bool ``op`` on whether operands are nonzero."""

    def handler(call: Aten, *operands: Operand) -> Value:
        return of(op, *(call.as_value(x, BOOL) for x in operands))

    return handler


def bitwise(bits: Op, bools: Op) -> Handler:
    """An op on the bits of integers, and another one on bools."""

    def handler(call: Aten, *operands: Operand) -> Value:
        return call.op(bools if call.result.dtype == BOOL else bits, *operands)

    return handler


def shifting(left: bool) -> Handler:
    """Shifts; by the bit width or more all bits are shifted out: the result is zero or the sign."""

    def handler(call: Aten, x: Operand, by: Operand) -> Value:
        a, b = call.as_value(x), call.as_value(by)
        width = a.type.dtype.bits
        fits = of(
            logic.And(), of(ew.GreaterOrEqual(), b, b.lift(0)), of(ew.Less(), b, b.lift(width))
        )
        signed = a.type.dtype.kind == "int" and not left
        rest = of(logic.BitShift(False), a, a.lift(width - 1)) if signed else a.lift(0)
        return chosen(fits, of(logic.BitShift(left), a, chosen(fits, b, 0)), rest)

    return handler


def number_test(op: Op) -> Handler:
    """A test of floating-point numbers, false for integers."""

    def handler(call: Aten, x: Value) -> Value:
        return of(op, x) if x.type.dtype.is_float else call.made(Full(x.type.shape, False, BOOL))

    return handler


def signbit(call: Aten, x: Value) -> Value:
    """Whether the sign bit is set, also of zero and NaN."""
    if x.type.dtype == BOOL:
        return call.made(Full(x.type.shape, False, BOOL))
    bits = of(ew.BitCast(INTEGERS[x.type.dtype.bits]), x) if x.type.dtype.is_float else x
    return of(ew.Less(), bits, bits.lift(0))


def copysign(call: Aten, x: Operand, y: Operand) -> Value:
    magnitude = call.op(ew.Abs(), x)
    return chosen(signbit(call, call.as_value(y)), -magnitude, magnitude)


def sign(call: Aten, x: Value) -> Value:
    """-1, 0 or 1; 0 for NaN."""
    if x.type.dtype == BOOL:
        return x
    result = of(ew.Sign(), x)
    return chosen(of(ew.IsNaN(), x), 0.0, result) if x.type.dtype.is_float else result


def where(call: Aten, condition: Value, x: Operand, y: Operand) -> Value:
    return of(ew.Where(), cast(condition, BOOL), call.as_value(x), call.as_value(y))


def ordered(numbers: Op, bools: Op, skips_nan: bool = False) -> Handler:
    """Minimum or maximum; NaN if either is, or the other one if ``skips_nan``."""

    def handler(call: Aten, x: Operand, y: Operand) -> Value:
        if call.result.dtype == BOOL:
            return call.op(bools, x, y)
        result = call.op(numbers, x, y)
        if not (skips_nan and call.result.dtype.is_float):
            return result
        a, b = call.as_value(x), call.as_value(y)
        return chosen(of(ew.IsNaN(), a), b, chosen(of(ew.IsNaN(), b), a, result))

    return handler


def clamp(call: Aten, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """NaN is kept, and ``high`` takes precedence over ``low``."""
    result = call.as_value(x)
    if low is not None:
        result = call.op(ew.Max(), result, low)
    return result if high is None else call.op(ew.Min(), result, high)


def heaviside(call: Aten, x: Operand, values: Operand) -> Value:
    a = call.as_value(x)
    step = cast(of(ew.Greater(), a, a.lift(0)), a.type.dtype)
    return chosen(of(ew.Equal(), a, a.lift(0)), call.as_value(values), step)


_MAXIMUM = ordered(ew.Max(), logic.Or())
_MINIMUM = ordered(ew.Min(), logic.And())

COMPARISON = table(
    eq=comparing(ew.Equal()),
    ne=comparing(ew.NotEqual()),
    lt=comparing(ew.Less()),
    le=comparing(ew.LessOrEqual()),
    gt=comparing(ew.Greater()),
    ge=comparing(ew.GreaterOrEqual()),
    maximum=_MAXIMUM,
    minimum=_MINIMUM,
    fmax=ordered(ew.Max(), logic.Or(), True),
    fmin=ordered(ew.Min(), logic.And(), True),
    clamp_min=_MAXIMUM,
    clamp_max=_MINIMUM,
    clamp=clamp,
    where=where,
    logical_and=logical(logic.And()),
    logical_or=logical(logic.Or()),
    logical_xor=logical(logic.Xor()),
    logical_not=logical(logic.Not()),
    bitwise_and=bitwise(logic.BitwiseAnd(), logic.And()),
    bitwise_or=bitwise(logic.BitwiseOr(), logic.Or()),
    bitwise_xor=bitwise(logic.BitwiseXor(), logic.Xor()),
    bitwise_not=bitwise(logic.BitwiseNot(), logic.Not()),
    bitwise_left_shift=shifting(True),
    bitwise_right_shift=shifting(False),
    __lshift__=shifting(True),
    __rshift__=shifting(False),
    isnan=number_test(ew.IsNaN()),
    isinf=number_test(ew.IsInf()),
    isposinf=number_test(ew.IsInf(detect_negative=False)),
    isneginf=number_test(ew.IsInf(detect_positive=False)),
    signbit=signbit,
    copysign=copysign,
    sign=sign,
    sgn=sign,
    heaviside=heaviside,
)
