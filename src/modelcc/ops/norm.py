"""Normalisations: by running statistics, over trailing axes, instances, groups and channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, guard, number, select
from modelcc.ir.index import Index, floordiv
from modelcc.ir.op import Op, Sample, require, same_dtype
from modelcc.ir.tensor import Condition
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops.accumulate import (
    Point,
    accumulator,
    combined,
    require_equal,
    require_float,
    widen,
)
from modelcc.ops.pool import magnitude_power, root
from modelcc.ops.samples import tensor
from modelcc.ops.statistics import statistics


def _require_channels(x: TensorType, *parameters: TensorType | None) -> None:
    """Every per-channel parameter is a vector over axis 1 of ``x``."""
    require(x.rank >= 2, f"needs [batch, channels, *spatial], not {x}")
    for p in parameters:
        if p is not None:
            require(p.rank == 1, f"per-channel parameter {p} must have one axis")
            require_equal(p.shape[0], x.shape[1], f"parameter {p} against the channels of {x}")


def _per_channel(values: Array, rank: int) -> Array:
    return values.reshape(-1, *(1,) * (rank - 2))


@dataclass(frozen=True)
class BatchNorm(Op):
    """``(x - mean) * scale / sqrt(var + epsilon) + bias`` with given statistics per channel.

    Ioffe & Szegedy, "Batch normalization", 2015, at inference.
    """

    epsilon: float = 1e-5
    samples: ClassVar[tuple[Sample, ...]] = (
        Sample((tensor("n", 3, 4, 5), *(tensor(3),) * 4), {}, 0.1, 2.0),
        Sample((tensor(2, 3, "t"), *(tensor(3),) * 4), {"epsilon": 1e-3}, 0.1, 2.0),
        Sample((tensor(4, 3), *(tensor(3),) * 4), {}, 0.1, 2.0),
        Sample((tensor(2, 3, 2, dtype=F16), *(tensor(3, dtype=F16),) * 4), {}, 0.1, 2.0),
    )

    def infer(
        self,
        x: TensorType,
        scale: TensorType,
        bias: TensorType,
        mean: TensorType,
        var: TensorType,
    ) -> tuple[TensorType]:
        require_float(x.dtype, "BatchNorm")
        _require_channels(x, scale, bias, mean, var)
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Array:
        factor = widen(scale) / np.sqrt(widen(var) + np.asarray(self.epsilon, widen(var).dtype))
        centred = widen(x) - _per_channel(widen(mean), x.ndim)
        y = centred * _per_channel(factor, x.ndim) + _per_channel(widen(bias), x.ndim)
        return y.astype(x.dtype, copy=False)

    def compute(
        self,
        at: StageBuilder,
        x: Operand,
        scale: Operand,
        bias: Operand,
        mean: Operand,
        var: Operand,
    ) -> Operand:
        wide = accumulator(x.dtype)
        factor = at.stage(
            scale.shape,
            lambda o: scale[o].cast(wide) * apply("rsqrt", var[o].cast(wide) + self.epsilon),
        )

        def body(o: Point) -> Element:
            centred = x[o].cast(wide) - mean[o[1]].cast(wide)
            return (centred * factor[o[1]] + bias[o[1]].cast(wide)).cast(x.dtype)

        return at.stage(x.shape, body)


@dataclass(frozen=True)
class LayerNorm(Op):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` over the axes from ``axis`` on.

    scale and bias broadcast to those axes (Ba et al., "Layer normalization", 2016).
    """

    axis: int
    epsilon: float = 1e-5
    samples: ClassVar[tuple[Sample, ...]] = (
        Sample((tensor("b", "s", 8), tensor(8), tensor(8)), {"axis": 2}),
        Sample((tensor(2, 3, 4), tensor(3, 4)), {"axis": 1, "epsilon": 1e-3}),
        Sample((tensor(2, 3, 4),), {"axis": 2}),
        Sample((tensor(2, "d"), tensor("d"), tensor("d")), {"axis": 1}),
        Sample((tensor(2, 6, dtype=F16), tensor(6, dtype=F16), tensor(6, dtype=F16)), {"axis": 1}),
    )

    def infer(
        self, x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None
    ) -> tuple[TensorType]:
        return _infer_trailing(type(self).__name__, self.axis, x, scale, bias)

    def reference(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        wide, axes = widen(x), tuple(range(self.axis, x.ndim))
        centred = wide - wide.mean(axis=axes, keepdims=True)
        variance = np.square(centred).mean(axis=axes, keepdims=True)
        y = centred / np.sqrt(variance + np.asarray(self.epsilon, wide.dtype))
        return _affine(y, scale, bias).astype(x.dtype, copy=False)

    def compute(
        self,
        at: StageBuilder,
        x: Operand,
        scale: Operand | None = None,
        bias: Operand | None = None,
    ) -> Operand:
        return _trailing(at, x, self.axis, self.epsilon, True, scale, bias)


@dataclass(frozen=True)
class RMSNorm(Op):
    """``x / sqrt(mean of x^2 + epsilon) * scale`` over the axes from ``axis`` on.

    Zhang & Sennrich, "Root mean square layer normalization", 2019.
    """

    axis: int
    epsilon: float = 1e-5
    samples: ClassVar[tuple[Sample, ...]] = (
        Sample((tensor("b", "s", 8), tensor(8)), {"axis": 2}),
        Sample((tensor(2, 3, 4), tensor(3, 4)), {"axis": 1, "epsilon": 1e-3}),
        Sample((tensor(2, 6, dtype=F16), tensor(6, dtype=F16)), {"axis": 1}),
    )

    def infer(self, x: TensorType, scale: TensorType | None = None) -> tuple[TensorType]:
        return _infer_trailing("RMSNorm", self.axis, x, scale, None)

    def reference(self, x: Array, scale: Array | None = None) -> Array:
        wide, axes = widen(x), tuple(range(self.axis, x.ndim))
        squares = np.square(wide).mean(axis=axes, keepdims=True)
        y = wide / np.sqrt(squares + np.asarray(self.epsilon, wide.dtype))
        return _affine(y, scale, None).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand, scale: Operand | None = None) -> Operand:
        return _trailing(at, x, self.axis, self.epsilon, False, scale, None)


def _infer_trailing(
    name: str, axis: int, x: TensorType, *parameters: TensorType | None
) -> tuple[TensorType]:
    require_float(x.dtype, name)
    require(0 <= axis < x.rank, f"{name} from axis {axis} on of {x}, which has {x.rank} axes")
    for p in parameters:
        if p is None:
            continue
        same_dtype(x, p)
        require(p.rank <= x.rank, f"{name} parameter {p} has more axes than {x}")
        for ours, theirs in zip(reversed(p.shape), reversed(x.shape), strict=False):
            if ours != 1:
                require_equal(ours, theirs, f"{name} parameter {p} does not broadcast to {x}")
    return (TensorType(x.shape, x.dtype),)


def _affine(y: Array, scale: Array | None, bias: Array | None) -> Array:
    y = y if scale is None else y * widen(scale)
    return y if bias is None else y + widen(bias)


def _trailing(
    at: StageBuilder,
    x: Operand,
    kept: int,
    epsilon: float,
    centred: bool,
    scale: Operand | None,
    bias: Operand | None,
) -> Operand:
    outer, inner = x.shape[:kept], x.shape[kept:]
    stats = statistics(at, x, outer, inner, lambda o, r: (*o, *r), epsilon, centred)
    wide = stats.inverse.dtype

    def body(o: Point) -> Element:
        value = stats.normalise(x[o], o[:kept])
        value = value if scale is None else value * scale.broadcast(o).cast(wide)
        value = value if bias is None else value + bias.broadcast(o).cast(wide)
        return value.cast(x.dtype)

    return at.stage(x.shape, body)


@dataclass(frozen=True)
class GroupNorm(Op):
    """Normalises each of ``groups`` runs of channels of each image, then scales per channel.

    x is ``[N, C, *S]``, scale and bias ``[C]`` (Wu & He, "Group normalization", 2018).
    """

    groups: int
    epsilon: float = 1e-5
    samples: ClassVar[tuple[Sample, ...]] = (
        Sample((tensor("n", 4, 3, 3), tensor(4), tensor(4)), {"groups": 2}),
        Sample((tensor(2, 6, "t"), tensor(6), tensor(6)), {"groups": 3, "epsilon": 1e-3}),
        Sample((tensor(2, 4, 3, 3), tensor(4), tensor(4)), {"groups": 1}),
    )

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "GroupNorm")
        _require_channels(x, scale, bias)
        channels = x.shape[1]
        require(
            not isinstance(channels, int) or channels % self.groups == 0,
            f"{channels} channels of {x} do not divide into {self.groups} groups",
        )
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        return _grouped(x, self.groups, self.epsilon, scale, bias)

    def compute(self, at: StageBuilder, x: Operand, scale: Operand, bias: Operand) -> Operand:
        return _group_stages(at, x, self.groups, self.epsilon, scale, bias)


@dataclass(frozen=True)
class InstanceNorm(Op):
    """Normalises each channel of each image over its spatial axes, then scales per channel.

    Ulyanov et al., "Instance normalization", 2016.
    """

    epsilon: float = 1e-5
    samples: ClassVar[tuple[Sample, ...]] = (
        Sample((tensor("n", 3, 4, 5), tensor(3), tensor(3)), {}),
        Sample((tensor(2, 3, "t"), tensor(3), tensor(3)), {"epsilon": 1e-2}),
        Sample((tensor(2, 3, 6, dtype=F16), *(tensor(3, dtype=F16),) * 2), {}),
    )

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "InstanceNorm")
        _require_channels(x, scale, bias)
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        return _grouped(x, x.shape[1], self.epsilon, scale, bias)

    def compute(self, at: StageBuilder, x: Operand, scale: Operand, bias: Operand) -> Operand:
        return _group_stages(at, x, x.shape[1], self.epsilon, scale, bias)


def _grouped(x: Array, groups: int, epsilon: float, scale: Array, bias: Array) -> Array:
    wide = widen(x).reshape(x.shape[0], groups, -1)
    centred = wide - wide.mean(axis=2, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=2, keepdims=True) + wide.dtype.type(epsilon))
    y = (centred / deviation).reshape(x.shape)
    y = y * _per_channel(widen(scale), x.ndim) + _per_channel(widen(bias), x.ndim)
    return y.astype(x.dtype, copy=False)


def _group_stages(
    at: StageBuilder, x: Operand, groups: Index, epsilon: float, scale: Operand, bias: Operand
) -> Operand:
    size = floordiv(x.shape[1], groups)

    def place(o: Point, r: Point) -> Point:
        return (o[0], o[1] * size + r[0], *r[1:])

    inner = (size, *x.shape[2:])
    stats = statistics(at, x, (x.shape[0], groups), inner, place, epsilon)
    wide = stats.inverse.dtype

    def body(o: Point) -> Element:
        value = stats.normalise(x[o], (o[0], floordiv(o[1], size)))
        return (value * scale[o[1]].cast(wide) + bias[o[1]].cast(wide)).cast(x.dtype)

    return at.stage(x.shape, body)


@dataclass(frozen=True)
class LpNormalization(Op):
    """``x / (sum of |x|^p along axis)^(1/p)``; zero vectors stay zero."""

    axis: int
    p: int = 2
    samples: ClassVar[tuple[Sample, ...]] = (
        Sample((tensor(3, "n"),), {"axis": 1}),
        Sample((tensor(2, 3, 4),), {"axis": 1, "p": 1}),
        Sample((tensor(2, 4, dtype=F16),), {"axis": 0}),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "LpNormalization")
        require(0 <= self.axis < x.rank, f"LpNormalization along axis {self.axis} of {x}")
        require(self.p in (1, 2), f"LpNormalization knows p of 1 and 2, not {self.p}")
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array) -> Array:
        wide = widen(x)
        norm = np.linalg.norm(wide, self.p, axis=self.axis, keepdims=True)
        return (wide / np.where(norm == 0, 1, norm)).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        wide, axis = accumulator(x.dtype), self.axis

        def term(o: Point, r: Point) -> Element:
            return magnitude_power(x[(*o[:axis], *r, *o[axis:])].cast(wide), self.p)

        outer, inner = (*x.shape[:axis], *x.shape[axis + 1 :]), x.shape[axis : axis + 1]
        total = combined(at, outer, inner, "sum", term)
        norm = at.stage(outer, lambda o: _nonzero(root(total[o], self.p)))
        return at.stage(
            x.shape, lambda o: (x[o].cast(wide) / norm[(*o[:axis], *o[axis + 1 :])]).cast(x.dtype)
        )


def _nonzero(x: Element) -> Element:
    return select(apply("eq", x, 0.0), number(1, x.dtype), x)


@dataclass(frozen=True)
class LRN(Op):
    """``x / (bias + alpha/size * sum of x^2 over size neighbouring channels) ^ beta``.

    Krizhevsky et al., "ImageNet classification with deep CNNs", 2012, section 3.3.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    samples: ClassVar[tuple[Sample, ...]] = (
        Sample((tensor("n", 5, 3, 4),), {"size": 3, "alpha": 0.5}),
        Sample((tensor(1, 6, 2, "w"),), {"size": 5, "alpha": 0.5, "beta": 0.5, "bias": 2.0}),
        Sample((tensor(1, 3, 2, 2),), {"size": 7, "alpha": 0.5}),
        Sample((tensor(1, 3, 2, 2),), {"size": 1, "alpha": 0.5}),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "LRN")
        _require_channels(x)
        require(self.size >= 1, f"LRN needs a size of at least 1, not {self.size}")
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array) -> Array:
        squares, before = np.square(widen(x)), (self.size - 1) // 2
        total = np.zeros_like(squares)
        for c in range(x.shape[1]):
            near = slice(max(0, c - before), c - before + self.size)
            total[:, c] = squares[:, near].sum(axis=1)
        scale = self.bias + self.alpha / self.size * total
        return (widen(x) / scale**self.beta).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        wide, before, channels = accumulator(x.dtype), (self.size - 1) // 2, x.shape[1]

        def square(o: Point, r: Point) -> Element:
            near = o[1] + r[0] - before
            inside = (Condition(0, "<=", near), Condition(near, "<", channels))
            value = guard(inside, x[(o[0], near, *o[2:])], 0).cast(wide)
            return value * value

        total = combined(at, x.shape, (self.size,), "sum", square)

        def body(o: Point) -> Element:
            scale = self.bias + total[o] * (self.alpha / self.size)
            return (x[o].cast(wide) / apply("pow", scale, self.beta)).cast(x.dtype)

        return at.stage(x.shape, body)


OPS: tuple[type[Op], ...] = (
    BatchNorm,
    LayerNorm,
    RMSNorm,
    GroupNorm,
    InstanceNorm,
    LpNormalization,
    LRN,
)
