"""Handlers of operators that read images between pixels."""

from __future__ import annotations

from types import MappingProxyType
from typing import get_args

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.nn import weight_kernel
from modelcc.frontends.onnx.window import geometry
from modelcc.ops.deform_conv import DeformConv
from modelcc.ops.grid_sample import GridSample, Mode, Padding
from modelcc.ops.roi_align import RoiAlign
from modelcc.ops.roi_pool import MaxRoiPool

MODES: tuple[Mode, ...] = get_args(Mode)
PADDINGS: tuple[Padding, ...] = get_args(Padding)
_OLD_NAMES = {"bilinear": "linear", "bicubic": "cubic"}


def grid_sample(call: Call) -> str:
    given = call.attrs.text("mode", "linear")
    mode: Mode = call.choice(_OLD_NAMES.get(given, given), MODES, "mode")
    name = call.attrs.text("padding_mode", "zeros")
    padding: Padding = call.choice(name, PADDINGS, "padding_mode")
    return call.emit(GridSample(mode, padding, call.attrs.flag("align_corners")), *call.inputs)


def roi_align(call: Call) -> str:
    attrs = call.attrs
    count = attrs.integer("sampling_ratio", 0)
    if count < 1:
        unsupported("sampling_ratio 0: as many points as each region's size asks for")
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    mode = attrs.text("mode", "avg")
    if mode not in ("avg", "max"):
        call.fail(f"unknown mode {mode!r}")
    op = RoiAlign(
        attrs.integer("output_height", 1),
        attrs.integer("output_width", 1),
        count,
        attrs.number("spatial_scale", 1.0),
        mode == "max",
        attrs.text("coordinate_transformation_mode", default) == "half_pixel",
    )
    return call.emit(op, *call.inputs)


def max_roi_pool(call: Call) -> str:
    height, width = call.attrs.integers("pooled_shape")
    op = MaxRoiPool(height, width, call.attrs.number("spatial_scale", 1.0))
    return call.emit(op, *call.inputs)


def deform_conv(call: Call) -> str:
    window = geometry(call, weight_kernel(call))
    if len(window.kernel) != 2:
        unsupported(f"a kernel of {len(window.kernel)} axes; 2 are supported")
    groups = call.attrs.integer("group", 1)
    op = DeformConv(
        window.strides,
        window.before,
        window.dilations,
        groups,
        call.attrs.integer("offset_group", 1),
    )
    return call.emit(op, *call.inputs)


SAMPLING: Handlers = MappingProxyType(
    {
        "GridSample": grid_sample,
        "RoiAlign": roi_align,
        "MaxRoiPool": max_roi_pool,
        "DeformConv": deform_conv,
    }
)
