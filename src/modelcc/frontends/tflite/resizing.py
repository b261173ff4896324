"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of images [N, H, W, C]."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.ir.types import F32, I32, I64, U8, Array
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.coordinates import Transformation
from modelcc.ops.gather import Gather
from modelcc.ops.resize import Resize


def resize_bilinear(call: TfliteCall) -> str:
    """RESIZE_BILINEAR; i8 is interpolated in integers, other types in floats."""
    if call.dtype() == U8:
        return of(ew.Cast(U8), _interpolated(call, of(ew.Cast(F32), call.value(0))) + 0.5).name
    if call.dtype().is_integer:
        return _in_integers(call)
    return _interpolated(call, call.value(0)).name


def _interpolated(call: TfliteCall, x: Value) -> Value:
    n, _, _, c = call.shape()
    shape = (n, *call.indices(1, "size"), c)
    return of(Resize(shape, (None,) * 4, "linear", _coordinates(call)), x)


def _coordinates(call: TfliteCall) -> Transformation:
    if call.flag("align_corners"):
        return "align_corners"
    return "half_pixel" if call.flag("half_pixel_centers") else "asymmetric"


def resize_nearest_neighbor(call: TfliteCall) -> str:
    """RESIZE_NEAREST_NEIGHBOR: rows, then columns, by TFLite's source indices, computed in f32."""
    sizes = call.integers(1, "size")
    x = call.value(0)
    for axis, size in zip((1, 2), sizes, strict=True):
        places = _nearest(call, number_of(call.shape()[axis], "extent"), size)
        if (places != np.arange(len(places))).any() or len(places) != x.type.shape[axis]:
            x = of(Gather(axis), x, call.literal(places, I64))
    return x.name


def _nearest(call: TfliteCall, extent: int, size: int) -> Array:
    corners, half = call.flag("align_corners"), call.flag("half_pixel_centers")
    scale = _scale(extent, size, corners)
    at = (np.arange(size, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
    places = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
    return np.clip(places.astype(np.int64), 0, extent - 1)


def _scale(extent: int, size: int, corners: bool) -> np.float32:
    if corners and size > 1:
        return np.float32(extent - 1) / np.float32(size - 1)
    return np.float32(extent) / np.float32(size)


def _in_integers(call: TfliteCall) -> str:
    """10-bit weights along both axes, sums rounded half away from zero."""
    x = of(ew.Cast(I32), call.value(0))
    for axis, size in zip((1, 2), call.integers(1, "size"), strict=True):
        extent = number_of(call.shape()[axis], "extent")
        low, high, weight = _weights(call, extent, size)
        column = [-1 if n == axis else 1 for n in range(4)]
        upper = call.literal(weight.reshape(column), I32)
        lower = call.literal((1024 - weight).reshape(column), I32)
        first, second = (of(Gather(axis), x, call.literal(p, I64)) for p in (low, high))
        x = first * lower + second * upper
    half = of(ew.Where(), of(ew.Greater(), x, x.lift(0)), x.lift(1 << 19), x.lift(-(1 << 19)))
    return of(ew.Cast(call.result_dtype), (x + half) / (1 << 20)).name


def _weights(call: TfliteCall, extent: int, size: int) -> tuple[Array, Array, Array]:
    """Both neighbours of each position, and the weight of the second one, of 1024."""
    if call.dtype().bits > 8:
        unsupported(f"an image of {call.dtype()}")
    corners, half = call.flag("align_corners"), call.flag("half_pixel_centers")
    top, bottom = (extent - 1, size - 1) if corners and size > 1 else (extent, size)
    scale = (1024 * top + bottom // 2) // bottom
    at = np.arange(size, dtype=np.int64) * scale
    at = at + scale // 2 - 512 if half else at
    low = np.maximum(np.sign(at) * (np.abs(at) // 1024), 0)
    above = at + 1023
    high = np.minimum(np.sign(above) * (np.abs(above) // 1024), extent - 1)
    return low, high, at - 1024 * low


RESIZING: Handlers = {
    "RESIZE_BILINEAR": resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": resize_nearest_neighbor,
}
