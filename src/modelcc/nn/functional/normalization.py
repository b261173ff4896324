"""Normalisation over a batch, over trailing axes, over groups of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index
from modelcc.ir.types import F32
from modelcc.nn.functional.values import as_tensor, filled, of, reshaped
from modelcc.ops.channel_norm import BatchNorm, GroupNorm, InstanceNorm
from modelcc.ops.layer_norm import LayerNorm, RMSNorm
from modelcc.ops.moments import Moments
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

EPSILONS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
"""Machine epsilon by dtype, the default of RMS normalisation."""


def batch_statistics(x: Any) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance of each channel of ``[N, C, *S]``."""
    x = as_tensor(x)
    axes = (0, *range(2, x.ndim))
    mean, var = (reshaped(moment, x.shape[1]) for moment in x.results(Moments(axes), x))
    return mean, var


def batch_norm(
    x: Any,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    *,
    eps: float = 1e-5,
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` for each channel of ``[N, C, *S]``.

    Statistics are the running ones, in ``training`` those of the batch; running ones are not
    updated (the layer BatchNorm updates its own).
    """
    x = as_tensor(x)
    if training:
        return _standardised(x, *batch_statistics(x), weight, bias, eps)
    if running_mean is None or running_var is None:
        raise ModelError("batch_norm in use needs running statistics", callers_line(),
                         "set training=True to take those of the batch")  # fmt: skip
    return _standardised(x, running_mean, running_var, weight, bias, eps)


def _standardised(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    return of(BatchNorm(eps), x, *_scales(x, weight, bias), mean, var)


def _scales(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    channels = x.shape[1]
    scale = filled(x, 1.0, channels) if weight is None else weight
    return scale, filled(x, 0.0, channels) if bias is None else bias


def layer_norm(
    x: Any,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes, ``normalized_shape``."""
    x = as_tensor(x)
    return of(LayerNorm(_trailing(x, normalized_shape), eps), x, weight, bias)


def rms_norm(
    x: Any, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """``x / sqrt(mean of x^2 + eps) * weight`` over the last axes; eps None: the dtype's machine
    epsilon."""
    x = as_tensor(x)
    epsilon = EPSILONS.get(x.dtype.name, EPSILONS[F32.name]) if eps is None else eps
    return of(RMSNorm(_trailing(x, normalized_shape), epsilon), x, weight)


def _trailing(x: Tensor, shape: Sequence[int]) -> int:
    if not 0 < len(shape) <= x.ndim or not _meets(x.shape[x.ndim - len(shape) :], shape):
        raise ModelError(f"the last axes of {x.type} are not {list(shape)}, which are normalised",
                         callers_line())  # fmt: skip
    return x.ndim - len(shape)


def _meets(extents: Sequence[Index], shape: Sequence[int]) -> bool:
    return all(not isinstance(e, int) or e == s for e, s in zip(extents, shape, strict=True))


def group_norm(
    x: Any,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Each image's channels of ``[N, C, *S]`` in ``num_groups`` groups, each with its
    statistics."""
    x = as_tensor(x)
    return of(GroupNorm(num_groups, eps), x, *_scales(x, weight, bias))


def instance_norm(
    x: Any, *, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Each channel of each image of ``[N, C, *S]`` with its own statistics."""
    x = as_tensor(x)
    return of(InstanceNorm(eps), x, *_scales(x, weight, bias))
