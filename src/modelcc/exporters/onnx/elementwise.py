"""Arithmetic that takes several ONNX operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modelcc.exporters.onnx.builder import OnnxValue, has_operator
from modelcc.exporters.onnx.types import element_type
from modelcc.exporters.onnx.writing import Entry, OnnxWriting, settings_of
from modelcc.ir.types import BOOL, F64, I8, I32, I64, U8
from modelcc.ops.activation import (
    Affine,
    Celu,
    Clip,
    Elu,
    HardSigmoid,
    LeakyRelu,
    ScaledTanh,
    Selu,
    ThresholdedRelu,
)
from modelcc.ops.arithmetic import BitCast, Cast, Mod
from modelcc.ops.logic import BitShift

Formula = Callable[[OnnxWriting, Any, OnnxValue], OnnxValue | None]


def unchanged(at: OnnxWriting, op: object) -> OnnxValue:
    """Ops that are the identity except for gradients, or execution order."""
    return at.node("Identity", at.input())


def cast(at: OnnxWriting, op: Cast) -> OnnxValue:
    return at.node("Cast", at.input(), dtype=op.to, to=element_type(op.to))


def bits(at: OnnxWriting, op: BitCast) -> OnnxValue:
    if BOOL in (op.to, at.input().dtype):
        return at.cast(at.input(), op.to)
    return at.node("BitCast", at.input(), dtype=op.to, to=element_type(op.to))


def unequal(at: OnnxWriting, op: object) -> OnnxValue:
    return at.node("Not", at.node("Equal", *at.inputs, dtype=BOOL))


def modulus(at: OnnxWriting, op: Mod) -> OnnxValue:
    """ONNX has floating-point remainders with the sign of the dividend only."""
    a, b = at.input(0), at.input(1)
    if op.fmod or not a.dtype.is_float:
        return at.node("Mod", a, b, fmod=int(op.fmod))
    rest, zero = at.node("Mod", a, b, fmod=1), at.build.number(0, a.dtype)
    some = at.node("Not", at.node("Equal", rest, zero, dtype=BOOL))
    signs = [at.node("Less", x, zero, dtype=BOOL) for x in (rest, b)]
    other = at.node("And", some, at.node("Xor", *signs))
    return at.node("Where", other, at.node("Add", rest, b), rest, dtype=a.dtype)


def shift(at: OnnxWriting, op: BitShift) -> OnnxValue:
    """Signed shifts as a product, or a quotient rounded down: ONNX shifts unsigned numbers only."""
    x, by = at.input(0), at.input(1)
    if x.dtype.kind == "uint":
        return at.node("BitShift", x, by, direction="LEFT" if op.left else "RIGHT")
    wide, power = at.cast(x, I64), at.node("Pow", at.build.number(2, I64), at.cast(by, I64))
    if op.left:
        return at.cast(at.node("Mul", wide, power), x.dtype)
    whole = at.node("Sub", wide, at.node("Mod", wide, power))
    return at.cast(at.node("Div", whole, power), x.dtype)


def power_of_two(at: OnnxWriting, op: object) -> OnnxValue:
    return at.node("Pow", at.build.number(2, at.input().dtype), at.input())


def power_less_one(at: OnnxWriting, op: object) -> OnnxValue:
    """``tanh(x / 2) (exp(x) + 1)``, which is accurate near zero."""
    return _power_less_one(at, at.input())


def _power_less_one(at: OnnxWriting, x: OnnxValue) -> OnnxValue:
    half = at.node("Mul", x, at.build.number(0.5, x.dtype))
    more = at.node("Add", at.node("Exp", x), at.build.number(1, x.dtype))
    return at.node("Mul", at.node("Tanh", half), more)


def log_of_one_more(at: OnnxWriting, op: object) -> OnnxValue:
    """``log(u) x / (u - 1)`` with ``u = 1 + x``, whose errors cancel (Kahan), for small ``x``."""
    x = at.input()
    one = at.build.number(1, x.dtype)
    u = at.node("Add", x, one)
    log = at.node("Log", u)
    exact = at.node("Mul", log, at.node("Div", x, at.node("Sub", u, one)))
    small = at.node("Less", at.node("Abs", x), one, dtype=BOOL)
    found = at.node("Where", small, exact, log, dtype=x.dtype)
    return at.node("Where", at.node("Equal", u, one, dtype=BOOL), x, found, dtype=x.dtype)


def inverse_root(at: OnnxWriting, op: object) -> OnnxValue:
    return at.node("Reciprocal", at.node("Sqrt", at.input()))


def exact(formula: Formula) -> Entry:
    """An operator of the same name; for f64, or if there is none, a formula: attributes and kernels
    of ONNX are f32."""

    def entry(at: OnnxWriting, op: Any) -> OnnxValue | None:
        (result,), x = at.results, at.input()
        operator = type(op).__name__
        if result.dtype == F64 or not has_operator(operator, x):
            return formula(at, op, x)
        return at.node(operator, x, **settings_of(op))

    return entry


def decomposed(at: OnnxWriting, op: object, x: OnnxValue) -> None:
    """The formula is the op's decomposition."""


def _scaled(at: OnnxWriting, x: OnnxValue, by: float) -> OnnxValue:
    return x if by == 1 else at.node("Mul", x, at.build.number(by, x.dtype))


def _above(at: OnnxWriting, x: OnnxValue, bound: float, low: OnnxValue) -> OnnxValue:
    """``x`` where it is above the bound, else ``low``."""
    high = at.node("Greater", x, at.build.number(bound, x.dtype), dtype=BOOL)
    return at.node("Where", high, x, low, dtype=x.dtype)


def leaky(at: OnnxWriting, op: LeakyRelu, x: OnnxValue) -> OnnxValue:
    return _above(at, x, 0, _scaled(at, x, op.alpha))


def thresholded(at: OnnxWriting, op: ThresholdedRelu, x: OnnxValue) -> OnnxValue:
    return _above(at, x, op.alpha, at.build.number(0, x.dtype))


def exponential(at: OnnxWriting, op: Elu, x: OnnxValue) -> OnnxValue:
    return _above(at, x, 0, _scaled(at, _power_less_one(at, x), op.alpha))


def stretched(at: OnnxWriting, op: Celu, x: OnnxValue) -> OnnxValue:
    power = _power_less_one(at, _scaled(at, x, 1 / op.alpha))
    return _above(at, x, 0, _scaled(at, power, op.alpha))


def self_normalising(at: OnnxWriting, op: Selu, x: OnnxValue) -> OnnxValue:
    return _scaled(at, exponential(at, Elu(op.alpha), x), op.gamma)


def line_in_bounds(at: OnnxWriting, op: HardSigmoid, x: OnnxValue) -> OnnxValue:
    line = at.node("Add", _scaled(at, x, op.alpha), at.build.number(op.beta, x.dtype))
    return at.node("Clip", line, at.build.number(0, x.dtype), at.build.number(1, x.dtype))


def parametric(at: OnnxWriting, op: object) -> OnnxValue:
    """ONNX broadcasts the slope, not ``x``."""
    x, shape = at.input(), at.results[0].shape
    return at.node("PRelu", x if shape == at.shape else at.expand(x, shape), at.input(1))


def affine(at: OnnxWriting, op: Affine) -> OnnxValue:
    x = at.input()
    scaled = at.node("Mul", x, at.build.number(op.alpha, x.dtype))
    return at.node("Add", scaled, at.build.number(op.beta, x.dtype))


def scaled_tanh(at: OnnxWriting, op: ScaledTanh) -> OnnxValue:
    x = at.input()
    inner = at.node("Tanh", at.node("Mul", x, at.build.number(op.beta, x.dtype)))
    return at.node("Mul", inner, at.build.number(op.alpha, x.dtype))


def clip(at: OnnxWriting, op: Clip) -> OnnxValue:
    x = at.input()
    bounds = [None if b is None else at.build.number(b, x.dtype) for b in (op.low, op.high)]
    return at.node("Clip", x, *bounds)


def saturated(at: OnnxWriting, op: object) -> OnnxValue:
    """A quantisation with scale 1."""
    (result,) = at.results
    one, zero = at.build.number(1, at.input().dtype), at.build.number(0, result.dtype)
    return at.node("QuantizeLinear", at.input(), one, zero, dtype=result.dtype)


def recentred(at: OnnxWriting, op: object) -> OnnxValue:
    (result,) = at.results
    step = at.constant(np.array(128 if result.dtype == U8 else -128), I32)
    assert result.dtype in (I8, U8)
    return at.cast(at.node("Add", at.cast(at.input(), I32), step), result.dtype)
