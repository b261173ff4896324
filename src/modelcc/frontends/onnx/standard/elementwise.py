"""Handlers of elementwise operators and activations."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, Handler, simple, table
from modelcc.frontends.onnx.host.texts import numbers
from modelcc.frontends.onnx.standard.conversion import computed_in, floats
from modelcc.frontends.onnx.tensors import dtype_from_onnx
from modelcc.ir.op import Op
from modelcc.ir.types import F8E8M0, F32, F64, STRING, DType
from modelcc.ops import activation as act
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above, where


def folded(op: type[Op]) -> Handler:
    """An n-ary operator as a chain of a binary one."""

    def handler(call: Call) -> str:
        result = call.input(0)
        for other in call.inputs[1:]:
            result = call.emit(op(), result, other)
        return result

    return handler


def mean(call: Call) -> str:
    total = folded(ew.Add)(call)
    assert isinstance(total, str)
    return call.emit(ew.Div(), total, call.constant(float(len(call.inputs)), call.dtype()))


def cast(call: Call) -> str:
    """The dtype is a name before opset 6, then a code."""
    if call.opset >= 6:
        return _converted(call, dtype_from_onnx(call.attrs.integer("to"), call.source[-1]))
    name = call.attrs.text("to").upper()
    codes: dict[str, int] = dict(TensorProto.DataType.items())
    if name not in codes:
        call.fail(f"there is no element type {name!r}")
    return _converted(call, dtype_from_onnx(codes[name], call.source[-1]))


def cast_like(call: Call) -> str:
    return _converted(call, call.dtype(1))


def _converted(call: Call, to: DType) -> str:
    """Cast; conversions to 8-bit floats saturate unless told otherwise."""
    if to == call.dtype():
        return call.input(0)
    if to == STRING:
        unsupported("casts to strings need text processing")
    if call.dtype() == STRING:
        read = F32 if to.is_float and to.bits <= 8 else to  # narrower floats saturate
        return _converted(call.with_inputs((numbers(call, read),)), to)
    x = call.input(0)
    if to == F8E8M0 and call.dtype().is_float:
        x = _power_of_two(call)
    elif _saturates(call, to):
        largest = float(np.asarray(ml_dtypes.finfo(to.numpy).max, np.float32))
        x = call.emit(act.Clip(-largest, largest), x)
    return call.emit(ew.Cast(to), x)


def _saturates(call: Call, to: DType) -> bool:
    floats = to.is_float and to.bits == 8 and call.dtype().is_float
    return floats and call.attrs.flag("saturate", True)


def _power_of_two(call: Call) -> str:
    """Rounding to a power of two (scales): to the next one, upwards unless told otherwise.

    The cast itself rounds to nearest; a factor near 3/2 or of 3/4 makes it round up or down; in f64
    the products are exact enough.  0 becomes the smallest power.
    """
    factors = {"up": 1.5 - 2.0**-23, "down": 0.75, "nearest": 1.0}
    mode = call.attrs.text("round_mode", "up")
    if mode not in factors:
        call.fail(f"round_mode {mode!r} is none of {', '.join(factors)}")
    wide = of(ew.Abs(), of(ew.Cast(F64), call.value(0)))
    most = 2.0**127 if call.attrs.flag("saturate", True) else None
    x = of(act.Clip(2.0**-127, most), wide * factors[mode])
    return where(of(ew.IsInf(), wide), float("nan"), x).name


def bit_cast(call: Call) -> str:
    to = dtype_from_onnx(call.attrs.integer("to"), call.source[-1])
    return call.input(0) if to == call.dtype() else call.emit(ew.BitCast(to), call.input(0))


def passed(call: Call) -> str:
    return call.input(0)


def power(call: Call) -> str:
    """The result has the base's dtype; it is computed in one that holds both operands."""
    base, exponent = call.dtype(), call.dtype(1)
    if call.known(1) is not None and base.is_float and exponent.is_integer:
        exponent = base  # mostly small integers, whose powers are products
    wide = _common(base, exponent)
    x, y = (call.emit(ew.Cast(wide), n) if call.type_of(n).dtype != wide else n
            for n in call.inputs)  # fmt: skip
    result = call.emit(ew.Pow(), x, y)
    if base.is_integer and wide.is_float:
        return _whole_power(call, result)
    return result if wide == base else call.emit(ew.Cast(base), result)


def _whole_power(call: Call, power: str) -> str:
    """An integer to a float power: exact for integral exponents; otherwise truncated, but
    rounded if close to an integer."""
    base, x = call.dtype(), Value(call, power)
    nearest = of(ew.Round(), x)
    close = of(ew.LessOrEqual(), of(ew.Abs(), x - nearest),
               of(ew.Abs(), x) * (1e-12 if x.type.dtype == F64 else 1e-5))  # fmt: skip
    cut = of(ew.Cast(base), where(close, nearest, x))
    exponent = call.value(1)
    whole = of(ew.Equal(), of(ew.Floor(), exponent), exponent)
    exact = of(ew.Pow(), call.value(0), of(ew.Cast(base), exponent))
    return where(whole, exact, cut).name


def _common(base: DType, exponent: DType) -> DType:
    """A type in which powers lose nothing visible in the base's type."""
    if base == exponent:
        return base
    if base.is_integer and exponent.is_integer:
        return base if exponent.bits <= base.bits else exponent
    whole = any(t.is_integer and t.bits > 16 for t in (base, exponent))
    return F64 if whole or F64 in (base, exponent) else F32


def clip(call: Call) -> str:
    """Bounds are attributes before opset 11, then optional scalar operands."""
    if call.opset < 11:
        attrs = call.attrs
        low = attrs.number("min") if attrs.has("min") else None
        high = attrs.number("max") if attrs.has("max") else None
        return _clipped(call, low, high)
    bounds = [call.known(i) for i in (1, 2)]
    for i in (1, 2):
        if call.has(i) and call.type(i).elements != 1:
            call.fail(f"its bounds are single numbers, not {call.type(i)}")
    dynamic = any(b is None and call.has(i) for i, b in enumerate(bounds, 1))
    if dynamic or any(b is not None and (b != b).any() for b in bounds):  # NaN propagates
        return call.emit(ew.ClipTensor(), call.input(0), call.input(1), call.input(2))
    low, high = (None if b is None else b.reshape(-1)[0].item() for b in bounds)
    return _clipped(call, low, high)


def _clipped(call: Call, low: float | None, high: float | None) -> str:
    """Bounds at the limits of the dtype are dropped."""
    if call.dtype().is_float:
        info = np.finfo(np.float32)
        low = None if low is not None and low <= float(info.min) else low
        high = None if high is not None and high >= float(info.max) else high
    if low is None and high is None:
        return call.input(0)
    return call.emit(act.Clip(low, high), call.input(0))


def bit_shift(call: Call) -> str:
    return call.emit(ew.BitShift(call.attrs.text("direction") == "LEFT"), *call.inputs)


_FLOORED = 28
"""The operator set since which Mod takes floats without fmod."""


def modulo(call: Call) -> str:
    if call.opset < _FLOORED and call.dtype().is_float and not call.attrs.flag("fmod"):
        call.fail(
            "before operator set 28 there is only the remainder of C's fmod of floats; set fmod=1"
        )
    return call.emit(ew.Mod(call.attrs.flag("fmod")), *call.inputs)


def shrink(call: Call) -> str:
    """``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, else 0."""
    x = call.value(0)
    bias, edge = call.attrs.number("bias", 0.0), call.attrs.number("lambd", 0.5)
    below, over = of(ew.Less(), x, x.lift(-edge)), above(x, edge)
    high = where(over, x - bias, 0.0)
    return where(below, x + bias, high).name


_UNARY = (
    *(ew.Abs, ew.Neg, ew.Sign, ew.Exp, ew.Log, ew.Sqrt, ew.Reciprocal, ew.Erf, ew.Tanh),
    *(ew.Sigmoid, ew.Sin, ew.Cos, ew.Tan, ew.Asin, ew.Acos, ew.Atan, ew.Sinh, ew.Cosh, ew.Asinh),
    *(ew.Acosh, ew.Atanh, ew.Floor, ew.Ceil, ew.Round, ew.Not, ew.BitwiseNot, ew.IsNaN),
)
_BINARY = (
    *(ew.Add, ew.Sub, ew.Mul, ew.Div, ew.And, ew.Or, ew.Xor, ew.BitwiseAnd, ew.BitwiseOr),
    *(ew.BitwiseXor, ew.Equal, ew.Less, ew.LessOrEqual, ew.Greater, ew.GreaterOrEqual, ew.Where),
)
_ACTIVATIONS = (act.Relu, act.PRelu, act.Softplus, act.Softsign, act.HardSwish, act.Mish)

ELEMENTWISE = table(
    **{op.__name__: simple(op) for op in (*_UNARY, *_BINARY, *_ACTIVATIONS)},
    LeakyRelu=simple(act.LeakyRelu, alpha=0.01),
    Elu=simple(act.Elu, alpha=1.0),
    Selu=simple(act.Selu, alpha=1.6732632, gamma=1.0507010),
    Celu=simple(act.Celu, alpha=1.0),
    HardSigmoid=simple(act.HardSigmoid, alpha=0.2, beta=0.5),
    ThresholdedRelu=simple(act.ThresholdedRelu, alpha=1.0),
    Swish=simple(act.Swish, alpha=1.0),
    Gelu=simple(act.Gelu, approximate="none"),
    Shrink=computed_in(floats, shrink),
    Clip=clip,
    Sum=folded(ew.Add),
    Min=folded(ew.Min),
    Max=folded(ew.Max),
    Mean=mean,
    Pow=power,
    Mod=modulo,
    BitShift=bit_shift,
    IsInf=simple(ew.IsInf, detect_negative=True, detect_positive=True),
    Cast=cast,
    CastLike=cast_like,
    BitCast=bit_cast,
    Identity=passed,
)
