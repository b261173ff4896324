"""Elementwise comparison, choice and order: Equal, Where, Min, Abs, IsNaN …"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, number, select
from modelcc.ir.index import Index
from modelcc.ir.narrowing import ELEMENTS
from modelcc.ir.op import Builder, Op, broadcast_shapes, require, same_dtype
from modelcc.ir.types import BOOL, F16, I8, I32, I64, U8, Array, TensorType
from modelcc.ops.arithmetic import (
    Differentiable,
    Identity,
    PiecewiseConstant,
    Value,
    binary_samples,
    check_domain,
    of,
    typed_samples,
    unary_samples,
)
from modelcc.ops.samples import sample, tensor

_SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], np.float32)
_COMPARED = (
    *binary_samples(),
    *typed_samples((I64, I8, U8), 2),
    sample(_SPECIAL, _SPECIAL[::-1].copy()),
    sample(_SPECIAL, _SPECIAL),
)


@dataclass(frozen=True)
class Equal(PiecewiseConstant):
    """``a == b``."""

    domain, function, numpy, predicate = "any", "eq", np.equal, True
    samples = (*_COMPARED, *typed_samples((BOOL,), 2))


@dataclass(frozen=True)
class NotEqual(PiecewiseConstant):
    """``a != b``."""

    domain, function, numpy, predicate = "any", "ne", np.not_equal, True
    samples = (*_COMPARED, *typed_samples((BOOL,), 2))


@dataclass(frozen=True)
class Less(PiecewiseConstant):
    """``a < b``."""

    function, numpy, predicate = "lt", np.less, True
    samples = _COMPARED


@dataclass(frozen=True)
class LessOrEqual(PiecewiseConstant):
    """``a <= b``."""

    function, numpy, predicate = "le", np.less_equal, True
    samples = _COMPARED


@dataclass(frozen=True)
class Greater(PiecewiseConstant):
    """``a > b``."""

    function, numpy, predicate = "gt", np.greater, True
    samples = _COMPARED


@dataclass(frozen=True)
class GreaterOrEqual(PiecewiseConstant):
    """``a >= b``."""

    function, numpy, predicate = "ge", np.greater_equal, True
    samples = _COMPARED


@dataclass(frozen=True)
class IsNaN(PiecewiseConstant):
    """Whether x is not a number."""

    domain, function, numpy, predicate = "float", "isnan", np.isnan, True
    samples = (*unary_samples(), sample(_SPECIAL))


@dataclass(frozen=True)
class IsInf(PiecewiseConstant):
    """Whether x is infinite, of the signs that are to be detected."""

    domain, predicate = "float", True
    detect_negative: bool = True
    detect_positive: bool = True
    samples = (
        *unary_samples(),
        *(
            sample(_SPECIAL, detect_negative=n, detect_positive=p)
            for n in (True, False)
            for p in (True, False)
        ),
    )

    def element(self, x: Element) -> Element:
        if self.detect_negative and self.detect_positive:
            return apply("isinf", x)
        if not (self.detect_negative or self.detect_positive):
            return number(False, BOOL)
        return apply("eq", x, float("-inf") if self.detect_negative else float("inf"))

    def evaluate(self, x: Array) -> Array:
        negative: Array = np.isneginf(x.astype(np.float64)) & self.detect_negative
        return negative | np.isposinf(x.astype(np.float64)) & self.detect_positive


@dataclass(frozen=True)
class Where(Differentiable):
    """``a`` where the bool ``condition`` holds, else ``b``."""

    narrowing = ELEMENTS
    domain = "any"
    symbolic = True
    samples = (
        sample(tensor(3, 4, dtype=BOOL), tensor(3, 4), tensor(3, 4)),
        sample(tensor(2, "n", 1, dtype=BOOL), tensor("n", 3), tensor()),
        sample(tensor(dtype=BOOL), tensor(2, dtype=I64), tensor(1, dtype=I64)),
        sample(tensor(3, dtype=BOOL), tensor(3, dtype=F16), tensor(3, dtype=F16)),
        sample(*(tensor(3, dtype=BOOL),) * 3),
    )

    def infer(self, condition: TensorType, a: TensorType, b: TensorType) -> tuple[TensorType]:
        require(
            condition.dtype == BOOL,
            f"the condition of Where must be bool, not {condition.dtype}",
            "compare it with zero first",
        )
        shape = broadcast_shapes(condition.shape, a.shape, b.shape)
        return (TensorType(shape, same_dtype(a, b)),)

    def element(self, condition: Element, a: Element, b: Element) -> Element:
        return select(condition, a, b)

    def evaluate(self, condition: Array, a: Array, b: Array) -> Array:
        return np.where(np.asarray(condition, bool), a, b)

    def adjoint(
        self, dy: Value, y: Value, condition: Value, a: Value, b: Value
    ) -> tuple[Value | None, ...]:
        zero = dy.lift(0.0)
        return None, of(Where(), condition, dy, zero), of(Where(), condition, zero, dy)


def where(condition: Value, a: Value | float, b: Value | float) -> Value:
    """``a`` where ``condition`` holds, else ``b``; one of them is a value."""
    model = a if isinstance(a, Value) else b
    assert isinstance(model, Value)
    return of(Where(), condition, model.lift(a), model.lift(b))


def above(x: Value, bound: float) -> Value:
    """Where ``x > bound``."""
    return of(Greater(), x, x.lift(bound))


_ORDERED = (
    *binary_samples(),
    *typed_samples((I64, I8, U8), 2),
    sample(np.array([np.nan, 1, np.inf], np.float32), np.array([1, np.nan, 3], np.float32)),
)


@dataclass(frozen=True)
class Min(Differentiable):
    """The lesser of a and b; NaN if either is."""

    narrowing = ELEMENTS
    function, numpy = "min", np.minimum
    samples = _ORDERED

    def adjoint(self, dy: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
        first = of(LessOrEqual(), a, b)
        return where(first, dy, 0.0), where(first, 0.0, dy)


@dataclass(frozen=True)
class Max(Differentiable):
    """The greater of a and b; NaN if either is."""

    narrowing = ELEMENTS
    function, numpy = "max", np.maximum
    samples = _ORDERED

    def adjoint(self, dy: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
        first = of(GreaterOrEqual(), a, b)
        return where(first, dy, 0.0), where(first, 0.0, dy)


@dataclass(frozen=True)
class ClipTensor(Op):
    """``min(max(x, low), high)`` with run-time scalar bounds, either of which may be absent."""

    narrowing = ELEMENTS
    samples = (
        sample(tensor(3, "n"), np.array(-0.5, np.float32), np.array(0.5, np.float32)),
        sample(tensor(3), np.array(-0.5, np.float32)),
        sample(tensor(3), None, np.array(0.5, np.float32)),
        sample(tensor(3, dtype=I32), np.array(-1, np.int32), np.array(1, np.int32)),
        sample(tensor()),
    )

    def infer(
        self, x: TensorType, low: TensorType | None = None, high: TensorType | None = None
    ) -> tuple[TensorType]:
        bounds = [b for b in (low, high) if b is not None]
        check_domain("Clip", "number", same_dtype(x, *bounds))
        require(all(b.rank == 0 for b in bounds), "the bounds of Clip must be scalars")
        return (x.with_layout(None),)

    def reference(self, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
        clipped = x if low is None else np.maximum(x, low)
        return np.asarray(clipped if high is None else np.minimum(clipped, high), x.dtype)

    def compute(
        self, at: StageBuilder, x: Operand, low: Operand | None = None, high: Operand | None = None
    ) -> Operand:
        def body(o: tuple[Index, ...]) -> Element:
            value = x[o] if low is None else apply("max", x[o], low[()])
            return value if high is None else apply("min", value, high[()])

        return at.stage(x.shape, body)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str, ...]:
        x, low, high = (*inputs, "", "")[:3]
        x = build.emit(Max(), x, low) if low else x
        return (build.emit(Min(), x, high) if high else build.emit(Identity(), x),)


@dataclass(frozen=True)
class Abs(Differentiable):
    """The magnitude of x."""

    narrowing = ELEMENTS
    function, numpy = "abs", np.abs
    samples = (*unary_samples(), *typed_samples((I64, I8, U8), 1))

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy * of(Sign(), x),)


@dataclass(frozen=True)
class Sign(PiecewiseConstant):
    """-1, 0 or 1 as x is below, at or above zero."""

    function, numpy = "sign", np.sign
    samples = (*unary_samples(), *typed_samples((I64, I8, U8), 1))


OPS: tuple[type[Op], ...] = (
    *(Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, IsNaN, IsInf),
    *(Where, Min, Max, ClipTensor, Abs, Sign),
)
