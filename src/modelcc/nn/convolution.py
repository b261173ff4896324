"""Convolutions with parameters, along one, two or three spatial axes, and their transposes."""

from __future__ import annotations

from typing import Any, ClassVar

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
from modelcc.nn.linear import Uniform
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor


class _Windowed(Uniform):
    """Base: the number of spatial axes."""

    rank: ClassVar[int]


def _require_groups(groups: int, *channels: int) -> None:
    if groups < 1 or any(c % groups for c in channels):
        raise ModelError(f"{' and '.join(map(str, channels))} channels do not divide into "
                         f"{groups} groups", callers_line())  # fmt: skip


class _ConvolutionLayer(_Windowed):
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
        """``padding`` is one number, one per axis, ``same`` or ``valid``."""
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
        self._draw(shape, out_channels, init.fans(shape)[0], bias, dtype, rng)

    def forward(self, x: Any) -> Tensor:
        return convolution(
            self.rank, x, self.weight, self.bias, self.stride, self.padding, self.dilation,
            self.groups, self.padding_mode,
        )  # fmt: skip


class Conv1d(_ConvolutionLayer):
    __doc__ = f"Convolution along one axis. {_ConvolutionLayer.__doc__}"
    rank = 1


class Conv2d(_ConvolutionLayer):
    __doc__ = f"Convolution of images. {_ConvolutionLayer.__doc__}"
    rank = 2


class Conv3d(_ConvolutionLayer):
    __doc__ = f"Convolution of volumes. {_ConvolutionLayer.__doc__}"
    rank = 3


class _TransposedLayer(_Windowed):
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
        self._draw(shape, out_channels, init.fans(shape)[0], bias, dtype, rng)

    def forward(self, x: Any) -> Tensor:
        return transposed_convolution(
            self.rank, x, self.weight, self.bias, self.stride, self.padding, self.output_padding,
            self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose1d(_TransposedLayer):
    __doc__ = f"The transpose of Conv1d. {_TransposedLayer.__doc__}"
    rank = 1


class ConvTranspose2d(_TransposedLayer):
    __doc__ = f"The transpose of Conv2d. {_TransposedLayer.__doc__}"
    rank = 2


class ConvTranspose3d(_TransposedLayer):
    __doc__ = f"The transpose of Conv3d. {_TransposedLayer.__doc__}"
    rank = 3
