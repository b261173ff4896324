"""Sliding windows over images that TFLite stores as [N, H, W, C]."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.tflite.call import TfliteCall
from modelcc.ir.index import Index, ceildiv, floordiv, maximum
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.shape import Transpose


def channels_first(x: Value) -> Value:
    """[N, H, W, C] as [N, C, H, W]."""
    last = x.type.rank - 1
    return of(Transpose((0, last, *range(1, last))), x)


def channels_last(x: Value) -> Value:
    """[N, C, H, W] as [N, H, W, C]."""
    return of(Transpose((0, *range(2, x.type.rank), 1)), x)


def window_pads(
    call: TfliteCall,
    sizes: Sequence[Index],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """Pads before and after the spatial axes; SAME gives ceil(size / stride) windows."""
    if any(number < 1 for number in (*kernel, *strides, *dilations)):
        call.fail(f"it has kernel {kernel}, strides {strides} and dilations {dilations}")
    padding = call.choice(call.word("padding", "SAME"), ("SAME", "VALID"), "padding")
    if padding == "VALID":
        return (0,) * len(kernel), (0,) * len(kernel)
    totals = [
        maximum(0, (ceildiv(size, stride) - 1) * stride + (taps - 1) * dilation + 1 - size)
        for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    before = tuple(floordiv(total, 2) for total in totals)
    return before, tuple(total - half for total, half in zip(totals, before, strict=True))
