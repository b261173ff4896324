"""Image resampling, and pooling of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

import numpy as np

from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.writing import OnnxWriting, Settings
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.index import Index
from modelcc.ir.types import F32
from modelcc.ops.coordinates import Scale
from modelcc.ops.grid_sample import GridSample
from modelcc.ops.resize import Resize
from modelcc.ops.roi_align import RoiAlign
from modelcc.ops.roi_pool import MaxRoiPool


def resized(at: OnnxWriting, op: Resize) -> OnnxValue:
    """By sizes if scales are their ratios, else by scales."""
    region, scales, sizes = None, None, None
    if op.region:
        ends = [number for side in zip(*op.region, strict=True) for number in side]
        region = at.constant(np.array([_number(e) for e in ends]), at.input().dtype)
    if all(map(_is_ratio, op.scales, op.shape, at.shape)):
        sizes = at.vector(op.shape)
    else:
        scales = at.constant(np.array(_factors(op, at.shape)), F32)
    return at.node(
        "Resize", at.input(), region, scales, sizes,
        mode=op.mode,
        coordinate_transformation_mode=op.coordinates,
        nearest_mode=op.nearest if op.mode == "nearest" else None,
        cubic_coeff_a=op.cubic_a if op.mode == "cubic" else None,
        exclude_outside=int(op.exclude_outside),
        extrapolation_value=op.extrapolation,
        antialias=int(op.antialias),
    )  # fmt: skip


def _is_ratio(scale: Scale | None, size: Index, extent: Index) -> bool:
    """Whether ``scale`` is what a runtime computes from size and extent."""
    if scale is None or (scale == 1 and size == extent):
        return True
    if isinstance(scale, tuple):
        top, bottom = scale
        return top * extent == size * bottom
    ratio = _ratio(size, extent)
    return ratio is not None and np.float32(scale) == np.float32(ratio)


def _ratio(size: Index, extent: Index) -> float | None:
    """A quotient of numbers."""
    if isinstance(size, int) and isinstance(extent, int) and extent > 0:
        return size / extent
    return None


def _number(value: Scale) -> float:
    found = _ratio(*value) if isinstance(value, tuple) else value
    return unsupported(f"its scale {value} is known at run time only") if found is None else found


def _factors(op: Resize, extents: Sequence[Index]) -> list[float]:
    """Scales that yield the sizes."""
    found: list[float] = []
    for scale, size, extent in zip(op.scales, op.shape, extents, strict=True):
        factor = _ratio(size, extent) if scale is None else _number(scale)
        if factor is None or _misses(factor, size, extent):
            unsupported(f"no scale of ONNX makes {size} of {extent} by the ratio {scale}")
        found.append(factor)
    return found


def _misses(factor: float, size: Index, extent: Index) -> bool:
    """Whether the factor, an f32, provably yields another size."""
    if not isinstance(size, int) or not isinstance(extent, int):
        return False
    return floor(float(np.float32(factor)) * extent) != size


def sampled(at: OnnxWriting, op: GridSample) -> OnnxValue:
    settings: Settings = {"mode": op.mode, "padding_mode": op.padding}
    return at.node("GridSample", *at.inputs, align_corners=int(op.align_corners), **settings)


def _image(at: OnnxWriting) -> OnnxValue:
    """The images with channels first."""
    return at.input(2) if at.has(2) else at.transpose(at.input(3), (0, 3, 1, 2))


def box_align(at: OnnxWriting, op: RoiAlign) -> OnnxValue:
    return at.node(
        "RoiAlign", _image(at), at.input(0), at.indices(1),
        mode="max" if op.largest else "avg",
        output_height=op.height,
        output_width=op.width,
        sampling_ratio=op.points,
        spatial_scale=op.scale,
        coordinate_transformation_mode="half_pixel" if op.half_pixel else "output_half_pixel",
    )  # fmt: skip


def box_pool(at: OnnxWriting, op: MaxRoiPool) -> OnnxValue:
    """Boxes are preceded by their image numbers."""
    column = at.node("Unsqueeze", at.input(1), at.build.ints(1))
    boxes = at.node("Concat", at.cast(column, at.input().dtype), at.input(), axis=1)
    settings: Settings = {"pooled_shape": [op.height, op.width], "spatial_scale": op.scale}
    return at.node("MaxRoiPool", _image(at), boxes, **settings)
