"""Normalisation of the channels of images: by given statistics, per image, per group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply
from modelcc.ir.index import Index, floordiv, mod
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Values, require
from modelcc.ir.types import F16, Array, TensorType
from modelcc.ops.accumulate import Point, accumulator, require_float, widen
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum, Reshape, numbers
from modelcc.ops.samples import bounded, sample, tensor
from modelcc.ops.statistics import standardised, standardised_adjoint, statistics
from modelcc.ops.transcendental import Rsqrt
from modelcc.ops.views import cast


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

    def infer(self, *operands: TensorType) -> tuple[TensorType]:
        x, _scale, _bias, _mean, _var = operands
        require_float(x.dtype, "BatchNorm")
        require_channels(*operands)
        self.require_meetings(*operands)
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Array:
        factor = widen(scale) / np.sqrt(widen(var) + np.asarray(self.epsilon, widen(var).dtype))
        centred = widen(x) - _per_channel(widen(mean), x.ndim)
        y = centred * _per_channel(factor, x.ndim) + _per_channel(widen(bias), x.ndim)
        return y.astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, *operands: Operand) -> Operand:
        x, scale, bias, mean, var = operands
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

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
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


class GroupedNorm(ChannelNorm):
    """Base: each of some runs of channels of an image is standardised, then scaled per channel."""

    epsilon: float

    def count(self, channels: Index) -> Index:
        """How many runs there are."""
        raise NotImplementedError(self.mnemonic())

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, type(self).__name__)
        require_channels(x, scale, bias)
        self.require_meetings(x, scale, bias)
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        (groups,) = numbers((self.count(x.shape[1]),))
        wide = widen(x).reshape(x.shape[0], groups, -1)
        centred = wide - wide.mean(axis=2, keepdims=True)
        squares = np.square(centred).mean(axis=2, keepdims=True)
        y = (centred / np.sqrt(squares + wide.dtype.type(self.epsilon))).reshape(x.shape)
        y = y * _per_channel(widen(scale), x.ndim) + _per_channel(widen(bias), x.ndim)
        return y.astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand, scale: Operand, bias: Operand) -> Operand:
        groups = self.count(x.shape[1])
        size = floordiv(x.shape[1], groups)

        def place(o: Point, r: Point) -> Point:
            return (o[0], o[1] * size + r[0], *r[1:])

        inner = (size, *x.shape[2:])
        stats = statistics(at, x, (x.shape[0], groups), inner, place, self.epsilon)
        wide = stats.inverse.dtype

        def body(o: Point) -> Element:
            value = stats.normalise(x[o], (o[0], floordiv(o[1], size)))
            return (value * scale[o[1]].cast(wide) + bias[o[1]].cast(wide)).cast(x.dtype)

        return at.stage(x.shape, body)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        dtype, rank = build.type_of(inputs[0]).dtype, build.type_of(inputs[0]).rank
        wide, factor, offset = (cast(Value(build, name), accumulator(dtype)) for name in inputs)
        y, _ = standardised(self._by_group(wide), tuple(range(2, rank + 1)), self.epsilon)
        flat = of(Reshape(wide.type.shape), y)
        return (cast(flat * aligned(factor, rank) + aligned(offset, rank), dtype).name,)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, scale, _ = inputs
        upstream, value, factor = Value(build, dys[0]), Value(build, x), Value(build, scale)
        axes = tuple(range(2, value.type.rank + 1))
        y, inverse = standardised(self._by_group(value), axes, self.epsilon)
        scaled = self._by_group(upstream * aligned(factor, value.type.rank))
        dx = of(Reshape(value.type.shape), standardised_adjoint(scaled, y, inverse, axes))
        product = upstream * of(Reshape(value.type.shape), y)
        return dx.name, channel_sum(product).name, channel_sum(upstream).name

    def _by_group(self, x: Value) -> Value:
        """``x`` as ``[N, groups, C/groups, *S]``."""
        batch, channels, *spatial = x.type.shape
        groups = self.count(channels)
        return of(Reshape((batch, groups, floordiv(channels, groups), *spatial)), x)


@dataclass(frozen=True)
class GroupNorm(GroupedNorm):
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

    def count(self, channels: Index) -> Index:
        return self.groups

    def meetings(self, x: TensorType, scale: TensorType, bias: TensorType) -> Iterator[Meeting]:
        yield from super().meetings(x, scale, bias)
        channels = x.shape[1]
        divided = f"{channels} channels of {x} do not divide into {self.groups} groups"
        yield mod(channels, self.groups), 0, divided


@dataclass(frozen=True)
class InstanceNorm(GroupedNorm):
    """Normalises each channel of each image over its spatial axes, then scales per channel.

    Ulyanov et al., "Instance normalization", 2016.
    """

    epsilon: float = 1e-5
    samples = (
        sample(tensor("n", 3, 4, 5), tensor(3), tensor(3)),
        sample(tensor(2, 3, "t"), tensor(3), tensor(3), epsilon=1e-2),
        sample(tensor(2, 3, 6, dtype=F16), *(tensor(3, dtype=F16),) * 2),
    )

    def count(self, channels: Index) -> Index:
        return channels


OPS: tuple[type[Op], ...] = (BatchNorm, GroupNorm, InstanceNorm)
