"""Handlers of onnxruntime's transforms, windows, crops and convolutions (com.microsoft)."""

from __future__ import annotations

from collections.abc import Callable

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.fourier import Form, transformed
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.operands import operators
from modelcc.frontends.onnx.standard.window import per_axis
from modelcc.ir.index import Index, Range, floordiv
from modelcc.ir.types import F32, I64
from modelcc.ops import conv
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.gather import Gather
from modelcc.ops.gather_nd import GatherND
from modelcc.ops.generate import Iota
from modelcc.ops.shape import Concat, Expand
from modelcc.ops.views import cast, part, permuted, reshaped

At = Callable[[Value, Value], Value]
"""Samples of images at rows and columns."""


def _checked(call: Call) -> None:
    attrs = call.attrs
    if attrs.integer("signal_ndim", 1) != 1 or attrs.integer("normalized", 0):
        unsupported("transforms along several axes, or normalised ones")
    if not attrs.flag("onesided", True):
        unsupported("the whole spectrum (onesided=0)")


def real_transform(call: Call, x: Value) -> str:
    """Half of the spectrum of the last axis; real and imaginary parts are a new last axis."""
    _checked(call)
    shape = x.type.shape
    return transformed(
        call, reshaped(x, *shape, 1).name, len(shape) - 1, Form(False, True), shape[-1]
    )


def inverse_real_transform(call: Call, x: Value) -> Value:
    """The real signal, of even length, of a half spectrum."""
    _checked(call)
    *lead, count, _ = x.type.shape
    length = 2 * (count - 1)
    found = transformed(call, x.name, len(lead), Form(True, True), length)
    return reshaped(Value(call, found), *lead, length)


def windows(call: Call, x: Value) -> Value:
    """All windows along an axis, with elements in a new last axis."""
    axis, rank = call.axis(-1, name="dim"), x.type.rank
    size, step = call.attrs.integer("size"), call.attrs.integer("step", 1)
    count = floordiv(x.type.shape[axis] - size, step) + 1
    starts = call.emit(Iota((count, 1), 0, 0, step, I64))
    places = Value(call, starts) + call.made(Iota((1, size), 1, 0, 1, I64))
    found = of(Gather(axis), x, places)
    order = (*range(axis + 1), *range(axis + 2, rank + 1), axis + 1)
    return permuted(found, *order)


def crops(call: Call, images: Value, boxes: Value, picked: Value, _size: Value) -> Value:
    """Boxes (y1, x1, y2, x2), normalised to [0, 1], cropped from images and resized with aligned
    corners."""
    mode = call.option("mode", ("bilinear", "nearest"), "bilinear")
    size = call.indices(3, "size of crops", Range(1, None))
    boxes, (_, _, *extents) = cast(boxes, F32), images.type.shape
    axes = [_positions(call, boxes, a, size[a], extents[a]) for a in (0, 1)]
    inside = [_within(x, e) for x, e in zip(axes, extents, strict=True)]
    number, (rows, columns) = boxes.type.shape[0], size
    shape = (number, rows, columns, 1)
    turned = permuted(images, 0, 2, 3, 1)
    picked = reshaped(picked, number, 1, 1, 1)

    def at(y: Value, x: Value) -> Value:
        y, x = reshaped(y, number, rows, 1, 1), reshaped(x, number, 1, columns, 1)
        parts = (cast(part_, I64) for part_ in (picked, y, x))
        return of(GatherND(0), turned, of(Concat(3), *(of(Expand(shape), p) for p in parts)))

    safe = [where(ok, x, x.lift(0.0)) for ok, x in zip(inside, axes, strict=True)]
    found = _nearest(safe, at) if mode == "nearest" else _bilinear(safe, at, shape)
    both = of(
        ew.And(),
        reshaped(inside[0], number, rows, 1, 1),
        reshaped(inside[1], number, 1, columns, 1),
    )
    outside = found.lift(call.attrs.number("extrapolation_value", 0.0))
    return permuted(where(both, found, outside), 0, 3, 1, 2)


def _positions(call: Call, boxes: Value, axis: int, count: Index, extent: Index) -> Value:
    """The positions of each box's samples along an axis of an image, [boxes, count]."""
    first, last = part(boxes, 1, axis, 1), part(boxes, 1, axis + 2, 1)
    room = Value(call, call.emit(ew.Cast(F32), call.note((extent - 1,), I64)))
    if count == 1:
        return (first + last) * 0.5 * room
    steps = call.made(Iota((1, count), 1, 0, 1, I64))
    spaces = Value(call, call.emit(ew.Cast(F32), call.note((count - 1,), I64)))
    inner = first * room + cast(steps, F32) * ((last - first) * room / spaces)
    end = of(ew.Equal(), steps, Value(call, call.note((count - 1,), I64)))
    return where(end, last * room, inner)


def _within(x: Value, extent: Index) -> Value:
    room = Value(x.build, x.build.emit(Iota((1,), 0, extent - 1, 1, I64)))
    low = of(ew.GreaterOrEqual(), x, x.lift(0.0))
    return of(ew.And(), low, of(ew.LessOrEqual(), x, cast(room, F32)))


def _nearest(axes: list[Value], at: At) -> Value:
    rounded = [of(ew.Floor(), x + 0.5) for x in axes]
    return at(*rounded)


def _bilinear(axes: list[Value], at: At, shape: tuple[Index, ...]) -> Value:
    (y0, x0), (y1, x1) = ([of(op, x) for x in axes] for op in (ew.Floor(), ew.Ceil()))
    number, rows, columns, _ = shape
    dy = reshaped(axes[0] - y0, number, rows, 1, 1)
    dx = reshaped(axes[1] - x0, number, 1, columns, 1)
    corners = [cast(at(y, x), F32) for y in (y0, y1) for x in (x0, x1)]
    top = corners[0] + (corners[1] - corners[0]) * dx
    bottom = corners[2] + (corners[3] - corners[2]) * dx
    return top + (bottom - top) * dy


def padded_transposed_convolution(
    call: Call, x: Value, weights: Value, given: Value | None, bias: Value | None
) -> Value:
    """A transposed convolution with padding given by an operand, which is cropped from the
    result."""
    rank = x.type.rank - 2
    if call.attrs.text("auto_pad", "NOTSET") != "NOTSET":
        unsupported("padding that it finds itself (auto_pad)")
    pads: tuple[Index, ...] = (0,) * (2 * rank)
    if given is not None:
        pads = call.indices(2, "padding", Range(0, None))
    zeros = (0,) * rank
    op = conv.ConvTranspose(
        per_axis(call, "strides", rank),
        zeros,
        zeros,
        per_axis(call, "dilations", rank),
        call.attrs.integer("group", 1),
        call.attrs.integers("output_padding", zeros),
    )
    result = of(op, x, weights, *(() if bias is None else (bias,)))
    for axis in range(rank):
        before, after = pads[axis], pads[rank + axis]
        extent = result.type.shape[2 + axis] - before - after
        result = part(result, 2 + axis, before, extent)
    return result


CONTRIB_SIGNAL = operators(
    Rfft=("X", real_transform),
    Irfft=("X[...,n,2]", inverse_real_transform),
    UnfoldTensor=("input", windows),
    CropAndResize=("X[n,c,h,w] rois[r,4] batch_indices[r]:int crop_size[2]:int", crops),
    ConvTransposeWithDynamicPads=("X W Pads:int? B?", padded_transposed_convolution),
)
