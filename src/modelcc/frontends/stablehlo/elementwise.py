"""Elementwise operations: arithmetic and functions."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.angles import arctangent, is_negative
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.stablehlo.call import Handler, HloCall, plain, table
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, DTYPES, F32, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.generate import Full


def wide(call: HloCall, handler: Handler) -> str:
    """``handler`` in f32 if the operands are floats narrower than 16 bits."""
    dtype = call.dtype()
    if not dtype.is_float or dtype.bits >= 16:
        result = handler(call)
    else:
        inputs = [call.emit(ew.Cast(F32), name) for name in call.inputs]
        result = handler(call.with_inputs(*inputs))
    assert isinstance(result, str)
    return as_type(call, result, dtype)


def as_type(call: HloCall, name: str, dtype: DType) -> str:
    """A result as ``dtype``; bools unchanged."""
    found = call.type_of(name).dtype
    return name if dtype in (found, None) or found == BOOL else call.emit(ew.Cast(dtype), name)


def function(op: Op, on_bools: Op | None = None) -> Handler:
    """``op``, and another one for bools."""

    def handler(call: HloCall) -> str:
        if call.dtype() == BOOL:
            if on_bools is None:
                unsupported("it has no meaning on bools here")
            return call.emit(on_bools, *call.inputs)
        return wide(call, plain(op))

    return handler


def _bits(op: Op, on_bools: Op, decides: bool | None = None) -> Handler:
    """A bitwise op on integers, or a logical one on bools; if one operand ``decides``, it is the
    result."""

    def handler(call: HloCall) -> str:
        if call.dtype() != BOOL:
            return call.emit(op, *call.inputs)
        for number, name in enumerate(call.inputs):
            known = call.known(number)
            if decides is not None and known is not None and bool(np.all(known == decides)):
                return name
        return call.emit(on_bools, *call.inputs)

    return handler


def divide(call: HloCall) -> str:
    """Integers divided by zero give -1, all bits set."""
    if not call.dtype().is_integer:
        return wide(call, plain(ew.Div()))
    a, b = call.value(0), call.value(1)
    if call.known(1) is not None:
        return call.emit(ew.Div(), a.name, b.name)
    one, zero = a.lift(1), of(ew.Equal(), b, b.lift(0))
    least = _overflows(call, a, b)
    quotient = a.lift(1) * a / of(ew.Where(), zero, one, b)
    if least is not None:
        quotient = of(ew.Where(), least, a, a / of(ew.Where(), least, one, of(
            ew.Where(), zero, one, b)))  # fmt: skip
    every = call.literal(np.array(_all_bits(call.dtype())), call.dtype())
    return of(ew.Where(), zero, every, quotient).name


def _overflows(call: HloCall, a: Value, b: Value) -> Value | None:
    """Whether the minimum is divided by -1, which may trap."""
    dtype = call.dtype()
    if dtype.kind == "uint" or dtype.bits < 8:
        return None
    least, negative = a.lift(int(np.iinfo(dtype.numpy).min)), b.lift(-1)
    return of(ew.And(), of(ew.Equal(), a, least), of(ew.Equal(), b, negative))


def _all_bits(dtype: DType) -> int:
    return 2**dtype.bits - 1 if dtype.kind == "uint" else -1


def remainder(call: HloCall) -> str:
    """With the sign of the dividend; integers modulo zero give the dividend."""
    fmod = ew.Mod(fmod=True)
    if not call.dtype().is_integer:
        return wide(call, plain(fmod))
    a, b = call.value(0), call.value(1)
    if call.known(1) is not None:
        return call.emit(fmod, a.name, b.name)
    zero, one = of(ew.Equal(), b, b.lift(0)), a.lift(1)
    least = _overflows(call, a, b)
    safe = of(ew.Where(), zero, one, b)
    if least is not None:
        safe = of(ew.Where(), least, one, safe)
    return of(ew.Where(), zero, a, of(fmod, a, safe)).name


def sign(call: HloCall) -> str:
    """NaN and the sign of zero are kept."""
    if call.dtype().is_integer:
        return call.emit(ew.Sign(), call.input(0))
    x = call.value(0)
    kept = of(ew.Or(), of(ew.Equal(), x, x.lift(0.0)), of(ew.IsNaN(), x))
    return of(ew.Where(), kept, x, of(ew.Sign(), x)).name


def cbrt(call: HloCall) -> str:
    x = call.value(0)
    size = of(ew.Pow(), of(ew.Abs(), x), x.lift(1 / 3))
    # One step of Newton's method for the root: the power is inaccurate by a few bits.
    zero = of(ew.Equal(), size, x.lift(0.0))
    infinite = of(ew.IsInf(), size)
    odd = of(ew.Or(), zero, infinite)
    safe = of(ew.Where(), odd, x.lift(1.0), size)
    refined = safe - (safe - of(ew.Abs(), x) / (safe * safe)) / 3
    return (of(ew.Sign(), x) * of(ew.Where(), odd, size, refined)).name


def atan2(call: HloCall) -> str:
    return arctangent(call.value(0), call.value(1)).name


def is_finite(call: HloCall) -> str:
    x = call.value(0)
    odd = of(ew.Or(), of(ew.IsInf(), x), of(ew.IsNaN(), x))
    return of(ew.Not(), odd).name


def round_away(call: HloCall) -> str:
    """Rounds halves away from zero."""
    x = call.value(0)
    size = of(ew.Abs(), x)
    down = of(ew.Floor(), size)
    up = of(ew.GreaterOrEqual(), size - down, x.lift(0.5))
    whole = of(ew.Where(), up, down + 1.0, down)
    return of(ew.Where(), is_negative(x), -whole, whole).name


def clamp(call: HloCall) -> str:
    low, x, high = (call.value(n) for n in range(3))
    return of(ew.Min(), of(ew.Max(), x, low), high).name


def absolute(call: HloCall) -> str:
    return call.input(0) if call.dtype().kind == "uint" else wide(call, plain(ew.Abs()))


def negate(call: HloCall) -> str:
    if call.dtype().kind != "uint":
        return wide(call, plain(ew.Neg()))
    x = call.value(0)
    return (x.lift(0) - x).name


def imaginary(call: HloCall) -> str:
    """The imaginary part of real numbers."""
    return call.made(Full(call.shape(), 0, call.dtype())).name


def popcnt(call: HloCall) -> str:
    """The bits of a word, summed by pairs, nibbles, and bytes."""
    x, bits = call.value(0), call.dtype().bits
    result = x.lift(0)
    for bit in range(bits):
        result = result + of(ew.BitwiseAnd(), _shifted(x, bit), x.lift(1))
    return result.name


def _shifted(x: Value, by: int) -> Value:
    return x if by == 0 else of(ew.BitShift(left=False), x, x.lift(by))


def count_leading_zeros(call: HloCall) -> str:
    x, bits = call.value(0), call.dtype().bits
    filled = x
    for by in (1, 2, 4, 8, 16, 32):
        if by < bits:
            mask = 2 ** (bits - by) - 1
            moved = of(ew.BitwiseAnd(), _shifted(filled, by), x.lift(mask))
            filled = of(ew.BitwiseOr(), filled, moved)
    zeros = of(ew.BitwiseNot(), filled)
    return popcnt(call.with_inputs(zeros.name))


def shift(left: bool, arithmetic: bool = False) -> Handler:
    """Shifts; by the width or more all bits are shifted out."""

    def handler(call: HloCall) -> str:
        a, b, dtype = call.value(0), call.value(1), call.dtype()
        inside = of(ew.And(), of(ew.GreaterOrEqual(), b, b.lift(0)), of(
            ew.Less(), b, b.lift(dtype.bits)))  # fmt: skip
        by = of(ew.Where(), inside, b, b.lift(dtype.bits - 1 if arithmetic else 0))
        kind = dtype if left else DTYPES[f"{'i' if arithmetic else 'u'}{dtype.bits}"]
        moved = of(ew.BitShift(left), _bits_as(a, kind), _bits_as(by, kind))
        result = _bits_as(moved, dtype)
        return result.name if arithmetic else of(ew.Where(), inside, result, a.lift(0)).name

    return handler


def _bits_as(x: Value, dtype: DType) -> Value:
    return x if x.type.dtype == dtype else of(ew.BitCast(dtype), x)


ELEMENTWISE = table(
    abs=absolute,
    add=function(ew.Add(), ew.Or()),
    and_=_bits(ew.BitwiseAnd(), ew.And(), False),
    or_=_bits(ew.BitwiseOr(), ew.Or(), True),
    xor=_bits(ew.BitwiseXor(), ew.Xor()),
    not_=_bits(ew.BitwiseNot(), ew.Not()),
    atan2=atan2,
    cbrt=cbrt,
    ceil=function(ew.Ceil()),
    clamp=clamp,
    cosine=function(ew.Cos()),
    count_leading_zeros=count_leading_zeros,
    divide=divide,
    exponential=function(ew.Exp()),
    exponential_minus_one=function(ew.Expm1()),
    floor=function(ew.Floor()),
    imag=imaginary,
    is_finite=is_finite,
    log=function(ew.Log()),
    log_plus_one=function(ew.Log1p()),
    logistic=function(ew.Sigmoid()),
    maximum=function(ew.Max(), ew.Or()),
    minimum=function(ew.Min(), ew.And()),
    multiply=function(ew.Mul(), ew.And()),
    negate=negate,
    popcnt=popcnt,
    power=function(ew.Pow()),
    real=lambda call: call.input(0),
    remainder=remainder,
    round_nearest_afz=round_away,
    round_nearest_even=function(ew.Round()),
    rsqrt=function(ew.Rsqrt()),
    select=lambda call: call.emit(ew.Where(), *call.inputs),
    shift_left=shift(True),
    shift_right_arithmetic=shift(False, True),
    shift_right_logical=shift(False),
    sign=sign,
    sine=function(ew.Sin()),
    sqrt=function(ew.Sqrt()),
    subtract=function(ew.Sub(), ew.Xor()),
    tan=function(ew.Tan()),
    tanh=function(ew.Tanh()),
)
