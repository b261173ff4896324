"""Handlers of operators that sample images between pixels."""

from __future__ import annotations

from typing import get_args

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.standard.conversion import computed_in, floats
from modelcc.frontends.onnx.standard.nn import weight_kernel
from modelcc.frontends.onnx.standard.window import geometry
from modelcc.ir.index import Index, Range
from modelcc.ir.types import I64, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.boxes import BoxPool, ImageNumbers, worth_turning
from modelcc.ops.deform_conv import DeformConv
from modelcc.ops.generate import Iota
from modelcc.ops.grid_sample import GridSample, Mode, Padding
from modelcc.ops.roi_align import RoiAlign
from modelcc.ops.roi_pool import MaxRoiPool
from modelcc.ops.views import cast, part, permuted, reshaped

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
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    mode = attrs.text("mode", "avg")
    if mode not in ("avg", "max"):
        call.fail(f"unknown mode {mode!r}")
    op = RoiAlign(
        attrs.integer("output_height", 1),
        attrs.integer("output_width", 1),
        attrs.integer("sampling_ratio", 0),
        attrs.number("spatial_scale", 1.0),
        mode == "max",
        attrs.text("coordinate_transformation_mode", default) == "half_pixel",
    )
    numbers = call.value(2)
    return call.emit(op, call.input(1), _checked(call, numbers), *_images(call, op))


def max_roi_pool(call: Call) -> str:
    height, width = call.attrs.integers("pooled_shape")
    boxes = call.value(1)
    if boxes.type.rank != 2:
        call.fail(f"boxes [k, 5] are wanted, not {boxes.type}")
    # The slices below would accept more columns.
    call.emitter.require([(boxes.type.shape[1], "==", 5)], call.source, True)
    numbers = cast(reshaped(part(boxes, 1, 0, 1), boxes.type.shape[0]), I64)
    op = MaxRoiPool(height, width, call.attrs.number("spatial_scale", 1.0))
    corners = part(boxes, 1, 1, 4).name
    return call.emit(op, corners, _checked(call, numbers), *_images(call, op))


def _images(call: Call, op: BoxPool) -> tuple[str, str]:
    """The images, with channels last: one of them, or both if run-time sizes decide."""
    if call.type().rank != 4:
        call.fail(f"images [n, c, h, w] are wanted, not {call.type()}")
    x, boxes = call.value(0), call.type(1).shape[0]
    turned = worth_turning(x.type, boxes, op.height * op.width)
    if isinstance(turned, int):
        return ("", permuted(x, 0, 2, 3, 1).name) if turned else (x.name, "")
    # Rows, not images: pixels stay one axis of the copy, which is then blocked.
    rows = part(x, 2, 0, x.type.shape[2] * turned)
    return x.name, permuted(rows, 0, 2, 3, 1).name


def _checked(call: Call, numbers: Value) -> str:
    return call.emit(ImageNumbers(), numbers.name, call.input(0))


def deform_conv(call: Call) -> str:
    window = geometry(call, weight_kernel(call))
    if len(window.kernel) != 2:
        unsupported(f"a kernel of {len(window.kernel)} axes; 2 are supported")
    groups = call.attrs.integer("group", 1), call.attrs.integer("offset_group", 1)
    op = DeformConv(window.strides, window.before, window.dilations, *groups)
    return call.emit(op, *call.inputs)


def affine_grid(call: Call) -> str:
    """Positions from -1 to 1 along each axis of ``size``, mapped by ``theta`` [n, r, r + 1]."""
    batch, *extents = call.indices(1, "size", Range(1, None))
    rank, dtype = len(extents) - 1, call.dtype()
    if rank not in (2, 3) or call.shape()[1:] != (rank, rank + 1):
        call.fail(f"theta {call.type()} does not map positions of {rank} axes")
    call.emitter.require([(batch, "==", call.shape()[0])], call.source, True)
    aligned = call.attrs.flag("align_corners")
    theta = call.value(0)
    total = _column(theta, rank, rank)
    for axis, extent in enumerate(extents[1:]):
        line = _positions(call, extent, aligned, dtype)
        along = (1, *(extent if a == axis else 1 for a in range(rank)), 1)
        total = total + reshaped(line, *along) * _column(theta, rank, rank - 1 - axis)
    return total.name


def _column(theta: Value, rank: int, j: int) -> Value:
    """Column ``j`` of theta, [n, 1, …, 1, rank]."""
    return reshaped(part(theta, 2, j, 1), theta.type.shape[0], *(1,) * rank, rank)


def _positions(call: Call, extent: Index, aligned: bool, dtype: DType) -> Value:
    """``(2i - (extent - 1)) / extent``; the outermost are -1 and 1 if ``aligned``."""
    line = of(ew.Cast(dtype), call.made(Iota((extent,), 0, 1 - extent, 2)))
    whole = Value(call, call.note((extent - 1 if aligned else extent,), I64))
    return line / of(ew.Cast(dtype), whole)


SAMPLING = table(
    GridSample=computed_in(floats, grid_sample),
    RoiAlign=roi_align,
    MaxRoiPool=max_roi_pool,
    DeformConv=deform_conv,
    AffineGrid=affine_grid,
)
