"""Contractions of quantised tensors: integers in, 32-bit sums out, or quantised again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply
from modelcc.ir.condition import Constraints
from modelcc.ir.op import Builder, Meeting, Op, require
from modelcc.ir.types import F32, I8, I16, I32, U8, Array, TensorType, dtype_of
from modelcc.ops.accumulate import Point
from modelcc.ops.arithmetic import Add, Cast, Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.conv import Conv, Windowed, with_bias
from modelcc.ops.matmul import MatMul
from modelcc.ops.quant import QuantizeLinear, quantised, saturated
from modelcc.ops.samples import bounded, scalar, tensor, vector

Given = TypeVar("Given")

_BYTES = (I8, U8)


def shifted(
    at: StageBuilder, x: Operand, zero: Operand | None, read: Callable[[Operand, Point], Element]
) -> Operand:
    """``x - zero`` in i16, which holds every difference of bytes; ``x`` without a zero point."""
    if zero is None:
        return x
    return at.stage(x.shape, lambda o: x[o].cast(I16) - read(zero, o).cast(I16))


def _require_bytes(name: str, *operands: TensorType) -> None:
    for operand in operands:
        require(operand.dtype in _BYTES, f"{name} multiplies i8 or u8, not {operand}")


def _row_zero(zero: Operand, o: Point) -> Element:
    return _single(zero) or (zero[o[-2]] if zero.rank == 1 else zero.broadcast(o))


def _column_zero(zero: Operand, o: Point) -> Element:
    return _single(zero) or zero.broadcast(o)


def _channel_zero(zero: Operand, o: Point) -> Element:
    return _single(zero) or zero[o[0]]


_i8, _u8 = partial(tensor, dtype=I8), partial(tensor, dtype=U8)
_sample = partial(bounded, (-100, 100))


def _window(rank: int, pad: int, stride: int = 1) -> Mapping[str, object]:
    steps, pads = (stride,) * rank, (pad,) * rank
    return {"strides": steps, "pads_before": pads, "pads_after": pads, "dilations": (1,) * rank}


def _both(zeros: Sequence[Given | None]) -> tuple[Given | None, Given | None]:
    """The zero points of both operands, of which the last ones may be left out."""
    first, second = (*zeros, *(None,) * (2 - len(zeros)))
    return first, second


def _single(zero: Operand) -> Element | None:
    if zero.rank == 0:
        return zero[()]
    return zero[0] if zero.shape == (1,) else None


@dataclass(frozen=True)
class MatMulInteger(Op):
    """``(a - a_zero) @ (b - b_zero)`` in i32 of i8 or u8 operands (a, b, a_zero?, b_zero?).

    Zero points are scalars, one per row of a or column of b, or broadcast against the operand.
    """

    differentiable = False
    samples = (
        _sample(_u8("n", 6), _i8(6, 4)),
        _sample(_u8(3, 6), _i8(6, 4), scalar(90, U8), scalar(-3, I8)),
        _sample(_i8(3, 5), _i8(5, 4), vector(1, -2, 3, dtype=I8), vector(4, 5, -6, 7, dtype=I8)),
        bounded((0, 255), _u8(2, 3, 5), _u8(5, 4), None, vector(9, dtype=U8)),
    )

    def infer(self, a: TensorType, b: TensorType, *zeros: TensorType | None) -> tuple[TensorType]:
        _require_bytes("MatMulInteger", a, b)
        require(a.rank >= 2 and b.rank >= 2, f"MatMulInteger multiplies matrices, not {a} and {b}")
        for x, zero in zip((a, b), _both(zeros), strict=True):
            if zero is not None:
                require(zero.dtype == x.dtype, f"zero point {zero} of {x}")
        return MatMul().infer(TensorType(a.shape, I32), TensorType(b.shape, I32))

    def shape_constraints(self, *operands: TensorType | None) -> Constraints:
        return (*MatMul().shape_constraints(*operands[:2]), *super().shape_constraints(*operands))

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        for x, zero, axis in zip(operands, operands[2:], (-2, -1), strict=False):
            if x is not None and zero is not None and zero.rank == 1 and zero.elements != 1:
                yield zero.shape[0], x.shape[axis], f"zero points {zero} of {x}"

    def reference(
        self, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
    ) -> Array:
        left, right = a.astype(np.int32), b.astype(np.int32)
        if a_zero is not None:
            left = left - (a_zero[:, None] if a_zero.ndim == 1 else a_zero).astype(np.int32)
        if b_zero is not None:
            right = right - b_zero.astype(np.int32)
        return _integer_product(left, right)

    def compute(self, at: StageBuilder, a: Operand, b: Operand, *zeros: Operand | None) -> Operand:
        a_zero, b_zero = _both(zeros)
        left, right = shifted(at, a, a_zero, _row_zero), shifted(at, b, b_zero, _column_zero)
        return MatMul().contract(at, left, right, I32)


def _integer_product(a: Array, b: Array) -> Array:
    """Exact product of small integers through the f64 routines, which are the fast ones."""
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int32)


@dataclass(frozen=True)
class ConvInteger(Windowed):
    """:class:`Conv` of ``x - x_zero`` by ``w - w_zero`` in i32 (x, w, x_zero?, w_zero?).

    x_zero is a scalar, which is also what pads mean; w_zero a scalar or one per output channel.
    Without x_zero pads are ``padding``.  Weights may be i16, too.
    """

    differentiable = False
    groups: int = 1
    padding: int = 0
    samples = (
        _sample(_u8("n", 3, 6, 6), _i8(4, 3, 3, 3), scalar(7, U8), **_window(2, 1)),
        bounded(
            *((0, 255), _u8(1, 4, 5, 5), _u8(4, 1, 3, 3), None, scalar(120, U8)),
            **{**_window(2, 1), "groups": 4},
        ),
        _sample(
            *(_i8(1, 2, 8), _i8(3, 2, 3), scalar(-5, I8), vector(1, -2, 3, dtype=I8)),
            **_window(1, 1, 2),
        ),
        _sample(_u8("n", 18, 6, 6), _i8(20, 18, 3, 3), **_window(2, 1), padding=9),
    )

    @property
    def conv(self) -> Conv:
        """The convolution itself."""
        return Conv(self.strides, self.pads_before, self.pads_after, self.dilations, self.groups)

    def infer(self, x: TensorType, w: TensorType, *zeros: TensorType | None) -> tuple[TensorType]:
        x_zero, w_zero = _both(zeros)
        _require_bytes("ConvInteger", x, *(() if w.dtype == I16 else (w,)))
        require(x_zero is None or x_zero.elements == 1, f"zero point {x_zero} must be a scalar")
        self.require_meetings(x, w, x_zero, w_zero)
        return self.conv.infer(TensorType(x.shape, I32), TensorType(w.shape, I32))

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        x, w, _, w_zero = (*operands, None, None)[:4]
        if x is None or w is None:
            return
        yield from self.conv.meetings(x, w)
        if w_zero is not None and w_zero.elements != 1:
            yield w_zero.shape[0], w.shape[0], f"zero points {w_zero} of weights {w}"

    def reference(
        self, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None
    ) -> Array:
        image, weights = x.astype(np.float64), w.astype(np.float64)
        if x_zero is not None:
            image = image - x_zero.reshape(()).astype(np.float64)
        elif self.padding:
            return self._padded_reference(image, weights)
        if w_zero is not None:
            weights = weights - w_zero.astype(np.float64).reshape(-1, *(1,) * (w.ndim - 1))
        return self.conv.reference(image, weights).astype(np.int32)

    def _padded_reference(self, image: Array, weights: Array) -> Array:
        """Pads of ``padding`` are zeros of an image less ``padding``, which is then put back."""
        bias = weights.reshape(len(weights), -1).sum(axis=1) * self.padding
        sums = self.conv.reference(image - self.padding, weights)
        return (sums + bias.reshape(-1, *(1,) * (image.ndim - 2))).astype(np.int32)

    def compute(self, at: StageBuilder, x: Operand, w: Operand, *zeros: Operand | None) -> Operand:
        x_zero, w_zero = _both(zeros)
        image = shifted(at, x, x_zero, _column_zero)
        padding = self.padding if x_zero is None else 0
        weights = shifted(at, w, w_zero, _channel_zero)
        return self.conv.contract(at, image, weights, I32, padding)


@dataclass(frozen=True)
class QLinearMatMul(Op):
    """The product of quantised matrices, quantised.

    Operands: a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero.  a's and y's parameters are
    scalars; b's may be one per column.
    """

    differentiable = False
    samples = (
        _sample(
            *(_u8("n", 6), scalar(0.02), scalar(110, U8)),
            *(_i8(6, 4), scalar(0.01), scalar(4, I8)),
            *(scalar(0.05), scalar(128, U8)),
        ),
        _sample(
            *(_i8(2, 3, 5), scalar(0.02), scalar(-7, I8)),
            *(_i8(5, 2), vector(0.01, 0.03), vector(0, 2, dtype=I8)),
            *(scalar(0.03), scalar(0, I8)),
        ),
    )

    def infer(self, *operands: TensorType) -> tuple[TensorType]:
        a, _, a_zero, b, _, b_zero, _, y_zero = operands
        (sums,) = MatMulInteger().infer(a, b, a_zero, b_zero)
        return (TensorType(sums.shape, y_zero.dtype),)

    def shape_constraints(self, *operands: TensorType | None) -> Constraints:
        a, _, a_zero, b, _, b_zero, *_ = operands
        return MatMulInteger().shape_constraints(a, b, a_zero, b_zero)

    def reference(self, *operands: Array) -> Array:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
        sums = MatMulInteger().reference(a, b, a_zero, b_zero)
        return _requantised(sums, a_scale * b_scale / y_scale, y_zero)

    def decompose(self, build: Builder, *operands: str) -> tuple[str]:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
        sums = build.emit(MatMulInteger(), a, b, a_zero, b_zero)
        scales = (Value(build, name) for name in (a_scale, b_scale, y_scale))
        return (_requantised_value(Value(build, sums), _multiplier(*scales), y_zero),)

    def compute(self, at: StageBuilder, *operands: Operand) -> Operand:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
        sums = MatMulInteger().compute(at, a, b, a_zero, b_zero)
        factor = _multiplier_stage(at, a_scale, b_scale, y_scale)
        return _requantise(at, sums, factor, -1, y_zero)


@dataclass(frozen=True)
class QLinearConv(Windowed):
    """The convolution of a quantised image, quantised.

    Operands: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b?.  Parameters of w may be
    one per output channel; b is i32 in units of ``x_scale * w_scale``.
    """

    differentiable = False
    groups: int = 1
    samples = (
        _sample(
            *(_u8("n", 3, 6, 6), scalar(0.02), scalar(100, U8)),
            *(_i8(4, 3, 3, 3), scalar(0.01), scalar(0, I8)),
            *(scalar(0.05), scalar(128, U8), vector(5, -900, 800, 3, dtype=I32)),
            **_window(2, 1),
        ),
        _sample(
            *(_i8(1, 3, 8, 8), scalar(0.02), scalar(-3, I8)),
            *(_i8(3, 1, 3, 3), vector(0.01, 0.02, 0.005), vector(0, 0, 0, dtype=I8)),
            *(scalar(0.04), scalar(2, I8)),
            **{**_window(2, 1, 2), "groups": 3},
        ),
    )

    @property
    def integer(self) -> ConvInteger:
        """The integer convolution inside."""
        return ConvInteger(
            self.strides, self.pads_before, self.pads_after, self.dilations, self.groups
        )

    def infer(self, *operands: TensorType) -> tuple[TensorType]:
        x, _, x_zero, w, _, w_zero, _, y_zero, *_ = operands
        (sums,) = self.integer.infer(x, w, x_zero, w_zero)
        return (TensorType(sums.shape, y_zero.dtype),)

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        x, _, x_zero, w, w_scale, w_zero, _, _, *b = operands
        yield from self.integer.meetings(x, w, x_zero, w_zero)
        for p in (w_scale, *b):
            if w is not None and p is not None and p.elements != 1:
                yield p.shape[0], w.shape[0], f"parameter {p} of weights {w}"

    def reference(self, *operands: Array) -> Array:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *b = operands
        ones = (1,) * (x.ndim - 2)
        sums = self.integer.reference(x, w, x_zero, w_zero)
        for bias in b:
            sums = sums + bias.reshape(-1, *ones)
        factor = x_scale * w_scale / y_scale
        return _requantised(sums, factor.reshape(-1, *ones), y_zero)

    def decompose(self, build: Builder, *operands: str) -> tuple[str]:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *b = operands
        sums = Value(build, build.emit(self.integer, x, w, x_zero, w_zero))
        column = Reshape((build.type_of(w).shape[0], *(1,) * (sums.type.rank - 2)))
        for bias in filter(None, b):
            sums = of(Add(), sums, of(column, Value(build, bias)))
        factor = _multiplier(*(Value(build, name) for name in (x_scale, w_scale, y_scale)))
        factor = of(column, factor) if factor.type.elements != 1 else factor
        return (_requantised_value(sums, factor, y_zero),)

    def compute(self, at: StageBuilder, *operands: Operand) -> Operand:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *b = operands
        sums = self.integer.compute(at, x, w, x_zero, w_zero)
        sums = with_bias(at, sums, b[0] if b else None, I32)
        factor = _multiplier_stage(at, x_scale, w_scale, y_scale)
        return _requantise(at, sums, factor, 1, y_zero)


def _requantised(sums: Array, multiplier: Array, zero: Array) -> Array:
    value = np.rint(sums.astype(np.float32) * multiplier.astype(np.float32))
    return quantised(value + zero.astype(np.float32), dtype_of(zero))


def _multiplier(x_scale: Value, w_scale: Value, y_scale: Value) -> Value:
    x, w, y = (of(Cast(F32), s) for s in (x_scale, w_scale, y_scale))
    return x * w / y


def _requantised_value(sums: Value, multiplier: Value, zero: str) -> str:
    """``sums * multiplier``, rounded, as quantised numbers with this zero point."""
    build = sums.build
    real = of(Cast(F32), sums) * multiplier
    unit = build.constant(1.0, F32)
    return build.emit(QuantizeLinear(build.type_of(zero).dtype), real.name, unit, zero)


def _multiplier_stage(
    at: StageBuilder, x_scale: Operand, w_scale: Operand, y_scale: Operand
) -> Operand:
    def body(o: Point) -> Element:
        x, w, y = (s.broadcast(o).cast(F32) for s in (x_scale, w_scale, y_scale))
        return x * w / y

    return at.stage(w_scale.shape, body)


def _requantise(
    at: StageBuilder, sums: Operand, multiplier: Operand, axis: int, zero: Operand
) -> Operand:
    def body(o: Point) -> Element:
        single = _single(multiplier)
        factor = multiplier[o[axis]] if single is None else single
        real = apply("round", sums[o].cast(F32) * factor)
        return saturated(real + _column_zero(zero, o).cast(F32), zero.dtype)

    return at.stage(sums.shape, body)


OPS: tuple[type[Op], ...] = (MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv)
