"""Normalisation of the channels of images: by given statistics, per image, per group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply
from modelcc.ir.index import Index, floordiv, mod
from modelcc.ir.op import Builder, Meeting, Op, require
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops.accumulate import (
    Point,
    accumulator,
    require_float,
    widen,
)
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum, Reshape
from modelcc.ops.samples import bounded, sample, tensor
from modelcc.ops.statistics import cast, standardised, standardised_adjoint, statistics
from modelcc.ops.transcendental import Rsqrt


def require_channels(x: TensorType, *parameters: TensorType | None) -> None:
    """Every per-channel parameter is a vector."""
    require(x.rank >= 2, f"needs [batch, channels, *spatial], not {x}")
    for p in parameters:
        require(p is None or p.rank == 1, f"per-channel parameter {p} must have one axis")


class ChannelNorm(Op):
    """Base: parameters are vectors over axis 1 of the first operand."""

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        x, *parameters = operands
        for p in parameters:
            if p is not None and x is not None:
                yield p.shape[0], x.shape[1], f"parameter {p} against the channels of {x}"


def _per_channel(values: Array, rank: int) -> Array:
    return values.reshape(-1, *(1,) * (rank - 2))


@dataclass(frozen=True)
class BatchNorm(ChannelNorm):
    """``(x - mean) * scale / sqrt(var + epsilon) + bias`` with given statistics per channel.

    Ioffe & Szegedy, "Batch normalization", 2015, at inference.
    """

    epsilon: float = 1e-5
    samples = (
        bounded((0.1, 2.0), tensor("n", 3, 4, 5), *(tensor(3),) * 4),
        bounded((0.1, 2.0), tensor(2, 3, "t"), *(tensor(3),) * 4, epsilon=1e-3),
        bounded((0.1, 2.0), tensor(4, 3), *(tensor(3),) * 4),
        bounded((0.1, 2.0), tensor(2, 3, 2, dtype=F16), *(tensor(3, dtype=F16),) * 4),
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
        require_channels(x, scale, bias, mean, var)
        self.require_meetings(x, scale, bias, mean, var)
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

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        """``x * factor + offset``, both per channel: constants when the statistics are."""
        dtype = build.type_of(inputs[0]).dtype
        wide = accumulator(dtype)
        x, scale, bias, mean, var = (cast(Value(build, name), wide) for name in inputs)
        factor = scale * of(Rsqrt(), var + self.epsilon)
        offset = bias - mean * factor
        y = x * aligned(factor, x.type.rank) + aligned(offset, x.type.rank)
        return (cast(y, dtype).name,)

    def grad(self, build: Builder, dys: Sequence[str], *inputs: str) -> tuple[str, ...]:
        x, scale, _, mean, var = (Value(build, name) for name in inputs)
        dy, rank = Value(build, dys[0]), x.type.rank
        inverse = of(Rsqrt(), var + self.epsilon)
        factor = scale * inverse
        dbias = channel_sum(dy)
        dproduct = channel_sum(dy * (x - aligned(mean, rank)))
        dvar = dproduct * factor * inverse * inverse * -0.5
        dx = dy * aligned(factor, rank)
        results = (dx, dproduct * inverse, dbias, -(dbias * factor), dvar)
        return tuple(r.name for r in results)


def aligned(parameter: Value, rank: int) -> Value:
    """A per-channel vector shaped to broadcast against ``[N, C, *S]`` of ``rank`` axes."""
    shape = (*parameter.type.shape, *(1,) * (rank - 2))
    return of(Reshape(shape), parameter) if rank > 2 else parameter


def channel_sum(x: Value) -> Value:
    """Sum over all axes but the channels."""
    return of(ReduceSum((0, *range(2, x.type.rank)), keepdims=False), x)


@dataclass(frozen=True)
class GroupNorm(ChannelNorm):
    """Normalises each of ``groups`` runs of channels of each image, then scales per channel.

    x is ``[N, C, *S]``, scale and bias ``[C]`` (Wu & He, "Group normalization", 2018).
    """

    groups: int
    epsilon: float = 1e-5
    samples = (
        sample(tensor("n", 4, 3, 3), tensor(4), tensor(4), groups=2),
        sample(tensor(2, 6, "t"), tensor(6), tensor(6), groups=3, epsilon=1e-3),
        sample(tensor(2, 4, 3, 3), tensor(4), tensor(4), groups=1),
    )

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "GroupNorm")
        require_channels(x, scale, bias)
        self.require_meetings(x, scale, bias)
        return (TensorType(x.shape, x.dtype),)

    def meetings(self, x: TensorType, scale: TensorType, bias: TensorType) -> Iterator[Meeting]:
        yield from super().meetings(x, scale, bias)
        channels = x.shape[1]
        divided = f"{channels} channels of {x} do not divide into {self.groups} groups"
        yield mod(channels, self.groups), 0, divided

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        return _grouped(x, self.groups, self.epsilon, scale, bias)

    def compute(self, at: StageBuilder, x: Operand, scale: Operand, bias: Operand) -> Operand:
        return _group_stages(at, x, self.groups, self.epsilon, scale, bias)

    def decompose(self, build: Builder, x: str, scale: str, bias: str) -> tuple[str]:
        return (_group_values(build, self.groups, self.epsilon, x, scale, bias),)

    def grad(
        self, build: Builder, dys: Sequence[str], x: str, scale: str, bias: str
    ) -> tuple[str, str, str]:
        return _group_gradients(build, dys[0], self.groups, self.epsilon, x, scale)


@dataclass(frozen=True)
class InstanceNorm(ChannelNorm):
    """Normalises each channel of each image over its spatial axes, then scales per channel.

    Ulyanov et al., "Instance normalization", 2016.
    """

    epsilon: float = 1e-5
    samples = (
        sample(tensor("n", 3, 4, 5), tensor(3), tensor(3)),
        sample(tensor(2, 3, "t"), tensor(3), tensor(3), epsilon=1e-2),
        sample(tensor(2, 3, 6, dtype=F16), *(tensor(3, dtype=F16),) * 2),
    )

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "InstanceNorm")
        require_channels(x, scale, bias)
        self.require_meetings(x, scale, bias)
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        return _grouped(x, x.shape[1], self.epsilon, scale, bias)

    def compute(self, at: StageBuilder, x: Operand, scale: Operand, bias: Operand) -> Operand:
        return _group_stages(at, x, x.shape[1], self.epsilon, scale, bias)

    def decompose(self, build: Builder, x: str, scale: str, bias: str) -> tuple[str]:
        return (_group_values(build, build.type_of(x).shape[1], self.epsilon, x, scale, bias),)

    def grad(
        self, build: Builder, dys: Sequence[str], x: str, scale: str, bias: str
    ) -> tuple[str, str, str]:
        groups = build.type_of(x).shape[1]
        return _group_gradients(build, dys[0], groups, self.epsilon, x, scale)


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


def _by_group(x: Value, groups: Index) -> Value:
    """``x`` as ``[N, groups, C/groups, *S]``."""
    batch, channels, *spatial = x.type.shape
    return of(Reshape((batch, groups, floordiv(channels, groups), *spatial)), x)


def _group_values(
    build: Builder, groups: Index, epsilon: float, x: str, scale: str, bias: str
) -> str:
    dtype, rank = build.type_of(x).dtype, build.type_of(x).rank
    wide, factor, offset = (
        cast(Value(build, name), accumulator(dtype)) for name in (x, scale, bias)
    )
    y, _ = standardised(_by_group(wide, groups), tuple(range(2, rank + 1)), epsilon)
    flat = of(Reshape(wide.type.shape), y)
    return cast(flat * aligned(factor, rank) + aligned(offset, rank), dtype).name


def _group_gradients(
    build: Builder, dy: str, groups: Index, epsilon: float, x: str, scale: str
) -> tuple[str, str, str]:
    upstream, value, factor = Value(build, dy), Value(build, x), Value(build, scale)
    axes = tuple(range(2, value.type.rank + 1))
    y, inverse = standardised(_by_group(value, groups), axes, epsilon)
    scaled = _by_group(upstream * aligned(factor, value.type.rank), groups)
    dx = of(Reshape(value.type.shape), standardised_adjoint(scaled, y, inverse, axes))
    product = upstream * of(Reshape(value.type.shape), y)
    return dx.name, channel_sum(product).name, channel_sum(upstream).name


OPS: tuple[type[Op], ...] = (BatchNorm, GroupNorm, InstanceNorm)
