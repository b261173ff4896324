"""TRANSPOSE_CONV, and MediaPipe's variant of it."""

from __future__ import annotations

import struct

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.activations import activated
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.convolution import effective_scales, weights
from modelcc.frontends.tflite.requantization import centred, requantized
from modelcc.frontends.tflite.windows import channels_first, channels_last
from modelcc.ir.condition import Constraint
from modelcc.ir.index import Index
from modelcc.ir.types import F32, I16, I64, U8
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.conv import ConvTranspose

_OPTIONS = struct.Struct("<iii")
"""Padding, and strides along rows and along columns."""

_SAME = 1


def transpose_conv(call: TfliteCall) -> str:
    """TRANSPOSE_CONV: the extents of the result, weights [O, H, W, I], the image and a bias."""
    sizes = _sizes(call)
    if len(sizes) != 4 or call.rank(1) != 4 or call.rank(2) != 4:
        call.fail(f"it makes {sizes} of {call.type(2)} by {call.type(1)}")
    strides = call.integer("stride_h", 1), call.integer("stride_w", 1)
    same = call.choice(call.word("padding", "SAME"), ("SAME", "VALID"), "padding") == "SAME"
    op = _transposed(call, 2, strides, sizes[1:3], same)
    bias = 3 if call.has(3) else None
    if call.dtype(2) == F32:
        return activated(call, channels_last(_float(call, op, 2, bias))).name
    return channels_last(_integer(call, op, bias)).name


def _sizes(call: TfliteCall) -> tuple[Index, ...]:
    """The shape of the result; if it is given at run time, the file's declared one, if any."""
    given, declared = call.indices(0, "shape of the result"), call.results[0].shape
    if declared is None or len(declared) != len(given) or min(declared, default=0) < 1:
        return given
    open_ = [(a, b) for a, b in zip(given, declared, strict=True) if not isinstance(a, int)]
    pairs: list[Constraint] = [(a, "==", b) for a, b in open_]
    call.emitter.require(pairs, call.source, True)
    return declared if pairs else given


def convolution_2d_transpose_bias(call: TfliteCall) -> str:
    """Convolution2DTransposeBias of MediaPipe: an image, weights [O, H, W, I] and a bias."""
    data = call.op.custom or b""
    if len(data) < _OPTIONS.size:
        call.fail(f"its options have {len(data)} bytes")
    padding, width, height = _OPTIONS.unpack_from(data)
    taps = call.shape(1)[1:3]
    same = padding == _SAME
    grown = zip(call.shape()[1:3], (height, width), taps, strict=True)
    sizes = [size * step if same else (size - 1) * step + tap for size, step, tap in grown]
    op = _transposed(call, 0, (height, width), sizes, same)
    return channels_last(_float(call, op, 0, 2 if call.has(2) else None)).name


def _transposed(
    call: TfliteCall, image: int, strides: tuple[int, int], sizes: tuple[Index, ...] | list[Index],
    same: bool,
) -> ConvTranspose:  # fmt: skip
    """With the pads of the convolution that it transposes."""
    kernel = [number_of(extent, "kernel") for extent in call.shape(1)[1:3]]
    if min(strides) < 1:
        call.fail(f"it has strides {strides}")
    before: list[int] = []
    after: list[int] = []
    for own, size, step, tap in zip(call.shape(image)[1:3], sizes, strides, kernel, strict=True):
        whole = (number_of(own, "size of the image") - 1) * step + tap
        target = number_of(size, "size of the result")
        # Pads of the convolution from the result to the image.
        total = max(0, whole - target) if same else 0
        before.append(total // 2)
        after.append(whole - target - total // 2)
    return ConvTranspose(strides, tuple(before), tuple(after), (1, 1), 1, (0, 0))


def _float(call: TfliteCall, op: ConvTranspose, image: int, bias: int | None) -> Value:
    if call.dtype(1) != F32:
        unsupported("a transposed convolution of floats by bytes")
    operands = [channels_first(call.value(image)), weights(call, 1, (3, 0, 1, 2))]
    if bias is not None:
        operands.append(call.value(bias))
    return of(op, *operands)


def _integer(call: TfliteCall, op: ConvTranspose, bias: int | None) -> Value:
    """Of numbers minus their zero points, in 32 or 64 bits."""
    x, w, dtype = call.single(2), call.quantization(1), call.dtype(2)
    image = centred(channels_first(call.value(2)), x.zero)
    kernel = centred(weights(call, 1, (3, 0, 1, 2)), w.zero if dtype == U8 else 0)
    if dtype == I16:
        image, kernel = (of(ew.Cast(I64), value) for value in (image, kernel))
    sums = of(op, image, kernel)
    if bias is not None:
        column = of(ew.Cast(sums.type.dtype), call.value(bias))
        sums = sums + of(Reshape((sums.type.shape[1], 1, 1)), column)
    return requantized(call, sums, effective_scales(call, 1, 2))


TRANSPOSED_CONVOLUTION: Handlers = {
    "TRANSPOSE_CONV": transpose_conv,
    "Convolution2DTransposeBias": convolution_2d_transpose_bias,
}
