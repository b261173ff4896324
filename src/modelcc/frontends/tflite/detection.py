"""Detection: non-maximum suppression, and SSD postprocessing."""

from __future__ import annotations

import struct
from importlib import import_module
from typing import Any, cast

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.ir.types import F32, I32, I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.gather import Gather
from modelcc.ops.generate import Iota
from modelcc.ops.reduce import ArgMax, ReduceMax
from modelcc.ops.shape import Concat
from modelcc.ops.suppression import NonMaxSuppression
from modelcc.ops.views import part, reshaped


def suppression(call: TfliteCall) -> tuple[str, ...]:
    """NON_MAX_SUPPRESSION_V4 and V5: boxes by descending score, zero-padded, and their number.

    V5 returns the scores, too, which do not decay as its sigma must be 0.
    """
    soft = call.op.name == "NON_MAX_SUPPRESSION_V5"
    if soft and np.asarray(call.array(5, "deviation")).item() != 0:
        unsupported("scores that fall with overlap (a deviation that is not 0)")
    most = number_of(call.index(2, "number of results"), "number of results")
    n = call.shape()[0]
    boxes, scores = reshaped(call.value(0), 1, n, 4), reshaped(call.value(1), 1, 1, n)
    least = reshaped(call.value(4), 1)
    chosen, count = _best(call, boxes, scores, reshaped(call.value(3), 1), least, most)
    rows = of(ew.Cast(I32), chosen)
    number = of(ew.Cast(I32), of(Reshape(()), count))
    if not soft:
        return rows.name, number.name
    inside = of(ew.Less(), call.as_value(call.emit(Iota((most,), 0, dtype=I64))), count)
    values = of(Gather(0), call.value(1), chosen)
    return rows.name, of(ew.Where(), inside, values, values.lift(0)).name, number.name


def _best(
    call: TfliteCall, boxes: Value, scores: Value, overlap: Value, least: Value, most: int
) -> tuple[Value, Value]:
    """Indices of the selected boxes, i64[most], zero-padded, and their number, i64[1]."""
    limit = call.literal(np.array([most]), I64)
    op = NonMaxSuppression(most)
    operands = (boxes, scores, limit, overlap, least)
    rows, count = call.add(op, *(operand.name for operand in operands))
    return reshaped(part(call.as_value(rows), 1, 2, 1), most), call.as_value(count)


def detection_postprocess(call: TfliteCall) -> tuple[str, ...]:
    """TFLite_Detection_PostProcess, by the best class of each anchor.

    Operands: encodings [1, n, 4], scores [1, n, classes], anchors [n, 4] as centre and size.
    Results: corners [1, k, 4], classes [1, k], scores [1, k] and their number [1], in f32;
    zero-padded.
    """
    options = _flexible(call)
    if options.get("use_regular_nms"):
        unsupported("suppression for each class by itself (use_regular_nms)")
    if options.get("max_classes_per_detection", 1) != 1:
        unsupported("several classes for a box")
    most, n = int(options["max_detections"]), call.shape()[1]
    classes = int(options["num_classes"])
    corners = _decoded(call, options)
    given = number_of(call.shape(1)[2], "number of classes")
    scores = reshaped(part(call.value(1), 2, given - classes, classes), n, classes)
    best = of(ReduceMax((1,), keepdims=False), scores)
    chosen, count = _best(
        call, reshaped(corners, 1, n, 4), reshaped(best, 1, 1, n),
        _threshold(call, options, "nms_iou_threshold"),
        _threshold(call, options, "nms_score_threshold"), most,
    )  # fmt: skip
    inside = of(ew.Less(), call.as_value(call.emit(Iota((most,), 0, dtype=I64))), count)
    kinds = of(ew.Cast(F32), of(ArgMax(1, False), scores))
    results: list[str] = []
    for rows, width in ((corners, 4), (kinds, 1), (best, 1)):
        picked = reshaped(of(Gather(0), rows, chosen), most, width)
        kept = of(ew.Where(), reshaped(inside, most, 1), picked, picked.lift(0))
        results.append(reshaped(kept, 1, most, *((width,) if width > 1 else ())).name)
    return *results, of(ew.Cast(F32), count).name


def _threshold(call: TfliteCall, options: dict[str, Any], name: str) -> Value:
    value = options.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        call.fail(f"its option {name} is {value!r}, not a number")
    return call.literal(np.array([value]), F32)


def _decoded(call: TfliteCall, options: dict[str, Any]) -> Value:
    """Corners [n, 4] from encodings relative to anchors."""
    n = call.shape()[1]
    code, anchors = reshaped(call.value(0), n, call.shape()[2]), call.value(2)
    y, x, h, w = (part(code, 1, i, 1) for i in range(4))
    centre_y, centre_x, height, width = (part(anchors, 1, i, 1) for i in range(4))
    scale = {axis: float(options[f"{axis}_scale"]) for axis in "yxhw"}
    ends: list[list[Value]] = [[], []]
    for place, size, own, middle, axes in (
        (y, h, height, centre_y, "yh"), (x, w, width, centre_x, "xw"),
    ):  # fmt: skip
        centre = place / scale[axes[0]] * own + middle
        half = of(ew.Exp(), size / scale[axes[1]]) * own * 0.5
        ends[0].append(centre - half)
        ends[1].append(centre + half)
    return of(Concat(1), *ends[0], *ends[1])


def _flexible(call: TfliteCall) -> dict[str, Any]:
    """The options of a custom operator, a FlexBuffers map."""
    flexible: Any = import_module("flatbuffers.flexbuffers")
    try:
        found: object = flexible.Loads(bytes(call.op.custom or b""))
    except _MALFORMED as error:
        call.fail(f"its options cannot be read: {error}")
    if not isinstance(found, dict):
        call.fail("its options are no map")
    options = cast("dict[str, Any]", found)
    for name in _NEEDED:
        value = options.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            call.fail(f"its option {name} is {value!r}, not a number above 0")
    return options


_MALFORMED = (
    ArithmeticError, AssertionError, LookupError, TypeError, ValueError, struct.error,
)  # fmt: skip
"""Exceptions of the FlexBuffers package on invalid bytes."""

_NEEDED = (
    "max_detections", "num_classes",
    "y_scale", "x_scale", "h_scale", "w_scale",
)  # fmt: skip

DETECTION: Handlers = {
    "NON_MAX_SUPPRESSION_V4": suppression,
    "NON_MAX_SUPPRESSION_V5": suppression,
    "TFLite_Detection_PostProcess": detection_postprocess,
}
