"""Fake quantisation with straight-through gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import product
from modelcc.nn.functional.values import as_tensor, detached, of, reshaped, summed, where
from modelcc.nn.module import Module
from modelcc.nn.roles import Buffer, Parameter
from modelcc.ops.comparison import Max, Min
from modelcc.ops.elementwise import Abs, Cast, Round
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear, limits
from modelcc.ops.reduce import ReduceMax, ReduceMin
from modelcc.tensor.custom import custom_gradient
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor

SMALLEST = 1e-12
"""The minimum scale: that of a zero tensor."""


def fake_quantize(x: Any, scale: Tensor, zero_point: Tensor, axis: int | None = None) -> Tensor:
    """``x`` quantised to ``zero_point``'s dtype and dequantised.

    ``scale`` and ``zero_point`` are scalars, or vectors along ``axis``.  The gradient of ``x`` is
    passed through where it is in range, and is 0 outside (Bengio et al., "Estimating or propagating
    gradients through stochastic neurons", 2013); that of ``scale`` is as in Esser et al., "Learned
    step size quantization" (2020), its own factor included.
    """
    rounded = custom_gradient(_Rounding(axis).forward, _Rounding(axis).backward)
    return rounded(as_tensor(x), scale, zero_point)


class _Rounding:
    """The rule of :func:`fake_quantize` along ``axis``."""

    def __init__(self, axis: int | None) -> None:
        self.axis = axis

    def forward(self, x: Tensor, scale: Tensor, zero: Tensor) -> tuple[Tensor, Any]:
        axis = self.axis or 0
        q = of(QuantizeLinear(zero.dtype, axis), x, scale, zero)
        y = of(DequantizeLinear(axis), q, scale, zero)
        return y, (x, y, scale, zero)

    def backward(self, kept: tuple[Tensor, ...], dy: Tensor) -> tuple[Tensor, Tensor, None]:
        x, y, scale, zero = kept
        step = self._along(scale, x)
        low, high = (
            (self._along(of(Cast(x.dtype), zero), x) * -1.0 + end) * step
            for end in limits(zero.dtype)
        )
        inside = (x >= low - step * 0.5) & (x <= high + step * 0.5)
        error = where(inside, y - x, y) / step
        factor = 1.0 / math.sqrt(limits(zero.dtype)[1])
        slope = self._summed(dy * error * factor, scale) / self._root(x)
        return where(inside, dy, 0.0), slope, None

    def _along(self, parameter: Tensor, x: Tensor) -> Tensor:
        """A parameter reshaped to broadcast with ``x``."""
        if self.axis is None:
            return parameter
        return reshaped(parameter, parameter.shape[0], *(1,) * (x.ndim - self.axis - 1))

    def _summed(self, x: Tensor, scale: Tensor) -> Tensor:
        if self.axis is None:
            return reshaped(summed(x), *scale.shape)
        return summed(x, *(a for a in range(x.ndim) if a != self.axis))

    def _root(self, x: Tensor) -> Any:
        """The square root of the number of elements that share a scale."""
        extents = [e for a, e in enumerate(x.shape) if a != self.axis]
        count = product(extents)
        if isinstance(count, int):
            return math.sqrt(max(count, 1))
        raise ModelError("the scale of a tensor of named extents cannot be learned", callers_line())


class FakeQuantize(Module):
    """Fake-quantises a tensor to 8 bits, by its observed range, or a learned scale.

    ``dtype`` is ``i8`` (symmetric, zero point 0) or ``u8``; with ``axis`` each slice has its own
    scale.  In training the range is a moving average by ``averaging`` (1: that of the current
    tensor); with ``learned`` it is set by :func:`~modelcc.nn.quantization.layers.calibrated` and
    then trained.
    """

    low: Tensor
    high: Tensor
    seen: Tensor
    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        dtype: Any = "u8",
        axis: int | None = None,
        extent: int | None = None,
        *,
        averaging: float = 0.01,
        learned: bool = False,
    ) -> None:
        """``extent`` is that of ``axis``."""
        self.to = named_type(dtype)
        if self.to.name not in ("i8", "u8"):
            raise ModelError(f"a tensor is quantised to i8 or u8, not {self.to}", callers_line())
        if (axis is None) != (extent is None):
            raise ModelError("an axis comes with its extent", callers_line())
        self.axis, self.extent = axis, extent
        self.averaging, self.learned, self.observing = averaging, learned, not learned
        self.reset_parameters()

    def reset_parameters(self, rng: np.random.Generator | None = None) -> None:
        """Resets the range to empty."""
        shape = () if self.extent is None else (self.extent,)
        self.low = Buffer(np.zeros(shape, np.float32))
        self.high = Buffer(np.zeros(shape, np.float32))
        self.seen = Buffer(np.array(False))
        ones = np.ones(shape, np.float32)
        self.scale = Parameter(ones) if self.learned else Buffer(ones)
        self.zero_point = Buffer(np.zeros(shape, self.to.numpy))

    def forward(self, x: Any) -> Tensor:
        x = as_tensor(x)
        if self.training and self.observing:
            self._observe(detached(x))
        scale = of(Abs(), self.scale) if self.learned else self.scale
        return fake_quantize(x, scale, self.zero_point, self.axis)

    def _observe(self, x: Tensor) -> None:
        axes = tuple(a for a in range(x.ndim) if a != self.axis)
        ends = of(ReduceMin(axes, False), x), of(ReduceMax(axes, False), x)
        ends = [detached(end) for end in ends]
        share = self.averaging
        old = (self.low, self.high)
        moved = [w + (e - w) * share for w, e in zip(old, ends, strict=True)]
        self.low, self.high = (where(self.seen, m, e) for m, e in zip(moved, ends, strict=True))
        self.seen = Tensor(np.array(True))
        self.scale, self.zero_point = self._parameters()

    def _parameters(self) -> Sequence[Tensor]:
        """Scale and zero point of the range, which includes 0."""
        zero = self.low * 0.0
        low, high = of(Min(), self.low, zero), of(Max(), self.high, zero)
        least, most = limits(self.to)
        if self.to.kind == "int":
            bound = of(Max(), of(Max(), -low, high) / most, zero + SMALLEST)
            return detached(bound), self.zero_point
        scale = of(Max(), (high - low) / (most - least), zero + SMALLEST)
        place = of(Round(), -low / scale) + least
        return detached(scale), detached(of(Cast(self.to), place))
