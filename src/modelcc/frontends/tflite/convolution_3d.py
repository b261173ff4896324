"""CONV_3D and CONV_3D_TRANSPOSE: volumes are [N, D, H, W, C], weights [D, H, W, …]."""

from __future__ import annotations

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.convolution import weights
from modelcc.frontends.tflite.fused_activation import activated
from modelcc.frontends.tflite.windows import channels_first, channels_last, window_pads
from modelcc.ir.types import F32
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.conv import Conv, ConvTranspose

_AXES = "dhw"


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


CONVOLUTION_3D: Handlers = {"CONV_3D": conv_3d, "CONV_3D_TRANSPOSE": conv_3d_transpose}
