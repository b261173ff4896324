"""Handlers of softmax and of normalisations, with the statistics that PyTorch returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelcc.frontends.torch.aten import Aten, Handler, table
from modelcc.ir.index import Index, floordiv
from modelcc.ir.op import Op
from modelcc.ir.types import I64, DType
from modelcc.ops.accumulate import accumulator
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import LogSoftmax, Softmax
from modelcc.ops.channel_norm import BatchNorm, GroupNorm, InstanceNorm, aligned
from modelcc.ops.generate import Full
from modelcc.ops.layer_norm import LayerNorm, RMSNorm
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.transcendental import Rsqrt
from modelcc.ops.views import cast, reshaped


def softmax(op: Callable[[int], Op]) -> Handler:
    """In the type of the result; a scalar is a row of one."""

    def handler(call: Aten, x: Value, dim: int, *_: object) -> Value:
        value = call.as_value(x)
        row = value if value.type.rank else reshaped(value, 1)
        return reshaped(of(op(call.axis(dim, row.type.rank)), row), *x.type.shape)

    return handler


def statistics(x: Value, axes: tuple[int, ...], epsilon: float) -> tuple[Value, Value]:
    """Mean and ``1 / sqrt(variance + epsilon)`` over ``axes``, which are kept, at least in f32."""
    wide = cast(x, accumulator(x.type.dtype))
    mean = of(ReduceMean(axes), wide)
    centred = wide - mean
    return mean, of(Rsqrt(), of(ReduceMean(axes), centred * centred) + epsilon)


def results(call: Aten, *values: Value) -> Sequence[Value | None]:
    """``values`` converted to the types and shapes of the results."""
    return [
        None if wanted is None else reshaped(cast(value, wanted.dtype), *wanted.shape)
        for value, wanted in zip(values, call.results, strict=True)
    ]


def layer_norm(
    call: Aten, x: Value, shape: Sequence[Index], scale: Value | None = None,
    bias: Value | None = None, epsilon: float = 1e-5, *_: object,
) -> Value:  # fmt: skip
    axis = x.type.rank - len(shape)
    scale, bias = (p and call.as_value(p) for p in (scale, bias))
    return call.one(LayerNorm(axis, epsilon), x, scale, bias)


def layer_norm_with_statistics(
    call: Aten, x: Value, shape: Sequence[Index], scale: Value | None, bias: Value | None,
    epsilon: float,
) -> Sequence[Value | None]:  # fmt: skip
    axes = tuple(range(x.type.rank - len(shape), x.type.rank))
    y = layer_norm(call, x, shape, scale, bias, epsilon)
    return results(call, y, *statistics(x, axes, epsilon))


def rms_norm(
    call: Aten, x: Value, shape: Sequence[Index], scale: Value | None = None,
    epsilon: float | None = None,
) -> Value:  # fmt: skip
    axis = x.type.rank - len(shape)
    return call.one(
        RMSNorm(axis, _epsilon(epsilon, x.type.dtype)), x, scale and call.as_value(scale)
    )


def rms_norm_with_statistics(
    call: Aten, x: Value, shape: Sequence[Index], scale: Value | None, epsilon: float | None
) -> Sequence[Value | None]:
    axes = tuple(range(x.type.rank - len(shape), x.type.rank))
    wide = cast(x, accumulator(x.type.dtype))
    inverse = of(Rsqrt(), of(ReduceMean(axes), wide * wide) + _epsilon(epsilon, x.type.dtype))
    return results(call, rms_norm(call, x, shape, scale, epsilon), inverse)


def _epsilon(given: float | None, dtype: DType) -> float:
    """PyTorch's default: the machine epsilon, of f32 for narrower types."""
    return 2.0 ** (-52 if accumulator(dtype).bits == 64 else -23) if given is None else given


def group_norm(
    call: Aten, x: Value, groups: int, scale: Value | None = None, bias: Value | None = None,
    epsilon: float = 1e-5, *_: object,
) -> Value:  # fmt: skip
    factor, offset = parameters(call, x, scale, bias)
    return of(GroupNorm(groups, epsilon), x, factor, offset)


def group_norm_with_statistics(
    call: Aten, x: Value, scale: Value | None, bias: Value | None, batch: Index, channels: Index,
    pixels: Index, groups: int, epsilon: float,
) -> Sequence[Value | None]:  # fmt: skip
    rows = reshaped(x, batch, groups, floordiv(channels, groups) * pixels)
    y = group_norm(call, x, groups, scale, bias, epsilon)
    return results(call, y, *statistics(rows, (2,), epsilon))


def parameters(
    call: Aten, x: Value, scale: Value | None, bias: Value | None
) -> tuple[Value, Value]:
    """Scale and offset of each channel, by default 1 and 0, in the type of ``x``."""
    channels, dtype = x.type.shape[1], x.type.dtype
    factor = call.made(Full((channels,), 1, dtype)) if scale is None else cast(scale, dtype)
    offset = call.made(Full((channels,), 0, dtype)) if bias is None else cast(bias, dtype)
    return factor, offset


def instance_norm(
    call: Aten, x: Value, scale: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, by_input: bool, momentum: float, epsilon: float, *_: object,
) -> Value:  # fmt: skip
    factor, offset = parameters(call, x, scale, bias)
    if by_input or mean is None or variance is None:
        return of(InstanceNorm(epsilon), x, factor, offset)
    return normalised(x, factor, offset, mean, variance, epsilon)


def normalised(
    x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float
) -> Value:
    """With given statistics of each channel."""
    dtype = x.type.dtype
    return of(BatchNorm(epsilon), x, scale, bias, cast(mean, dtype), cast(variance, dtype))


def channel_statistics(x: Value) -> tuple[Value, Value]:
    """Mean and variance of each channel, at least in f32."""
    wide = cast(x, accumulator(x.type.dtype))
    axes = (0, *range(2, x.type.rank))
    mean = of(ReduceMean(axes, False), wide)
    centred = wide - aligned(mean, x.type.rank)
    return mean, of(ReduceMean(axes, False), centred * centred)


def batch_norm(
    call: Aten, x: Value, scale: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, training: bool, momentum: float, epsilon: float, *_: object,
) -> Value:  # fmt: skip
    """Without the new running statistics, which PyTorch's functional operators return."""
    factor, offset = parameters(call, x, scale, bias)
    if training or mean is None or variance is None:
        mean, variance = channel_statistics(x)
    return normalised(x, factor, offset, mean, variance, epsilon)


def batch_norm_with_statistics(
    call: Aten, x: Value, scale: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, training: bool, momentum: float, epsilon: float,
) -> Sequence[Value | None]:  # fmt: skip
    """The result, mean and inverse deviation of the batch (empty when given statistics are
    used)."""
    y = batch_norm(call, x, scale, bias, mean, variance, training, momentum, epsilon)
    if not training:
        nothing = call.made(Full((0,), 0, y.type.dtype))
        return results(call, y, nothing, nothing)
    own, spread = channel_statistics(x)
    return results(call, y, own, of(Rsqrt(), spread + epsilon))


def batch_norm_functional(
    call: Aten, x: Value, scale: Value | None, bias: Value | None, mean: Value, variance: Value,
    training: bool, momentum: float, epsilon: float,
) -> Sequence[Value | None]:  # fmt: skip
    """As :func:`batch_norm_with_statistics`, and the running statistics after the batch."""
    factor, offset = parameters(call, x, scale, bias)
    if not training:
        y = normalised(x, factor, offset, mean, variance, epsilon)
        nothing = call.made(Full((0,), 0, y.type.dtype))
        return results(call, y, nothing, nothing, mean, variance)
    own, spread = channel_statistics(x)
    y = normalised(x, factor, offset, own, spread, epsilon)
    count = cast(reshaped(Value(call, call.note((x.type.elements,), I64))), spread.type.dtype)
    count = count / cast(
        reshaped(Value(call, call.note((x.type.shape[1],), I64))), count.type.dtype
    )
    fair = spread * (count / (count - 1.0))
    means, variances = (_moved(old, new, momentum) for old, new in ((mean, own), (variance, fair)))
    return results(call, y, own, of(Rsqrt(), spread + epsilon), means, variances)


def _moved(old: Value, new: Value, momentum: float) -> Value:
    return cast(old, new.type.dtype) * (1 - momentum) + new * momentum


def batch_norm_legit_without_training(
    call: Aten, x: Value, scale: Value | None, bias: Value | None, mean: Value, variance: Value,
    momentum: float, epsilon: float,
) -> Sequence[Value | None]:  # fmt: skip
    return batch_norm_with_statistics(
        call, x, scale, bias, mean, variance, False, momentum, epsilon
    )


def batch_norm_legit_without_statistics(
    call: Aten, x: Value, scale: Value | None, bias: Value | None, training: bool,
    momentum: float, epsilon: float,
) -> Sequence[Value | None]:  # fmt: skip
    return batch_norm_with_statistics(call, x, scale, bias, None, None, True, momentum, epsilon)


NORMS = table(
    softmax=softmax(Softmax),
    log_softmax=softmax(LogSoftmax),
    _softmax=softmax(Softmax),
    _log_softmax=softmax(LogSoftmax),
    layer_norm=layer_norm,
    native_layer_norm=layer_norm_with_statistics,
    rms_norm=rms_norm,
    _fused_rms_norm=rms_norm_with_statistics,
    group_norm=group_norm,
    native_group_norm=group_norm_with_statistics,
    instance_norm=instance_norm,
    batch_norm=batch_norm,
    _native_batch_norm_legit_functional=batch_norm_functional,
    _native_batch_norm_legit_no_training=batch_norm_legit_without_training,
    **{"_native_batch_norm_legit.no_stats": batch_norm_legit_without_statistics},
)
