"""Pooling over windows of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.tflite.activations import activated
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.requantization import quantized_bounds, rounded_quotient, saturated
from modelcc.frontends.tflite.windows import channels_first, channels_last, window_pads
from modelcc.ir.index import Index
from modelcc.ir.types import I8, I32, U8, Array
from modelcc.ops import elementwise as ew
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.conv import Conv
from modelcc.ops.pool import AveragePool, MaxPool
from modelcc.ops.quant import limits
from modelcc.ops.quant_matmul import ConvInteger


@dataclass(frozen=True)
class PoolWindow:
    """The window of a pooling operator over [N, H, W, C]."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    before: tuple[Index, ...]
    after: tuple[Index, ...]

    @staticmethod
    def of(call: TfliteCall) -> PoolWindow:
        """The window specified by the options."""
        if call.rank() != 4:
            call.fail(f"it pools {call.type()}, not a tensor of rank 4")
        kernel = call.integer("filter_height", 1), call.integer("filter_width", 1)
        strides = call.integer("stride_h", 1), call.integer("stride_w", 1)
        pads = window_pads(call, call.shape()[1:3], kernel, strides, (1, 1))
        return PoolWindow(kernel, strides, *pads)

    def covers(self, sizes: tuple[Index, ...]) -> bool:
        """Whether there is a single window, covering the whole image."""
        return sizes == self.kernel and not any((*self.before, *self.after))

    def counts(self, sizes: tuple[int, int]) -> Array:
        """The number of image pixels in each window, [1, 1, H, W]."""
        axes: list[Array] = []
        for n, size in enumerate(sizes):
            before, after = (number_of(p[n], "padding") for p in (self.before, self.after))
            last = size + before + after - self.kernel[n]
            starts = np.arange(0, last + 1, self.strides[n]) - before
            ends = np.minimum(starts + self.kernel[n], size)
            axes.append(ends - np.maximum(starts, 0))
        return np.multiply.outer(*axes)[None, None]


def max_pool_2d(call: TfliteCall) -> str:
    """MAX_POOL_2D."""
    own = PoolWindow.of(call)
    op = MaxPool(own.kernel, own.strides, own.before, own.after, (1, 1))
    y = of(op, channels_first(call.value(0)))
    if not call.is_quantized:
        return activated(call, channels_last(y)).name
    dtype = call.result_dtype
    activation = call.word("fused_activation_function", "NONE")
    bounds = quantized_bounds(activation, call.result(), dtype)
    if bounds != limits(dtype):
        y = of(Clip(*map(float, bounds)), y)
    return channels_last(y).name


def average_pool_2d(call: TfliteCall) -> str:
    """AVERAGE_POOL_2D: means over the window's pixels inside the image."""
    own = PoolWindow.of(call)
    if call.is_quantized:
        return _quantized_average(call, own)
    op = AveragePool(own.kernel, own.strides, own.before, own.after, (1, 1))
    return activated(call, channels_last(of(op, channels_first(call.value(0))))).name


def _quantized_average(call: TfliteCall, own: PoolWindow) -> str:
    """Sums of raw quantized numbers, divided by the number of pixels."""
    dtype = call.result_dtype
    activation = call.word("fused_activation_function", "NONE")
    bounds = quantized_bounds(activation, call.result(), dtype)
    x, sizes = call.value(0), call.shape()[1:3]
    if own.covers(sizes):
        sums = of(ReduceSum((1, 2), keepdims=True), of(ew.Cast(I32), x))
        count = own.kernel[0] * own.kernel[1]
        return saturated(rounded_quotient(sums, count), 0, bounds, dtype).name
    numbers = tuple(number_of(size, "size of the image") for size in sizes)
    counts = own.counts((numbers[0], numbers[1]))
    sums = _window_sums(call, own, channels_first(x))
    few = counts.reshape(-1)[0] if (counts == counts.reshape(-1)[0]).all() else counts
    return channels_last(saturated(rounded_quotient(sums, few), 0, bounds, dtype)).name


def _window_sums(call: TfliteCall, own: PoolWindow, x: Value) -> Value:
    """Window sums in i32, by a convolution with ones; padding is 0."""
    channels = number_of(x.type.shape[1], "number of channels")
    ones = np.ones((channels, 1, *own.kernel))
    places = own.strides, own.before, own.after, (1, 1), channels
    if x.type.dtype in (I8, U8):
        return of(ConvInteger(*places), x, call.literal(ones, I8))
    return of(Conv(*places), of(ew.Cast(I32), x), call.literal(ones, I32))


def l2_pool_2d(call: TfliteCall) -> str:
    """L2_POOL_2D: roots of means of squares."""
    own = PoolWindow.of(call)
    call.require_float()
    op = AveragePool(own.kernel, own.strides, own.before, own.after, (1, 1))
    x = channels_first(call.value(0))
    return activated(call, channels_last(of(ew.Sqrt(), of(op, x * x)))).name


POOLING: Handlers = {
    "MAX_POOL_2D": max_pool_2d,
    "AVERAGE_POOL_2D": average_pool_2d,
    "L2_POOL_2D": l2_pool_2d,
}
