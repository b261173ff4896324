"""Handlers of the gradients of softmax and of normalisations, from statistics saved by forward."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.torch.aten import Aten, table
from modelcc.ir.index import Index, floordiv
from modelcc.ir.types import DType
from modelcc.ops.accumulate import accumulator
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum, unbroadcast
from modelcc.ops.channel_norm import aligned, channel_sum
from modelcc.ops.statistics import standardised_adjoint
from modelcc.ops.transcendental import Exp, Rsqrt
from modelcc.ops.views import cast, reshaped

Mask = Sequence[bool]
"""Which gradients are wanted."""


def softmax_backward(call: Aten, dy: Value, y: Value, dim: int, dtype: DType) -> Value:
    """``y * (dy - sum of y * dy)``."""
    axes = _along(call, dim, y.type.rank)
    product_ = dy * y
    return call.as_value(product_ - y * of(ReduceSum(axes), product_))


def log_softmax_backward(call: Aten, dy: Value, y: Value, dim: int, dtype: DType) -> Value:
    """``dy - exp(y) * sum of dy``."""
    axes = _along(call, dim, y.type.rank)
    return call.as_value(dy - of(Exp(), y) * of(ReduceSum(axes), dy))


def _along(call: Aten, dim: int, rank: int) -> tuple[int, ...]:
    return (call.axis(dim, rank),)[:rank]


def _wide(*xs: Value) -> list[Value]:
    """Converted to at least f32."""
    return [cast(x, accumulator(x.type.dtype)) for x in xs]


def _masked(call: Aten, mask: Mask, *values: Value | None) -> Sequence[Value | None]:
    kept = [v if yes else None for v, yes in zip(values, mask, strict=True)]
    return [
        None if v is None or wanted is None else reshaped(cast(v, wanted.dtype), *wanted.shape)
        for v, wanted in zip(kept, call.results, strict=True)
    ]


def layer_norm_backward(
    call: Aten, dy: Value, x: Value, shape: Sequence[Index], mean: Value, inverse: Value,
    scale: Value | None, bias: Value | None, mask: Mask,
) -> Sequence[Value | None]:  # fmt: skip
    axes = tuple(range(x.type.rank - len(shape), x.type.rank))
    dy, x, mean, inverse = _wide(dy, x, mean, inverse)
    y = (x - mean) * inverse
    scaled = dy if scale is None else dy * cast(scale, dy.type.dtype)
    dx = standardised_adjoint(scaled, y, inverse, axes)
    dscale, dbias = (_summed(v, tuple(shape)) for v in (dy * y, dy))
    return _masked(call, mask, dx, dscale, dbias)


def _summed(x: Value, shape: tuple[Index, ...]) -> Value:
    return Value(x.build, unbroadcast(x.build, x.name, shape))


def rms_norm_backward(
    call: Aten, dy: Value, x: Value, shape: Sequence[Index], inverse: Value,
    scale: Value | None, mask: Mask,
) -> Sequence[Value | None]:  # fmt: skip
    axes = tuple(range(x.type.rank - len(shape), x.type.rank))
    dy, x, inverse = _wide(dy, x, inverse)
    y = x * inverse
    scaled = dy if scale is None else dy * cast(scale, dy.type.dtype)
    dx = standardised_adjoint(scaled, y, inverse, axes, centred=False)
    return _masked(call, mask, dx, _summed(dy * y, tuple(shape)))


def group_norm_backward(
    call: Aten, dy: Value, x: Value, mean: Value, inverse: Value, scale: Value | None,
    batch: Index, channels: Index, pixels: Index, groups: int, mask: Mask,
) -> Sequence[Value | None]:  # fmt: skip
    dy, x, mean, inverse = _wide(dy, x, mean, inverse)
    size = floordiv(channels, groups)

    def by_group(v: Value) -> Value:
        return reshaped(v, batch, groups, size, pixels)

    centre, factor = (reshaped(v, batch, groups, 1, 1) for v in (mean, inverse))
    y = (by_group(x) - centre) * factor
    rank = x.type.rank
    scaled = dy if scale is None else dy * aligned(cast(scale, dy.type.dtype), rank)
    dx = standardised_adjoint(by_group(scaled), y, factor, (2, 3))
    dscale = channel_sum(dy * reshaped(y, *x.type.shape))
    return _masked(call, mask, dx, dscale, channel_sum(dy))


def batch_norm_backward(
    call: Aten, dy: Value, x: Value, scale: Value | None, running_mean: Value | None,
    running_variance: Value | None, mean: Value | None, inverse: Value | None, training: bool,
    epsilon: float, mask: Mask, *_: object,
) -> Sequence[Value | None]:  # fmt: skip
    """With the batch's statistics in training, which depend on ``x``, else with running ones."""
    dy, x = _wide(dy, x)
    rank, axes = x.type.rank, (0, *range(2, x.type.rank))
    if not training:
        assert running_mean is not None and running_variance is not None
        mean, inverse = _wide(running_mean, running_variance)
        inverse = of(Rsqrt(), inverse + epsilon)
    assert mean is not None and inverse is not None
    centre, factor = (aligned(cast(v, x.type.dtype), rank) for v in (mean, inverse))
    y = (x - centre) * factor
    scaled = dy if scale is None else dy * aligned(cast(scale, dy.type.dtype), rank)
    dx = standardised_adjoint(scaled, y, factor, axes) if training else scaled * factor
    return _masked(call, mask, dx, channel_sum(dy * y), channel_sum(dy))


def weight_norm_backward(
    call: Aten, dy: Value, direction: Value, magnitude: Value, norms: Value, dim: int
) -> Sequence[Value | None]:
    """Gradients of ``direction * (magnitude / norms)``; norms are those of slices along ``dim``."""
    rank = direction.type.rank
    axes = tuple(axis for axis in range(rank) if axis != call.axis(dim, rank))
    dy, direction, magnitude, norms = _wide(dy, direction, magnitude, norms)
    along = of(ReduceSum(axes), dy * direction) / norms
    across = (dy - direction * (along / norms)) * (magnitude / norms)
    return _masked(call, (True, True), across, along)


NORM_GRADIENTS = table(
    _softmax_backward_data=softmax_backward,
    _log_softmax_backward_data=log_softmax_backward,
    native_layer_norm_backward=layer_norm_backward,
    _fused_rms_norm_backward=rms_norm_backward,
    native_group_norm_backward=group_norm_backward,
    native_batch_norm_backward=batch_norm_backward,
    _weight_norm_interface_backward=weight_norm_backward,
)
