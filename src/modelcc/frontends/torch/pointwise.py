"""Handlers of operators on single elements: arithmetic, functions, comparison, choice."""

from __future__ import annotations

from modelcc.frontends.torch.aten import Aten, Handler, Number, table
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL
from modelcc.ops import activation as act
from modelcc.ops import elementwise as ew
from modelcc.ops import logic
from modelcc.ops import transcendental as tr
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.views import cast

Operand = Value | Number


def promoting(op: Op) -> Handler:
    """``op`` on operands that become the type of the result first."""

    def handler(call: Aten, *operands: Operand) -> Value:
        return call.op(op, *operands)

    return handler


def comparing(op: Op) -> Handler:
    """A bool ``op`` on operands that become the type they have together first."""

    def handler(call: Aten, *operands: Operand) -> Value:
        dtype = call.promoted()
        return of(op, *(call.as_value(x, dtype) for x in operands))

    return handler


def scaled(op: Op) -> Handler:
    """``x op alpha * y``."""

    def handler(call: Aten, x: Operand, y: Operand, alpha: Number = 1) -> Value:
        other = call.as_value(y)
        return call.op(op, x, other if alpha == 1 else call.op(ew.Mul(), other, alpha))

    return handler


def reversed_subtract(call: Aten, x: Operand, y: Operand, alpha: Number = 1) -> Value:
    return scaled(ew.Sub())(call, y, x, alpha)  # type: ignore[return-value]


def divide(call: Aten, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    """Exact, or rounded towards zero (``trunc``) or down (``floor``)."""
    quotient = call.op(ew.Div(), x, y)
    if rounding_mode is None:
        return quotient
    floats = call.result.dtype.is_float
    if rounding_mode == "trunc":
        return truncated(quotient) if floats else quotient
    if floats:
        return of(ew.Floor(), quotient)
    # Integers are divided towards zero: one less where there is a remainder of another sign.
    remainder = call.op(ew.Mod(True), x, y)
    apart = of(logic.Xor(), _negative(remainder), _negative(call.as_value(y)))
    uneven = of(ew.NotEqual(), remainder, remainder.lift(0))
    return quotient - cast(of(logic.And(), uneven, apart), call.result.dtype)


def _negative(x: Value) -> Value:
    return of(ew.Less(), x, x.lift(0))


def truncated(x: Value) -> Value:
    """``x`` rounded towards zero."""
    return of(ew.Where(), _negative(x), of(ew.Ceil(), x), of(ew.Floor(), x))


def where(call: Aten, condition: Value, x: Operand, y: Operand) -> Value:
    return of(ew.Where(), cast(condition, BOOL), call.as_value(x), call.as_value(y))


def clamp(call: Aten, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """NaN stays, and ``high`` goes before ``low``."""
    result = call.as_value(x)
    if low is not None:
        result = call.op(ew.Max(), result, low)
    return result if high is None else call.op(ew.Min(), result, high)


def to_copy(call: Aten, x: Value, *_: object) -> Value:
    return call.as_value(x)


def gelu(call: Aten, x: Value, approximate: str = "none") -> Value:
    kind = call.choice(approximate, ("none", "tanh"), "approximate")
    return call.op(act.Gelu("tanh" if kind == "tanh" else "none"), x)


def same(call: Aten, x: Value, *_: object) -> Value:
    return x


POINTWISE = table(
    add=scaled(ew.Add()),
    sub=scaled(ew.Sub()),
    rsub=reversed_subtract,
    mul=promoting(ew.Mul()),
    div=divide,
    neg=promoting(ew.Neg()),
    abs=promoting(ew.Abs()),
    exp=promoting(tr.Exp()),
    log=promoting(tr.Log()),
    sqrt=promoting(tr.Sqrt()),
    rsqrt=promoting(tr.Rsqrt()),
    reciprocal=promoting(tr.Reciprocal()),
    sin=promoting(tr.Sin()),
    cos=promoting(tr.Cos()),
    tanh=promoting(tr.Tanh()),
    sigmoid=promoting(tr.Sigmoid()),
    erf=promoting(tr.Erf()),
    relu=promoting(act.Relu()),
    silu=promoting(act.Silu()),
    gelu=gelu,
    eq=comparing(ew.Equal()),
    ne=comparing(ew.NotEqual()),
    lt=comparing(ew.Less()),
    le=comparing(ew.LessOrEqual()),
    gt=comparing(ew.Greater()),
    ge=comparing(ew.GreaterOrEqual()),
    maximum=promoting(ew.Max()),
    minimum=promoting(ew.Min()),
    where=where,
    clamp=clamp,
    _to_copy=to_copy,
    clone=same,
    alias=same,
    detach=same,
    lift_fresh_copy=same,
)
