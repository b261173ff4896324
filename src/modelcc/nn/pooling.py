"""Poolings as layers, along one, two or three spatial axes."""

from __future__ import annotations

from typing import Any, ClassVar

from modelcc.nn.functional.pooling import (
    OutputSize,
    adaptive_average_pool,
    adaptive_max_pool,
    average_pool,
    lp_pool,
    max_pool,
)
from modelcc.nn.functional.values import Numbers
from modelcc.nn.module import Module
from modelcc.tensor.tensor import Tensor


class _MaxPool(Module):
    """The maximum of each window of ``[N, C, *S]`` or ``[C, *S]``."""

    rank: ClassVar[int]

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        *,
        ceil_mode: bool = False,
    ) -> None:
        """A stride of None is the kernel."""
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode = dilation, ceil_mode

    def forward(self, x: Any) -> Tensor:
        return max_pool(
            self.rank, x, self.kernel_size, self.stride, self.padding, self.dilation,
            self.ceil_mode,
        )  # fmt: skip


class _AvgPool(Module):
    """The mean of each window of ``[N, C, *S]`` or ``[C, *S]``."""

    rank: ClassVar[int]

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        """A stride of None is the kernel; ``divisor_override`` divides all sums."""
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, x: Any) -> Tensor:
        return average_pool(
            self.rank, x, self.kernel_size, self.stride, self.padding, self.ceil_mode,
            self.count_include_pad, self.divisor_override,
        )  # fmt: skip


class _LPPool(Module):
    """``(sum of |x|^p)^(1/p)`` of each window of ``[N, C, *S]`` or ``[C, *S]``."""

    rank: ClassVar[int]

    def __init__(
        self,
        norm_type: int,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        ceil_mode: bool = False,
    ) -> None:
        """``norm_type`` is p."""
        self.norm_type, self.kernel_size, self.stride = norm_type, kernel_size, stride
        self.ceil_mode = ceil_mode

    def forward(self, x: Any) -> Tensor:
        return lp_pool(self.rank, x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class _AdaptiveAvgPool(Module):
    """The mean of each of ``output_size`` windows, which cover ``[N, C, *S]`` evenly."""

    rank: ClassVar[int]

    def __init__(self, output_size: OutputSize) -> None:
        """One extent, or one per axis; None keeps the operand's."""
        self.output_size = output_size

    def forward(self, x: Any) -> Tensor:
        return adaptive_average_pool(self.rank, x, self.output_size)


class _AdaptiveMaxPool(Module):
    """The maximum of each of ``output_size`` windows, which cover ``[N, C, *S]`` evenly."""

    rank: ClassVar[int]

    def __init__(self, output_size: OutputSize) -> None:
        """One extent, or one per axis; None keeps the operand's."""
        self.output_size = output_size

    def forward(self, x: Any) -> Tensor:
        return adaptive_max_pool(self.rank, x, self.output_size)


class MaxPool1d(_MaxPool):
    __doc__ = f"One spatial axis: {_MaxPool.__doc__}"
    rank = 1


class MaxPool2d(_MaxPool):
    __doc__ = f"Images: {_MaxPool.__doc__}"
    rank = 2


class MaxPool3d(_MaxPool):
    __doc__ = f"Volumes: {_MaxPool.__doc__}"
    rank = 3


class AvgPool1d(_AvgPool):
    __doc__ = f"One spatial axis: {_AvgPool.__doc__}"
    rank = 1


class AvgPool2d(_AvgPool):
    __doc__ = f"Images: {_AvgPool.__doc__}"
    rank = 2


class AvgPool3d(_AvgPool):
    __doc__ = f"Volumes: {_AvgPool.__doc__}"
    rank = 3


class LPPool1d(_LPPool):
    __doc__ = f"One spatial axis: {_LPPool.__doc__}"
    rank = 1


class LPPool2d(_LPPool):
    __doc__ = f"Images: {_LPPool.__doc__}"
    rank = 2


class LPPool3d(_LPPool):
    __doc__ = f"Volumes: {_LPPool.__doc__}"
    rank = 3


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    __doc__ = f"One spatial axis: {_AdaptiveAvgPool.__doc__}"
    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    __doc__ = f"Images: {_AdaptiveAvgPool.__doc__}"
    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    __doc__ = f"Volumes: {_AdaptiveAvgPool.__doc__}"
    rank = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    __doc__ = f"One spatial axis: {_AdaptiveMaxPool.__doc__}"
    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    __doc__ = f"Images: {_AdaptiveMaxPool.__doc__}"
    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    __doc__ = f"Volumes: {_AdaptiveMaxPool.__doc__}"
    rank = 3
