"""Sums and other combinations of rows by segment."""

from __future__ import annotations

from typing import Literal

import numpy as np

from modelcc.frontends.kit.selection import cut
from modelcc.frontends.tflite.call import Handlers, SingleResult, TfliteCall
from modelcc.ir.index import Index, Range
from modelcc.ir.types import I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.gather_nd import ScatterND
from modelcc.ops.generate import Full
from modelcc.ops.quant import limits
from modelcc.ops.views import part

Reduction = Literal["add", "mul", "max", "min"]


def segment_sum(call: TfliteCall) -> str:
    """SEGMENT_SUM: rows of ascending segments, the last of which says how many there are."""
    known = call.known(1)
    if known is not None:
        return _combined(call, "add", int(np.asarray(known)[-1]) + 1)
    ends = part(call.value(1), 0, call.shape(1)[0] - 1, 1)
    last = of(ew.Cast(I64), ends) + 1
    (count,) = call.emitter.read_sizes(
        last.name, call.labels[1] or "segments", Range(0, None), (), call.source
    )
    return _combined(call, "add", count)


def unsorted(reduction: Reduction) -> SingleResult:
    """UNSORTED_SEGMENT_…: as many segments as the third operand says."""

    def handler(call: TfliteCall) -> str:
        return _combined(call, reduction, call.index(2, "number of segments"))

    return handler


def _combined(call: TfliteCall, reduction: Reduction, count: Index) -> str:
    """Rows combined into what changes nothing; those of negative segments go into one more row."""
    shape, dtype = call.shape()[call.rank(1) :], call.dtype()
    low, high = limits(dtype)
    neutral = {"add": 0, "mul": 1, "max": low, "min": high}[reduction]
    start = call.emit(Full((count + 1, *shape), neutral, dtype))
    segment = of(ew.Cast(I64), call.value(1))
    spare = call.as_value(call.note((count,), I64))
    row = of(ew.Where(), of(ew.Less(), segment, segment.lift(0)), spare, segment)
    places = of(Reshape((*call.shape(1), 1)), row)
    rows = call.emit(ScatterND(reduction), start, places.name, call.input(0))
    return cut(call, rows, 0, count)


SEGMENTS: Handlers = {
    "SEGMENT_SUM": segment_sum,
    "UNSORTED_SEGMENT_SUM": unsorted("add"),
    "UNSORTED_SEGMENT_PROD": unsorted("mul"),
    "UNSORTED_SEGMENT_MAX": unsorted("max"),
    "UNSORTED_SEGMENT_MIN": unsorted("min"),
}
