"""Handlers of elementwise arithmetic and functions."""

from __future__ import annotations

import math

from modelcc.frontends.torch.aten import Aten, Handler, Number, Operand, table
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, F64
from modelcc.ops import elementwise as ew
from modelcc.ops import logic
from modelcc.ops import transcendental as tr
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.views import cast


def promoting(op: Op) -> Handler:
    """``op`` on operands converted to the type of the result."""

    def handler(call: Aten, *operands: Operand) -> Value:
        return call.op(op, *operands)

    return handler


def add(call: Aten, x: Operand, y: Operand, alpha: Number = 1) -> Value:
    """``x + alpha * y``; logical or for bools."""
    if call.result.dtype == BOOL:
        return call.op(logic.Or(), x, y) if alpha else call.as_value(x)
    return call.op(ew.Add(), x, _scaled(call, y, alpha))


def subtract(call: Aten, x: Operand, y: Operand, alpha: Number = 1) -> Value:
    return call.op(ew.Sub(), x, _scaled(call, y, alpha))


def reversed_subtract(call: Aten, x: Operand, y: Operand, alpha: Number = 1) -> Value:
    return subtract(call, y, x, alpha)


def _scaled(call: Aten, y: Operand, alpha: Number) -> Value:
    return call.as_value(y) if alpha == 1 else call.op(ew.Mul(), y, alpha)


def multiply(call: Aten, x: Operand, y: Operand) -> Value:
    return call.op(logic.And() if call.result.dtype == BOOL else ew.Mul(), x, y)


def multiply_add(call: Aten, x: Value, y: Value, z: Value) -> Value:
    """``x * y + z``, rounded twice, as PyTorch does on the CPU."""
    return call.op(ew.Add(), call.op(ew.Mul(), x, y), z)


def absolute(call: Aten, x: Value) -> Value:
    return x if x.type.dtype == BOOL else of(ew.Abs(), x)


def power(call: Aten, x: Operand, y: Operand) -> Value:
    """Small integer powers are products, and roots are roots, as in PyTorch."""
    base = call.as_value(x)
    if isinstance(y, Value) or not base.type.dtype.is_float:
        return call.op(tr.Pow(), x, y)
    match float(y) if isinstance(y, int | float) else None:
        case 1.0:
            return base
        case 2.0:
            return base * base
        case 3.0:
            return base * base * base
        case 0.5:
            return of(tr.Sqrt(), base)
        case -0.5:
            return of(tr.Rsqrt(), base)
        case -1.0:
            return of(tr.Reciprocal(), base)
        case -2.0:
            return of(tr.Reciprocal(), base * base)
        case _:
            return call.op(tr.Pow(), x, y)


def logarithm(base: float) -> Handler:
    """In f64, so that exact powers of the base have exact logarithms."""

    def handler(call: Aten, x: Operand) -> Value:
        wide = of(tr.Log(), call.as_value(x, F64)) * (1.0 / math.log(base))
        return cast(wide, call.result.dtype)

    return handler


def hypotenuse(call: Aten, x: Operand, y: Operand) -> Value:
    """``sqrt(x * x + y * y)`` without overflow; infinite if either is, whatever the other."""
    a, b = call.op(ew.Abs(), x), call.op(ew.Abs(), y)
    high, low = of(ew.Max(), a, b), of(ew.Min(), a, b)
    share = where(of(ew.Equal(), high, high.lift(0)), 0.0, low / high)
    length = high * of(tr.Sqrt(), share * share + 1.0)
    infinite = of(logic.Or(), of(ew.IsInf(), a), of(ew.IsInf(), b))
    return where(infinite, float("inf"), length)


def logaddexp(call: Aten, x: Operand, y: Operand) -> Value:
    """``log(exp(x) + exp(y))``; equal infinities are returned as they are."""
    a, b = call.as_value(x), call.as_value(y)
    high, low = of(ew.Max(), a, b), of(ew.Min(), a, b)
    whole = high + of(tr.Log1p(), of(tr.Exp(), low - high))
    same = of(logic.And(), of(ew.IsInf(), a), of(ew.Equal(), a, b))
    return where(same, a, whole)


def to_copy(call: Aten, x: Value, *_: object) -> Value:
    return call.as_value(x)


def same(call: Aten, x: Value, *_: object) -> Value:
    return x


POINTWISE = table(
    add=add,
    sub=subtract,
    rsub=reversed_subtract,
    mul=multiply,
    neg=promoting(ew.Neg()),
    _neg_view=promoting(ew.Neg()),
    abs=absolute,
    pow=power,
    exp=promoting(tr.Exp()),
    exp2=promoting(tr.Exp2()),
    expm1=promoting(tr.Expm1()),
    log=promoting(tr.Log()),
    log1p=promoting(tr.Log1p()),
    log2=logarithm(2.0),
    log10=logarithm(10.0),
    logaddexp=logaddexp,
    sqrt=promoting(tr.Sqrt()),
    rsqrt=promoting(tr.Rsqrt()),
    reciprocal=promoting(tr.Reciprocal()),
    hypot=hypotenuse,
    sin=promoting(tr.Sin()),
    cos=promoting(tr.Cos()),
    tan=promoting(tr.Tan()),
    asin=promoting(tr.Asin()),
    acos=promoting(tr.Acos()),
    atan=promoting(tr.Atan()),
    sinh=promoting(tr.Sinh()),
    cosh=promoting(tr.Cosh()),
    tanh=promoting(tr.Tanh()),
    asinh=promoting(tr.Asinh()),
    acosh=promoting(tr.Acosh()),
    atanh=promoting(tr.Atanh()),
    sigmoid=promoting(tr.Sigmoid()),
    erf=promoting(tr.Erf()),
    _to_copy=to_copy,
    **{"prims.convert_element_type": to_copy, "prims.fma": multiply_add},
    clone=same,
    alias=same,
    detach=same,
    lift_fresh_copy=same,
    conj=same,
    _conj=same,
    conj_physical=same,
    resolve_conj=same,
    resolve_neg=same,
    real=same,
    positive=same,
)
