"""Rewrites of operators with bit-identical results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from modelcc.frontends.tflite.module import TfliteQuantization, TfliteTensor
from modelcc.subsets.draft import Draft
from modelcc.subsets.limits import dilations, kernel, padded, strides
from modelcc.subsets.view import Shape, axes_of, shape_of

_MOST_PIECES, _MOST_STRIDE = 16, 3
_NO_PADS = ((0, 0), (0, 0))


@dataclass(frozen=True)
class Rewrite:
    """``apply`` adds operators to a draft, or returns False if not applicable; ``words`` is its
    description."""

    words: str
    apply: Callable[[Draft], bool]


def _padded_data(to: Draft) -> tuple[int, Shape]:
    """The data, explicitly padded as SAME would."""
    data, (rows, columns) = to.view.data, padded(to.view)
    assert data is not None
    shape = shape_of(data)
    if (rows, columns) == _NO_PADS:
        return to.given(0), shape
    wide = (shape[0], shape[1] + sum(rows), shape[2] + sum(columns), shape[3])
    pads = to.numbers([(0, 0), rows, columns, (0, 0)])
    return to.add("PAD", (to.given(0), pads), to.tensor(data, wide)), wide


def _pad_apart(to: Draft) -> bool:
    """SAME becomes PAD and VALID: both pad with the zero point."""
    if padded(to.view) == _NO_PADS or len(shape_of(to.view.data)) != 4:
        return False
    data, _ = _padded_data(to)
    to.again((data, *to.view.operator.inputs[1:]), to.result, padding="VALID")
    return True


def _strides_apart(to: Draft) -> bool:
    """Strides become smaller ones, and the result is subsampled."""
    stride = strides(to.view)
    small = tuple(max(d for d in (1, 2, _MOST_STRIDE) if s % d == 0) for s in stride)
    if small == stride or len(shape_of(to.view.data)) != 4:
        return False
    data, shape = _padded_data(to)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel(to.view), dilations(to.view), strict=True)]
    size = [(n - e) // s + 1 for n, e, s in zip(shape[1:3], spans, small, strict=True)]
    result = to.view.outputs[0]
    middle = to.tensor(result, (shape[0], size[0], size[1], shape_of(result)[3]))
    inputs = (data, *to.view.operator.inputs[1:])
    to.again(inputs, middle, padding="VALID", stride_h=small[0], stride_w=small[1])
    _every(to, middle, (stride[0] // small[0], stride[1] // small[1]))
    return True


def _every(to: Draft, data: int, steps: tuple[int, int]) -> None:
    """Pixels at multiples of ``steps``: max pooling with windows of one pixel."""
    options = {
        "padding": "VALID", "filter_height": 1, "filter_width": 1,
        "stride_h": steps[0], "stride_w": steps[1], "fused_activation_function": "NONE",
    }  # fmt: skip
    to.add("MAX_POOL_2D", (data,), to.result, options, 2)


def _activation_apart(to: Draft) -> bool:
    """The operator without its fused activation, followed by that."""
    kind = to.view.text("fused_activation_function")
    if kind not in ("RELU", "RELU6", "RELU_N1_TO_1"):
        return False
    result = to.view.outputs[0]
    middle = to.tensor(result, shape_of(result))
    to.again(to.view.operator.inputs, middle, fused_activation_function="NONE")
    to.add(kind, (middle,), to.result, version=2 if kind != "RELU_N1_TO_1" else 1)
    return True


def _dilated_weights(to: Draft) -> bool:
    """Dilations become zeros in the weights."""
    weights, (rows, columns) = to.view.input(1), dilations(to.view)
    if weights is None or weights.data is None or (rows, columns) == (1, 1):
        return False
    before, quantization = weights.data, weights.quantization
    zero = quantization.zero if quantization is not None and quantization.per_tensor else 0
    size = [(n - 1) * d + 1 for n, d in zip(before.shape[1:3], (rows, columns), strict=True)]
    data = np.full((before.shape[0], *size, before.shape[3]), zero, before.dtype)
    data[:, ::rows, ::columns] = before
    new = to.constant(data, weights, quantization)
    given = (to.given(0), new, *to.view.operator.inputs[2:])
    to.again(given, to.result, dilation_h_factor=1, dilation_w_factor=1)
    return True


def _slope_operand(to: Draft) -> bool:
    """LEAKY_RELU's slope as PRELU's operand: 1 or -1 with the slope as scale."""
    slope, data = to.view.operator.options.get("alpha"), to.view.data
    if data is None or data.quantization is None or not isinstance(slope, float) or not slope:
        return False
    scale = TfliteQuantization(np.asarray([abs(slope)], np.float32), np.zeros(1, np.int64), 0)
    if data.dtype is None or (slope < 0 and data.type == "UINT8"):
        return False
    shape = (*(1,) * (len(shape_of(data)) - 2), shape_of(data)[-1])
    slopes = to.constant(np.full(shape, int(np.sign(slope)), data.dtype.numpy), data, scale)
    to.add("PRELU", (to.given(0), slopes), to.result)
    return True


def _nearest_in_steps(to: Draft) -> bool:
    """A large factor as several of 2, 4 and 8."""
    data, result = to.view.data, to.view.outputs[0]
    options = to.view.operator.options
    if data is None or options.get("align_corners") or options.get("half_pixel_centers"):
        return False
    before, after = shape_of(data), shape_of(result)
    factor = after[1] // before[1]
    if (before[1] * factor, before[2] * factor) != after[1:3] or factor & (factor - 1):
        return False
    at, size = to.given(0), before
    while factor > 1:
        step = min(8, factor)
        factor //= step
        size = (size[0], size[1] * step, size[2] * step, size[3])
        target = to.result if factor == 1 else to.tensor(result, size)
        at = to.again((at, to.numbers(size[1:3])), target)
    return bool(to.operators)


def _flat_mean(to: Draft) -> bool:
    """A mean over adjacent axes, which are merged into one."""
    data, result = to.view.data, to.view.outputs[0]
    shape = shape_of(data)
    axes = axes_of(to.view.constant(1), len(shape))
    special = len(shape) == 4 and axes == (1, 2)  # has its own rounding
    if data is None or not axes or special or axes != tuple(range(axes[0], axes[-1] + 1)):
        return False
    outer, inner = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
    count = math.prod(shape[axes[0] : axes[-1] + 1])
    flat = _reshaped(to, to.given(0), data, (1, outer, count, inner))
    mean = to.tensor(result, (1, outer, 1, inner))
    to.again((flat, to.numbers([2])), mean, keep_dims=True)
    _reshaped(to, mean, result, shape_of(result), to.result)
    return True


def _reshaped(
    to: Draft, at: int, like: TfliteTensor, shape: Shape, target: int | None = None
) -> int:
    to_shape = to.numbers(shape)
    result = to.tensor(like, shape) if target is None else target
    return to.add("RESHAPE", (at, to_shape), result, {"new_shape": shape})


def _blocks_by_transposition(to: Draft) -> bool:
    """DEPTH_TO_SPACE and SPACE_TO_DEPTH as a transposition of blocks."""
    data, result, block = to.view.data, to.view.outputs[0], to.view.number("block_size")
    if data is None or block < 2:
        return False
    (n, h, w, c), deep = shape_of(data), to.view.name == "DEPTH_TO_SPACE"
    parts = (n, h, w, block, block, c // block**2)
    if not deep:
        parts = (n, h // block, block, w // block, block, c)
    order = (0, 1, 3, 2, 4, 5)
    split = _reshaped(to, to.given(0), data, parts)
    turned = to.tensor(data, tuple(parts[axis] for axis in order))
    to.add("TRANSPOSE", (split, to.numbers(order)), turned)
    _reshaped(to, turned, result, shape_of(result), to.result)
    return True


def _kept_pixels(to: Draft) -> bool:
    """STRIDED_SLICE of an image as SLICE, then subsampling."""
    data, bounds = to.view.data, [to.view.constant(n) for n in (1, 2, 3)]
    masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    begin, end, steps = bounds
    if data is None or begin is None or end is None or steps is None:
        return False
    shape = shape_of(data)
    plain = len(steps) == 4 == len(shape) and (steps[0], steps[3]) == (1, 1)
    if not plain or min(steps) < 1 or max(steps) == 1 or any(to.view.number(m) for m in masks[2:]):
        return False
    low = _bounds(begin, shape, 0, to.view.number("begin_mask"))
    high = _bounds(end, shape, 1, to.view.number("end_mask"))
    size = tuple(max(0, b - a) for a, b in zip(low, high, strict=True))
    at = to.given(0)
    if size != shape:
        extents = (to.numbers(low), to.numbers(size))
        at = to.add("SLICE", (at, *extents), to.tensor(data, size))
    _every(to, at, (steps[1], steps[2]))
    return True


def _bounds(ends: tuple[int, ...], shape: Shape, last: int, mask: int) -> tuple[int, ...]:
    """Starts (``last`` 0) or ends of a slice, as nonnegative indices."""
    found = ((n + size if n < 0 else min(n, size)) for n, size in zip(ends, shape, strict=True))
    return tuple(
        (shape[axis] if last else 0) if mask >> axis & 1 else n for axis, n in enumerate(found)
    )


def _slices_of_indices(to: Draft) -> bool:
    """GATHER with constant indices as contiguous slices, concatenated."""
    data, indices, result = to.view.data, to.view.constant(1), to.view.outputs[0]
    picked = shape_of(to.view.input(1))
    if data is None or not indices or len(picked) != 1 or to.view.number("batch_dims"):
        return False
    runs = _runs(indices)
    shape = shape_of(data)
    axis = to.view.number("axis") % len(shape)
    if len(runs) > _MOST_PIECES or min(indices) < 0:
        return False
    parts: list[int] = []
    for first, count in runs:
        begin = tuple(first if n == axis else 0 for n in range(len(shape)))
        size = tuple(count if n == axis else extent for n, extent in enumerate(shape))
        target = to.result if len(runs) == 1 else to.tensor(result, size)
        parts.append(to.add("SLICE", (to.given(0), to.numbers(begin), to.numbers(size)), target))
    if len(parts) > 1:
        options = {"axis": axis, "fused_activation_function": "NONE"}
        to.add("CONCATENATION", parts, to.result, options)
    return True


def _runs(indices: tuple[int, ...]) -> list[tuple[int, int]]:
    """First index and length of each run of consecutive indices."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and sum(runs[-1]) == index:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((index, 1))
    return runs


_PAD = Rewrite("its padding by PAD, then VALID", _pad_apart)
_ACTIVATION = Rewrite("its activation as an operator of its own", _activation_apart)
_STRIDES = Rewrite("smaller strides, and MAX_POOL_2D of 1x1 for the rest", _strides_apart)
_DILATIONS = Rewrite("zeros between its weights, without dilations", _dilated_weights)
_BLOCKS = Rewrite("RESHAPE, TRANSPOSE, RESHAPE", _blocks_by_transposition)

REWRITES: Mapping[str, tuple[Rewrite, ...]] = MappingProxyType(
    {
        "CONV_2D": (_PAD, _STRIDES, _DILATIONS),
        "DEPTHWISE_CONV_2D": (_PAD, _STRIDES, _DILATIONS),
        "AVERAGE_POOL_2D": (_ACTIVATION,),
        "MAX_POOL_2D": (_ACTIVATION,),
        "LEAKY_RELU": (Rewrite("PRELU with the slope as its operand", _slope_operand),),
        "RESIZE_NEAREST_NEIGHBOR": (Rewrite("several factors of 2, 4 or 8", _nearest_in_steps),),
        "MEAN": (Rewrite("RESHAPE, MEAN over rows, RESHAPE", _flat_mean),),
        "DEPTH_TO_SPACE": (_BLOCKS,),
        "SPACE_TO_DEPTH": (_BLOCKS,),
        "STRIDED_SLICE": (Rewrite("SLICE, and MAX_POOL_2D of 1x1", _kept_pixels),),
        "GATHER": (Rewrite("SLICE, and CONCATENATION", _slices_of_indices),),
    }
)
"""Candidate rewrites of each operator; one is used if all its operators are supported."""
