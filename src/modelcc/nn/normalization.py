"""Normalisation with parameters, and the running statistics of batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import product
from modelcc.nn import init
from modelcc.nn.functional.normalization import (
    batch_norm,
    batch_statistics,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from modelcc.nn.functional.values import as_tensor, averaged, detached, reshaped
from modelcc.nn.module import Module
from modelcc.nn.roles import Parameter
from modelcc.ops.generate import Indices
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor


class _Scaled(Module):
    """Base: a weight of ones and a bias of zeros, or None."""

    weight: Tensor | None
    bias: Tensor | None

    def _scales(self, shape: tuple[int, ...], weight: bool, bias: bool, dtype: Any) -> None:
        self._shape, self._weighted, self._biased = shape, weight, bias
        self._dtype = named_type(dtype)
        self.reset_parameters()

    def reset_parameters(self, rng: np.random.Generator | None = None) -> None:
        """Resets to ones and zeros."""
        self.weight = Parameter(init.ones(self._shape, self._dtype)) if self._weighted else None
        self.bias = Parameter(init.zeros(self._shape, self._dtype)) if self._biased else None


class _RunningNorm(_Scaled):
    """Base: statistics of channels, and their running means."""

    rank: ClassVar[int]
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: Any = "f32",
    ) -> None:
        """``momentum`` is the weight of a new batch; None: a cumulative average."""
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._scales((num_features,), affine, affine, dtype)

    def reset_parameters(self, rng: np.random.Generator | None = None) -> None:
        """Resets to ones and zeros, and statistics of no batch."""
        super().reset_parameters()
        tracked = self.track_running_stats
        shape = (self.num_features,)
        self.running_mean = init.zeros(shape, self._dtype) if tracked else None
        self.running_var = init.ones(shape, self._dtype) if tracked else None
        self.num_batches_tracked = Tensor(np.zeros((), np.int64)) if tracked else None

    def checked(self, x: Any) -> Tensor:
        """``x``; :class:`ModelError` unless it has the rank of this layer."""
        x = as_tensor(x)
        least, most = self._ranks()
        channels = x.shape[1] if x.ndim > 1 else None
        wrong = isinstance(channels, int) and channels != self.num_features
        if not least <= x.ndim <= most or wrong:
            shape = ", ".join(["batch", str(self.num_features), *["…"] * self.rank])
            raise ModelError(f"{type(self).__name__} needs [{shape}], not {x.type}",
                             callers_line())  # fmt: skip
        return x

    def _ranks(self) -> tuple[int, int]:
        return self.rank + 2, self.rank + 2

    def _track(self, x: Tensor, mean: Tensor, var: Tensor) -> None:
        """Updates running statistics with this batch, detached from gradients."""
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        batches = self.num_batches_tracked + 1
        share: Any = self.momentum
        if share is None:
            share = 1.0 / batches.cast(mean.dtype)
        size = x.result(Indices((product(x.shape[:1]) * product(x.shape[2:]),), (), mean.dtype))
        estimate = detached(var) * (size / (size - 1))
        self.running_mean = self.running_mean * (1 - share) + detached(mean) * share
        self.running_var = self.running_var * (1 - share) + estimate * share
        self.num_batches_tracked = batches


class _BatchNorm(_RunningNorm):
    """``(x - mean) / sqrt(var + eps) * weight + bias`` for each channel.

    In training statistics are those of the batch, and update the running ones (with the unbiased
    variance); in inference they are the running ones.  Ioffe & Szegedy, "Batch normalization",
    2015.
    """

    def forward(self, x: Any) -> Tensor:
        x = self.checked(x)
        if not self.training and self.running_mean is not None:
            return batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        mean, var = batch_statistics(x)
        if self.training:
            self._track(x, mean, var)
        return batch_norm(x, mean, var, self.weight, self.bias, eps=self.eps)


class BatchNorm1d(_BatchNorm):
    __doc__ = f"Of ``[N, C]`` or ``[N, C, L]``. {_BatchNorm.__doc__}"
    rank = 1

    def _ranks(self) -> tuple[int, int]:
        return 2, 3


class BatchNorm2d(_BatchNorm):
    __doc__ = f"Of ``[N, C, H, W]``. {_BatchNorm.__doc__}"
    rank = 2


class BatchNorm3d(_BatchNorm):
    __doc__ = f"Of ``[N, C, D, H, W]``. {_BatchNorm.__doc__}"
    rank = 3


class LayerNorm(_Scaled):
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes.

    Ba et al., "Layer normalization", 2016.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: Any = "f32",
    ) -> None:
        """``normalized_shape`` are the extents of the last axes."""
        self.normalized_shape = _shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        affine = elementwise_affine
        self._scales(self.normalized_shape, affine, affine and bias, dtype)

    def forward(self, x: Any) -> Tensor:
        return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(_Scaled):
    """``x / sqrt(mean of x^2 + eps) * weight`` over the last axes.

    Zhang & Sennrich, "Root mean square layer normalization", 2019.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: Any = "f32",
    ) -> None:
        """``eps`` None is the machine epsilon of the dtype."""
        self.normalized_shape = _shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._scales(self.normalized_shape, elementwise_affine, False, dtype)

    def forward(self, x: Any) -> Tensor:
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)


def _shape(normalized: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized,) if isinstance(normalized, int) else tuple(normalized)


class GroupNorm(_Scaled):
    """Each image's channels ``[N, C, *S]`` in ``num_groups`` groups, each with its statistics.

    Wu & He, "Group normalization", 2018.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        dtype: Any = "f32",
    ) -> None:
        """:class:`ModelError` if the channels are not divisible by the groups."""
        if num_channels % num_groups:
            message = f"{num_channels} channels do not divide into {num_groups} groups"
            raise ModelError(message, callers_line())
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        self._scales((num_channels,), affine, affine, dtype)

    def forward(self, x: Any) -> Tensor:
        return group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class _InstanceNorm(_RunningNorm):
    """Each channel of each image with its own statistics.

    Ulyanov et al., "Instance normalization", 2016.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        dtype: Any = "f32",
    ) -> None:
        """With ``track_running_stats`` the running ones are used in inference."""
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype=dtype)

    def forward(self, x: Any) -> Tensor:
        x = as_tensor(x)
        if x.ndim == self.rank + 1:
            y = self.forward(reshaped(x, 1, *x.shape))
            return reshaped(y, *y.shape[1:])
        x = self.checked(x)
        if not self.training and self.running_mean is not None:
            return batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        if self.training and self.running_mean is not None:
            self._follow(x)
        return instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)

    def _follow(self, x: Tensor) -> None:
        """Updates running statistics with the mean over all images."""
        assert self.running_mean is not None and self.running_var is not None
        x = detached(x)
        axes = tuple(range(2, x.ndim))
        mean = averaged(x, *axes, keepdims=True)
        size = x.result(Indices((product(x.shape[2:]),), (), x.dtype))
        var = averaged((x - mean) * (x - mean), *axes) * (size / (size - 1))
        share = self.momentum
        assert share is not None
        self.running_mean = self.running_mean * (1 - share) + averaged(mean, 0, *axes) * share
        self.running_var = self.running_var * (1 - share) + averaged(var, 0) * share


class InstanceNorm1d(_InstanceNorm):
    __doc__ = f"Of ``[N, C, L]``. {_InstanceNorm.__doc__}"
    rank = 1


class InstanceNorm2d(_InstanceNorm):
    __doc__ = f"Of ``[N, C, H, W]``. {_InstanceNorm.__doc__}"
    rank = 2


class InstanceNorm3d(_InstanceNorm):
    __doc__ = f"Of ``[N, C, D, H, W]``. {_InstanceNorm.__doc__}"
    rank = 3
