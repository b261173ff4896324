"""Quantisation of tensors: to and from integers by ``real = (q - zero_point) * scale``.

Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
inference", 2018.  Scales are per tensor (scalar or one element), per slice of ``axis`` (vector) or
per block of ``block`` elements along it (same rank as x).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, number, select
from modelcc.ir.index import ceildiv, floordiv
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Values, require
from modelcc.ir.types import F8E4M3FN, F16, F32, I4, I8, I32, U8, Array, DType, TensorType
from modelcc.ops.accumulate import Point, accumulator, combined, require_float, widen
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum, Reshape
from modelcc.ops.generate import filled
from modelcc.ops.padding import Pad
from modelcc.ops.samples import bounded, sample, scalar, tensor, vector

_SCALES, _SCALES_OF_BLOCKS = vector(0.01, 0.02, 0.1), vector(*np.arange(1, 7) / 10).reshape(2, 3)
_I8 = -128, 127


def limits(dtype: DType) -> tuple[float, float]:
    """The least and the greatest finite number of a quantised type."""
    if dtype.is_float:
        high = float(cast(Any, ml_dtypes.finfo)(dtype.numpy).max)
        return -high, high
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


@dataclass(frozen=True)
class Granularity:
    """Which parameter belongs to which element: that of slice ``axis``, in blocks if ``block``."""

    axis: int
    block: int

    def check(self, x: TensorType, parameter: TensorType, what: str) -> None:
        """Refuse a parameter whose shape does not fit ``x``."""
        if parameter.elements == 1 and parameter.rank <= 1:
            return
        require(
            0 <= self.axis < x.rank, f"axis {self.axis} of a quantisation of {x} is out of range"
        )
        if not self.block:
            require(parameter.rank == 1, f"{what} {parameter} must be a scalar or a vector")
            return
        require(parameter.rank == x.rank, f"blocked {what} {parameter} must have the rank of {x}")

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        """Extents of parameters, which follow the first operand, that must be equal to others."""
        x, *parameters = operands
        for p in parameters:
            if p is None or x is None or (p.elements == 1 and p.rank <= 1):
                continue
            for axis, (own, extent) in enumerate(zip(p.shape, x.shape, strict=False)):
                if not self.block:
                    yield own, x.shape[self.axis], f"parameter {p} along axis {self.axis} of {x}"
                    break
                blocks = ceildiv(extent, self.block) if axis == self.axis else extent
                yield own, blocks, f"parameter {p} along axis {axis} of {x}"

    def read(self, parameter: Operand, o: Point) -> Element:
        """The parameter of the element at ``o``."""
        if parameter.rank == 0:
            return parameter[()]
        if parameter.rank == 1 and parameter.shape[0] == 1:
            return parameter[0]
        if not self.block:
            return parameter[o[self.axis]]
        place = floordiv(o[self.axis], self.block)
        return parameter[(*o[: self.axis], place, *o[self.axis + 1 :])]

    def summed(self, x: Value, parameter: TensorType) -> Value:
        """Of the elements of ``x``, those of each element of a parameter."""
        shape, axis = x.type.shape, self.axis
        if parameter.elements == 1:
            return of(Reshape(parameter.shape), of(ReduceSum(tuple(range(len(shape)))), x))
        if not self.block:
            others = tuple(a for a in range(len(shape)) if a != axis)
            return of(ReduceSum(others, keepdims=False), x)
        blocks = parameter.shape[axis]
        missing = tuple(
            blocks * self.block - shape[axis] if a == axis else 0 for a in range(len(shape))
        )
        whole = of(Pad((0,) * len(shape), missing), x)
        split = (*shape[:axis], blocks, self.block, *shape[axis + 1 :])
        return of(ReduceSum((axis + 1,), keepdims=False), of(Reshape(split), whole))

    def spread(self, parameter: Array, x: Array) -> Array:
        """The parameters, shaped to broadcast against ``x``."""
        if parameter.size == 1:
            return parameter.reshape(())
        if not self.block:
            return parameter.reshape(-1, *(1,) * (x.ndim - self.axis - 1))
        every = np.repeat(parameter, self.block, self.axis)
        return every[(slice(None),) * self.axis + (slice(x.shape[self.axis]),)]


def quantised(value: Array, to: DType) -> Array:
    """``value``, already rounded, limited to the range of ``to``."""
    low, high = limits(to)
    return np.clip(value, low, high).astype(to.numpy)


def saturated(value: Element, to: DType) -> Element:
    """``value``, already rounded, limited to the range of ``to``."""
    low, high = limits(to)
    return apply("min", apply("max", value, low), high).cast(to)


class LinearQuantization(Op):
    """Base: a scale and maybe a zero point for the tensor, each slice of ``axis`` or each block."""

    axis: int
    block: int

    @property
    def granularity(self) -> Granularity:
        """Which parameter belongs to which element."""
        return Granularity(self.axis, self.block)

    def check(self, x: TensorType, scale: TensorType, zero: TensorType | None) -> None:
        """Refuse parameters that do not fit."""
        require_float(scale.dtype, type(self).__name__)
        self.granularity.check(x, scale, "scale")
        if zero is not None:
            self.granularity.check(x, zero, "zero point")
        self.require_meetings(x, scale, zero)

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        return self.granularity.meetings(*operands)


@dataclass(frozen=True)
class QuantizeLinear(LinearQuantization):
    """``saturate(round(x / scale) + zero_point)`` as ``to``, halves to even (x, scale, zero?)."""

    differentiable = False
    to: DType = U8
    axis: int = 1
    block: int = 0
    samples = (
        sample(tensor("n", 4), scalar(0.02), scalar(120, U8)),
        sample(tensor(2, 3, "h"), _SCALES, to=I8),
        sample(tensor(3, 4), _SCALES, vector(0, 5, -9, dtype=I8), to=I8, axis=0),
        sample(tensor(2, 5), _SCALES_OF_BLOCKS, to=I8, block=2),
        sample(tensor(4, 6), scalar(0.2), to=I4),
        sample(np.array([0.5, 1.5, 2.5, -0.5], np.float32), scalar(1), to=I8),
        sample(tensor(5, dtype=F16), scalar(0.1, F16), to=I8),
        sample(tensor(5), scalar(0.001), to=F8E4M3FN),
    )

    def infer(
        self, x: TensorType, scale: TensorType, zero: TensorType | None = None
    ) -> tuple[TensorType]:
        require_float(x.dtype, "QuantizeLinear")
        same = zero is None or zero.dtype == self.to
        require(same, f"zero point {zero} of a quantisation to {self.to}")
        self.check(x, scale, zero)
        return (TensorType(x.shape, self.to),)

    def reference(self, x: Array, scale: Array, zero: Array | None = None) -> Array:
        value = widen(x) / self.granularity.spread(widen(scale), x)
        if not self.to.is_float:
            value = np.rint(value)
        if zero is not None:
            value = value + self.granularity.spread(zero.astype(value.dtype), x)
        return quantised(value, self.to)

    def compute(
        self, at: StageBuilder, x: Operand, scale: Operand, zero: Operand | None = None
    ) -> Operand:
        granularity, wide = self.granularity, accumulator(x.dtype)

        def body(o: Point) -> Element:
            value = x[o].cast(wide) / granularity.read(scale, o).cast(wide)
            value = value if self.to.is_float else apply("round", value)
            if zero is not None:
                value = value + granularity.read(zero, o).cast(wide)
            return saturated(value, self.to)

        return at.stage(x.shape, body)


@dataclass(frozen=True)
class DequantizeLinear(LinearQuantization):
    """``(x - zero_point) * scale`` in the dtype of scale (x, scale, zero?)."""

    axis: int = 1
    block: int = 0
    samples = (
        bounded((0, 255), tensor("n", 4, dtype=U8), scalar(0.02), scalar(120, U8)),
        bounded(_I8, tensor(2, 3, "h", dtype=I8), _SCALES),
        bounded(_I8, tensor(3, 4, dtype=I8), _SCALES, vector(0, 5, -9, dtype=I8), axis=0),
        bounded(_I8, tensor(2, 5, dtype=I8), _SCALES_OF_BLOCKS, block=2),
        bounded((-1000, 1000), tensor(4, dtype=I32), scalar(0.5)),
        bounded(_I8, tensor(5, dtype=I8), scalar(0.1, F16)),
    )

    def infer(
        self, x: TensorType, scale: TensorType, zero: TensorType | None = None
    ) -> tuple[TensorType]:
        same = zero is None or zero.dtype == x.dtype
        require(same, f"zero point {zero} of {x}: the element types must agree")
        self.check(x, scale, zero)
        return (TensorType(x.shape, scale.dtype),)

    def reference(self, x: Array, scale: Array, zero: Array | None = None) -> Array:
        value = x.astype(widen(scale).dtype)
        if zero is not None:
            value = value - self.granularity.spread(zero.astype(value.dtype), x)
        return (value * self.granularity.spread(widen(scale), x)).astype(scale.dtype, copy=False)

    def compute(
        self, at: StageBuilder, x: Operand, scale: Operand, zero: Operand | None = None
    ) -> Operand:
        granularity, wide = self.granularity, accumulator(scale.dtype)

        def body(o: Point) -> Element:
            value = x[o].cast(wide)
            if zero is not None:
                value = value - granularity.read(zero, o).cast(wide)
            return (value * granularity.read(scale, o).cast(wide)).cast(scale.dtype)

        return at.stage(x.shape, body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """Of the scale: what it is multiplied by, summed over its elements."""
        x, scale, *zero = inputs
        one = filled(build, scale, 1.0)
        steps = Value(build, build.emit(self, x, one, *zero))
        total = self.granularity.summed(Value(build, dys[0]) * steps, build.type_of(scale))
        return None, total.name, *(None for _ in zero)


@dataclass(frozen=True)
class DynamicQuantizeLinear(Op):
    """x as u8 with the scale and zero point that its own range, extended to 0, asks for."""

    differentiable = False
    samples = (
        sample(tensor("n", 6)),
        bounded((0.5, 2.0), tensor(3, 4)),
        bounded((-3.0, -1.0), tensor(5)),
        sample(np.zeros((2, 2), np.float32)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        require(x.dtype == F32, f"DynamicQuantizeLinear takes f32, not {x}")
        return TensorType(x.shape, U8), TensorType((), F32), TensorType((), U8)

    def reference(self, x: Array) -> tuple[Array, Array, Array]:
        low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
        scale = np.asarray(1 if high == low else (high - low) / np.float32(255), np.float32)
        zero = quantised(np.rint(-low / scale), U8)
        y = quantised(np.rint(x / scale) + zero.astype(np.float32), U8)
        return y, scale, np.asarray(zero)

    def compute(self, at: StageBuilder, x: Operand) -> tuple[Operand, Operand, Operand]:
        def extreme(o: Point, r: Point) -> Element:
            return x[r]

        highest = combined(at, (), x.shape, "max", extreme)
        lowest = combined(at, (), x.shape, "min", extreme)

        def low() -> Element:
            return apply("min", lowest[()], 0.0)

        def step(_: Point) -> Element:
            extent = apply("max", highest[()], 0.0) - low()
            return select(apply("eq", extent, 0.0), number(1.0, F32), extent / 255.0)

        scale = at.stage((), step)
        zero = at.stage((), lambda _: saturated(apply("round", -low() / scale[()]), U8))

        def body(o: Point) -> Element:
            return saturated(apply("round", x[o] / scale[()]) + zero[()].cast(F32), U8)

        return at.stage(x.shape, body), scale, zero


@dataclass(frozen=True)
class Saturate(Op):
    """``round(x)``, halves to even, limited to the range of the integers ``to``."""

    differentiable = False
    to: DType = U8
    samples = (
        bounded((-100, 400), tensor("n", 4)),
        bounded((-200, 200), tensor(2, 3), to=I8),
        sample(np.array([0.5, 1.5, 2.5, -0.5, 1e9, -1e9], np.float32), to=I8),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(x.dtype == F32, f"Saturate takes f32, not {x}")
        return (TensorType(x.shape, self.to),)

    def reference(self, x: Array) -> Array:
        return quantised(np.rint(x), self.to)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        low, high = limits(self.to)

        def body(o: Point) -> Element:
            # The limits are whole, so rounding afterwards is the same, and one conversion.
            return apply("round", apply("min", apply("max", x[o], low), high)).cast(self.to)

        return at.stage(x.shape, body)


@dataclass(frozen=True)
class Recentre(Op):
    """u8 as i8 less 128, or i8 as u8 plus 128: the same steps from another zero point."""

    differentiable = False
    samples = (
        bounded((0, 255), tensor("n", 4, dtype=U8)),
        sample(np.array([-128, -1, 0, 127], np.int8)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(x.dtype in (I8, U8), f"Recentre takes bytes, not {x}")
        return (TensorType(x.shape, U8 if x.dtype == I8 else I8),)

    def reference(self, x: Array) -> Array:
        other = np.uint8 if x.dtype == np.int8 else np.int8
        return np.asarray(x.view(np.uint8) ^ np.uint8(128)).view(other)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        to = U8 if x.dtype == I8 else I8
        return at.stage(x.shape, lambda o: apply("xor", x[o].cast(U8), 128).cast(to))


OPS: tuple[type[Op], ...] = (
    QuantizeLinear,
    DequantizeLinear,
    DynamicQuantizeLinear,
    Saturate,
    Recentre,
)
