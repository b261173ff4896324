"""Layers that change the extents of images: upsampling, pixels from channels, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from modelcc.nn.functional.resizing import Factors, Mode, interpolate, pad
from modelcc.nn.functional.shaping import pixel_shuffle, pixel_unshuffle
from modelcc.nn.functional.values import per_axis
from modelcc.nn.module import Module
from modelcc.tensor.tensor import Tensor


class Upsample(Module):
    """``[N, C, *S]`` resized to a size, or by a factor."""

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: Factors | None = None,
        mode: Mode = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        """One of ``size`` and ``scale_factor``; modes are those of ``functional.interpolate``."""
        self.size, self.scale_factor = size, scale_factor
        self.mode: Mode = mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, x: Any) -> Tensor:
        return interpolate(
            x, self.size, self.scale_factor, self.mode, self.align_corners,
            self.recompute_scale_factor,
        )  # fmt: skip


class PixelShuffle(Module):
    """``[…, C r^2, H, W]`` to ``[…, C, H r, W r]`` (Shi et al., 2016)."""

    def __init__(self, upscale_factor: int) -> None:
        """``upscale_factor`` is r."""
        self.upscale_factor = upscale_factor

    def forward(self, x: Any) -> Tensor:
        return pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """``[…, C, H r, W r]`` to ``[…, C r^2, H, W]``."""

    def __init__(self, downscale_factor: int) -> None:
        """``downscale_factor`` is r."""
        self.downscale_factor = downscale_factor

    def forward(self, x: Any) -> Tensor:
        return pixel_unshuffle(x, self.downscale_factor)


class _Padding(Module):
    """Base: pads before and after each spatial axis, the last axis first."""

    rank: ClassVar[int]
    mode: ClassVar[Literal["constant", "reflect", "replicate", "circular"]] = "constant"

    def __init__(self, padding: int | Sequence[int]) -> None:
        """One number, or two per axis."""
        self.padding = per_axis(padding, 2 * self.rank, "padding")

    def forward(self, x: Any) -> Tensor:
        return pad(x, self.padding, self.mode)


class _ConstantPad(_Padding):
    """Base: constant padding."""

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        """``value`` is the padding value."""
        super().__init__(padding)
        self.value = value

    def forward(self, x: Any) -> Tensor:
        return pad(x, self.padding, "constant", self.value)


class ZeroPad1d(_Padding):
    """Zero padding of the last axis."""

    rank = 1


class ZeroPad2d(_Padding):
    """Zero padding of the last two axes."""

    rank = 2


class ZeroPad3d(_Padding):
    """Zero padding of the last three axes."""

    rank = 3


class ReflectionPad1d(_Padding):
    """Reflection padding of the last axis."""

    rank = 1
    mode = "reflect"


class ReflectionPad2d(_Padding):
    """Reflection padding of the last two axes."""

    rank = 2
    mode = "reflect"


class ReflectionPad3d(_Padding):
    """Reflection padding of the last three axes."""

    rank = 3
    mode = "reflect"


class ReplicationPad1d(_Padding):
    """Edge padding of the last axis."""

    rank = 1
    mode = "replicate"


class ReplicationPad2d(_Padding):
    """Edge padding of the last two axes."""

    rank = 2
    mode = "replicate"


class ReplicationPad3d(_Padding):
    """Edge padding of the last three axes."""

    rank = 3
    mode = "replicate"


class CircularPad1d(_Padding):
    """Circular padding of the last axis."""

    rank = 1
    mode = "circular"


class CircularPad2d(_Padding):
    """Circular padding of the last two axes."""

    rank = 2
    mode = "circular"


class CircularPad3d(_Padding):
    """Circular padding of the last three axes."""

    rank = 3
    mode = "circular"


class ConstantPad1d(_ConstantPad):
    """Constant padding of the last axis."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """Constant padding of the last two axes."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """Constant padding of the last three axes."""

    rank = 3
