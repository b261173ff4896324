"""Pooling: MaxPool, AveragePool and LpPool over the spatial axes of [N, C, *S]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, guard, index_value, number
from modelcc.ir.index import Index, product
from modelcc.ir.op import Op, Sample, require
from modelcc.ir.types import F16, I8, U8, Array, DType, TensorType, dtype_of
from modelcc.ops.accumulate import (
    Point,
    accumulator,
    combined,
    require_float,
    require_numeric,
    widen,
)
from modelcc.ops.samples import tensor
from modelcc.ops.window import Window, require_rank, taps


def lowest(dtype: DType) -> float | int:
    """The identity of max: minus infinity, or the least integer."""
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min)


def _sample(x: TensorType, kernel: tuple[int, ...], **attributes: object) -> Sample:
    """A sample with stride 1 and neither pads nor dilation unless given."""
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    plain = {"strides": ones, "pads_before": zeros, "pads_after": zeros, "dilations": ones}
    return Sample((x,), {"kernel": kernel, **plain, **attributes})


def _geometries() -> tuple[Sample, ...]:
    asymmetric = {"strides": (2, 1), "pads_before": (1, 0), "pads_after": (0, 2)}
    ceil = {"strides": (2, 2), "ceil_mode": True}
    return (
        _sample(tensor("n", 3, 8, 8), (2, 2), strides=(2, 2)),
        _sample(tensor(2, 3, 7, 6), (3, 3), strides=(2, 2), pads_before=(1, 1), pads_after=(1, 1)),
        _sample(tensor(1, 2, "h", "w"), (3, 3), pads_before=(1, 1), pads_after=(1, 1)),
        _sample(tensor(1, 2, 7, 8), (3, 4), **asymmetric),
        _sample(tensor(1, 2, 7, 8), (3, 3), **ceil),
        _sample(tensor(1, 2, 6, 7), (2, 3), pads_before=(0, 1), pads_after=(1, 1), **ceil),
        _sample(
            tensor(1, 2, 9, 9), (3, 2), dilations=(2, 3), pads_before=(2, 0), pads_after=(1, 1)
        ),
        _sample(tensor(2, 3, "t"), (3,), strides=(2,), pads_before=(1,), pads_after=(1,)),
        _sample(tensor(1, 2, 4, 5, 6), (2, 3, 2), strides=(2, 1, 2)),
        _sample(tensor(1, 2, 6, dtype=F16), (2,)),
    )


@dataclass(frozen=True)
class Pool(Op):
    """What the poolings share: the window, its checks and its result type."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_before: tuple[Index, ...]
    pads_after: tuple[Index, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def window(self) -> Window:
        """The sliding window."""
        return Window(
            self.kernel,
            self.strides,
            self.pads_before,
            self.pads_after,
            self.dilations,
            self.ceil_mode,
        )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        name = type(self).__name__
        require_numeric(x.dtype, name)
        require(x.rank >= 3, f"{name} needs [batch, channels, *spatial], not {x}")
        require_rank(self.window, x.rank - 2)
        return (TensorType((*x.shape[:2], *self.window.extents(x.shape[2:])), x.dtype),)

    def read(self, x: Operand, o: Point, r: Point, outside: float | int) -> Element:
        """The element that tap ``r`` of output ``o`` sees, ``outside`` in the padding."""
        window = self.window
        place = tuple(window.position(a, o[2 + a], r[a]) for a in range(window.rank))
        return guard(window.conditions(place, x.shape[2:]), x[(*o[:2], *place)], outside)


def sum_of_taps(x: Array, window: Window) -> Array:
    """Sum of each window, padding counting as 0."""
    return np.add.reduce([view for _, view in taps(x, window)])


@dataclass(frozen=True)
class MaxPool(Pool):
    """Greatest element of each window; padding never wins."""

    samples: ClassVar[tuple[Sample, ...]] = (
        *_geometries(),
        _sample(tensor(1, 2, 6, 6, dtype=I8), (3, 3), pads_before=(1, 1), pads_after=(1, 1)),
        _sample(tensor(1, 2, 6, 6, dtype=U8), (2, 2)),
    )

    def reference(self, x: Array) -> Array:
        views = [view for _, view in taps(x, self.window, lowest(dtype_of(x)))]
        return np.maximum.reduce(views)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)
        low = lowest(x.dtype)
        return combined(at, result.shape, self.kernel, "max", lambda o, r: self.read(x, o, r, low))


@dataclass(frozen=True)
class AveragePool(Pool):
    """Mean of each window: over the elements inside x, or padding too if ``count_include_pad``."""

    count_include_pad: bool = False
    samples: ClassVar[tuple[Sample, ...]] = (
        *_geometries(),
        *(
            Sample(s.operands, {**s.attributes, "count_include_pad": True})
            for s in _geometries()[1:7]
        ),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "AveragePool")
        return super().infer(x)

    def count(self, positions: Sequence[Index], sizes: Sequence[Index]) -> Index:
        """Number of elements averaged at output ``positions``."""
        return product(
            self.window.count(axis, position, size, self.count_include_pad)
            for axis, (position, size) in enumerate(zip(positions, sizes, strict=True))
        )

    def reference(self, x: Array) -> Array:
        total = sum_of_taps(widen(x), self.window)
        counts = np.ones((), total.dtype)
        for axis, extent in enumerate(total.shape[2:]):
            each = [
                self.window.count(axis, o, x.shape[2 + axis], self.count_include_pad)
                for o in range(extent)
            ]
            counts = counts[..., None] * np.array(each, total.dtype)
        return (total / counts).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)
        wide = accumulator(x.dtype)
        total = combined(
            at,
            result.shape,
            self.kernel,
            "sum",
            lambda o, r: self.read(x, o, r, 0).cast(wide),
        )

        def mean(o: Point) -> Element:
            count = self.count(o[2:], x.shape[2:])
            divisor = number(count, wide) if isinstance(count, int) else index_value(count, wide)
            return (total[o] / divisor).cast(x.dtype)

        return at.stage(result.shape, mean)


@dataclass(frozen=True)
class LpPool(Pool):
    """``(sum of |x|^p) ^ (1/p)`` over each window, padding counting as 0."""

    p: int = 2
    samples: ClassVar[tuple[Sample, ...]] = (
        *_geometries(),
        _sample(tensor(1, 2, 6, 6), (2, 2), p=1),
        _sample(tensor(1, 2, 6, 6), (2, 3), p=3, pads_before=(1, 0)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "LpPool")
        require(self.p >= 1, f"LpPool needs p of at least 1, not {self.p}")
        return super().infer(x)

    def reference(self, x: Array) -> Array:
        powers = np.abs(widen(x)) ** self.p
        total = sum_of_taps(powers, self.window)
        return (total ** (1 / self.p)).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)
        wide = accumulator(x.dtype)

        def body(o: Point, r: Point) -> Element:
            return magnitude_power(self.read(x, o, r, 0).cast(wide), self.p)

        total = combined(at, result.shape, self.kernel, "sum", body)
        return at.stage(result.shape, lambda o: root(total[o], self.p).cast(x.dtype))


def magnitude_power(x: Element, p: int) -> Element:
    """``|x| ** p``."""
    match p:
        case 1:
            return apply("abs", x)
        case 2:
            return x * x
        case _:
            return apply("pow", apply("abs", x), float(p))


def root(x: Element, p: int) -> Element:
    """``x ** (1/p)`` of a non-negative number."""
    match p:
        case 1:
            return x
        case 2:
            return apply("sqrt", x)
        case _:
            return apply("pow", x, 1 / p)


OPS: tuple[type[Op], ...] = (MaxPool, AveragePool, LpPool)
