"""Convolutions: TFLite images are [N, H, W, C], so each is between two transposes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.activations import activated
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.hybrid import asymmetric_rows, symmetric_rows
from modelcc.frontends.tflite.requantization import requantized
from modelcc.frontends.tflite.windows import channels_first, channels_last, window_pads
from modelcc.ir.index import Index
from modelcc.ir.types import F32, I8, I16, I64, U8, Array
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.quant_matmul import ConvInteger
from modelcc.ops.shape import Reshape, Transpose

_AXES = "dhw"


def conv_2d(call: TfliteCall) -> str:
    """CONV_2D: weights are [O, H, W, I / groups]."""
    shape = call.shape(1)
    inputs, per_group = call.shape()[-1], shape[-1]
    groups = 1
    if isinstance(inputs, int) and isinstance(per_group, int) and 0 < per_group < inputs:
        groups = inputs // per_group
    return _convolved(call, (0, 3, 1, 2), groups, shape[1:3])


def depthwise_conv_2d(call: TfliteCall) -> str:
    """DEPTHWISE_CONV_2D: weights are [1, H, W, C * multiplier]."""
    groups = number_of(call.shape()[-1], "number of channels")
    return _convolved(call, (3, 0, 1, 2), groups, call.shape(1)[1:3])


def _convolved(
    call: TfliteCall, order: tuple[int, ...], groups: int, kernel: Sequence[Index]
) -> str:
    if call.rank() != 4 or call.rank(1) != 4:
        call.fail(f"it convolves {call.type()} by {call.type(1)}, not tensors of rank 4")
    strides = call.integer("stride_h", 1), call.integer("stride_w", 1)
    dilations = call.integer("dilation_h_factor", 1), call.integer("dilation_w_factor", 1)
    taps = [number_of(extent, "kernel") for extent in kernel]
    before, after = window_pads(call, call.shape()[1:3], taps, strides, dilations)
    op = Conv(strides, before, after, dilations, groups)
    if call.dtype() == F32:
        return _float(call, op, order)
    return channels_last(_integer(call, op, order)).name


def _float(call: TfliteCall, op: Conv, order: tuple[int, ...]) -> str:
    if call.dtype(1) in (I8, U8):
        return _hybrid(call, op, order)
    image = channels_first(call.value(0))
    operands = [image, weights(call, 1, order)]
    if call.has(2):
        operands.append(call.value(2))
    return activated(call, channels_last(of(op, *operands))).name


def _integer(call: TfliteCall, op: Conv, order: tuple[int, ...]) -> Value:
    """The convolution of numbers minus their zero points, requantized to the result."""
    x, w = call.single(0), call.quantization(1)
    image, kernel = channels_first(call.value(0)), weights(call, 1, order)
    outputs = call.type_of(kernel.name).shape[0]
    if call.dtype() == I16:
        sums = _wide_sums(op, image, kernel)
    else:
        integer = ConvInteger(op.strides, op.pads_before, op.pads_after, op.dilations, op.groups)
        zeros = [call.literal(np.asarray(x.zero), call.dtype())]
        if call.dtype(1) == U8:
            zeros.append(call.literal(np.asarray(w.zero), U8))
        sums = of(integer, image, kernel, *zeros)
    if call.has(2):
        column = of(Reshape((outputs, 1, 1)), call.value(2))
        wide = sums.type.dtype
        sums = sums + (column if call.dtype(2) == wide else of(ew.Cast(wide), column))
    return requantized(call, sums, effective_scales(call, 1))


def _wide_sums(op: Conv, image: Value, kernel: Value) -> Value:
    """Sums of products of 16-bit by 8-bit numbers, in 64 bits."""
    return of(op, of(ew.Cast(I64), image), of(ew.Cast(I64), kernel))


def effective_scales(call: TfliteCall, axes: int, image: int = 0) -> Array | float:
    """The multipliers of accumulators: one number, or a column per output channel.

    With a single scale the product is computed in f32 where TFLite's kernel for u8 does so.
    """
    x, w, y = call.single(image), call.quantization(1), call.result()
    if call.dtype(image) == U8:
        return float(np.float32(x.scale) * np.float32(w.scale)) / y.scale
    scales = float(x.scale) * w.scales.astype(np.float64) / float(y.scale)
    return float(scales[0]) if w.per_tensor else scales.reshape(-1, *(1,) * (axes + 1))


def weights(call: TfliteCall, i: int, order: tuple[int, ...]) -> Value:
    """Operand ``i`` with its axes in ``order``."""
    known = call.known(i)
    if known is None or known.dtype == object:
        return of(Transpose(order), call.value(i))
    return call.literal(np.ascontiguousarray(known.transpose(order)), call.dtype(i))


def _hybrid(call: TfliteCall, op: Conv, order: tuple[int, ...]) -> str:
    """Floats by 8-bit weights: each image is quantized dynamically for the product."""
    w = call.quantization(1)
    if w.zeros.any():
        unsupported("weights of bytes with a zero point by floats")
    image, kernel = channels_first(call.value(0)), weights(call, 1, order)
    whole = of(ew.Cast(F32), kernel)
    if w.per_tensor and op.groups == 1 and call.op.name == "CONV_2D":
        rows = symmetric_rows(image, (1, 2, 3))
        integer = ConvInteger(op.strides, op.pads_before, op.pads_after, op.dilations)
        sums = of(ew.Cast(F32), of(integer, rows.bytes, kernel))
    else:
        rows = asymmetric_rows(image, (1, 2, 3))
        sums = of(op, rows.centred, whole)
    scales = w.scales if w.per_tensor else w.scales.reshape(-1, 1, 1)
    y = sums * (rows.factor * call.literal(scales))
    if call.has(2):
        y = y + of(Reshape((kernel.type.shape[0], 1, 1)), call.value(2))
    return activated(call, channels_last(y)).name


def conv_3d(call: TfliteCall) -> str:
    """CONV_3D: weights are [D, H, W, I / groups, O]."""
    sizes, kernel = call.shape()[1:4], _kernel(call, 0)
    strides, dilations = _steps(call)
    before, after = window_pads(call, sizes, kernel, strides, dilations)
    inputs, per_group = (number_of(e, "channels") for e in (call.shape()[4], call.shape(1)[3]))
    op = Conv(strides, before, after, dilations, max(1, inputs // max(1, per_group)))
    return _computed(call, op, 0, (4, 3, 0, 1, 2))


def conv_3d_transpose(call: TfliteCall) -> str:
    """CONV_3D_TRANSPOSE: the result's shape, weights [D, H, W, O, I], the volume and a bias."""
    kernel = _kernel(call, 2)
    strides, dilations = _steps(call)
    sizes = call.indices(0, "shape of the result")[1:4]
    pads = window_pads(call, sizes, kernel, strides, dilations)
    before = tuple(number_of(pad, "pad") for pad in pads[0])
    after: list[int] = []
    for n, (own, size) in enumerate(zip(call.shape(2)[1:4], sizes, strict=True)):
        reach = (kernel[n] - 1) * dilations[n] + 1
        whole = (number_of(own, "size of the volume") - 1) * strides[n] + reach
        after.append(whole - number_of(size, "size of the result") - before[n])
    op = ConvTranspose(strides, before, tuple(after), dilations, 1, (0, 0, 0))
    return _computed(call, op, 2, (4, 3, 0, 1, 2))


def _kernel(call: TfliteCall, volume: int) -> tuple[int, ...]:
    if call.rank(volume) != 5 or call.rank(1) != 5:
        call.fail(f"it convolves {call.type(volume)} by {call.type(1)}, not tensors of rank 5")
    if call.dtype(volume) != F32 or call.dtype(1) != F32:
        unsupported(f"a convolution of {call.dtype(volume)} by {call.dtype(1)}")
    return tuple(number_of(extent, "kernel") for extent in call.shape(1)[:3])


def _steps(call: TfliteCall) -> tuple[tuple[int, ...], tuple[int, ...]]:
    strides = tuple(call.integer(f"stride_{axis}", 1) for axis in _AXES)
    return strides, tuple(call.integer(f"dilation_{axis}_factor", 1) for axis in _AXES)


def _computed(
    call: TfliteCall, op: Conv | ConvTranspose, volume: int, order: tuple[int, ...]
) -> str:
    bias = volume + 2 if volume == 0 else volume + 1
    operands: list[Value] = [channels_first(call.value(volume)), weights(call, 1, order)]
    if call.has(bias):
        operands.append(call.value(bias))
    return activated(call, channels_last(of(op, *operands))).name


CONVOLUTION: Handlers = {
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "CONV_3D": conv_3d,
    "CONV_3D_TRANSPOSE": conv_3d_transpose,
}
