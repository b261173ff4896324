"""Convolutions with parameters, along one, two or three spatial axes, and their transposes."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.nn import init
from modelcc.nn.functional.convolution import (
    Padding,
    PaddingMode,
    convolution,
    transposed_convolution,
)
from modelcc.nn.functional.values import Numbers, per_axis
from modelcc.nn.init import Rng
from modelcc.nn.module import Module
from modelcc.nn.roles import Parameter
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor


class _Windowed(Module):
    """Base: parameters, uniform within ``1 / sqrt(fan_in)``."""

    rank: ClassVar[int]
    weight: Tensor
    bias: Tensor | None

    def _drawn(
        self, shape: tuple[int, ...], outputs: int, bias: bool, dtype: Any, rng: Rng
    ) -> None:
        self._shape, self._outputs, self._biased = shape, outputs, bias
        self._dtype = named_type(dtype)
        self.reset_parameters(init.generator(rng))

    def reset_parameters(self, rng: np.random.Generator) -> None:
        """Draw the parameters anew."""
        fan, _ = init.fans(self._shape)
        bound = 1 / math.sqrt(fan) if fan else 0.0
        self.weight = Parameter(
            init.uniform(self._shape, -bound, bound, rng=rng, dtype=self._dtype)
        )
        self.bias = (
            Parameter(init.uniform((self._outputs,), -bound, bound, rng=rng, dtype=self._dtype))
            if self._biased
            else None
        )


def _require_groups(groups: int, *channels: int) -> None:
    if groups < 1 or any(c % groups for c in channels):
        raise ModelError(f"{' and '.join(map(str, channels))} channels do not divide into "
                         f"{groups} groups", callers_line())  # fmt: skip


class _Convolution(_Windowed):
    """Weight ``[out, in / groups, *kernel]``, bias ``[out]``; x ``[N, in, *S]`` or without N."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: Padding = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        *,
        dtype: Any = "f32",
        rng: Rng = None,
    ) -> None:
        """``padding`` is one number, one for each axis, ``same`` or ``valid``."""
        _require_groups(groups, in_channels, out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = per_axis(kernel_size, self.rank, "kernel_size")
        self.stride = per_axis(stride, self.rank, "stride")
        self.padding: Padding = (
            padding if isinstance(padding, str) else per_axis(padding, self.rank, "padding")
        )
        self.dilation = per_axis(dilation, self.rank, "dilation")
        self.groups = groups
        self.padding_mode: PaddingMode = padding_mode
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self._drawn(shape, out_channels, bias, dtype, rng)

    def forward(self, x: Any) -> Tensor:
        return convolution(
            self.rank, x, self.weight, self.bias, self.stride, self.padding, self.dilation,
            self.groups, self.padding_mode,
        )  # fmt: skip


class Conv1d(_Convolution):
    __doc__ = f"Convolution along one axis. {_Convolution.__doc__}"
    rank = 1


class Conv2d(_Convolution):
    __doc__ = f"Convolution of images. {_Convolution.__doc__}"
    rank = 2


class Conv3d(_Convolution):
    __doc__ = f"Convolution of volumes. {_Convolution.__doc__}"
    rank = 3


class _Transposed(_Windowed):
    """Weight ``[in, out / groups, *kernel]``, bias ``[out]``; x ``[N, in, *S]`` or without N."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: Numbers = 0,
        output_padding: Numbers = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Numbers = 1,
        *,
        dtype: Any = "f32",
        rng: Rng = None,
    ) -> None:
        """``padding`` crops the result, ``output_padding`` adds to its end."""
        _require_groups(groups, in_channels, out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = per_axis(kernel_size, self.rank, "kernel_size")
        self.stride = per_axis(stride, self.rank, "stride")
        self.padding = per_axis(padding, self.rank, "padding")
        self.output_padding = per_axis(output_padding, self.rank, "output_padding")
        self.groups = groups
        self.dilation = per_axis(dilation, self.rank, "dilation")
        shape = (in_channels, out_channels // groups, *self.kernel_size)
        self._drawn(shape, out_channels, bias, dtype, rng)

    def forward(self, x: Any) -> Tensor:
        return transposed_convolution(
            self.rank, x, self.weight, self.bias, self.stride, self.padding, self.output_padding,
            self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose1d(_Transposed):
    __doc__ = f"The transpose of Conv1d. {_Transposed.__doc__}"
    rank = 1


class ConvTranspose2d(_Transposed):
    __doc__ = f"The transpose of Conv2d. {_Transposed.__doc__}"
    rank = 2


class ConvTranspose3d(_Transposed):
    __doc__ = f"The transpose of Conv3d. {_Transposed.__doc__}"
    rank = 3
