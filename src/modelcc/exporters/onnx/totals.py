"""Cumulative ops: a scan along the axis with the total so far as state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from modelcc.exporters.onnx.bodies import Typed, subgraph
from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.writing import Entry, OnnxWriting, Settings
from modelcc.ir.types import BOOL, I64, TensorType
from modelcc.ops.accumulate import accumulator

Combine = Callable[[OnnxWriting, OnnxValue, OnnxValue], OnnxValue]


def running(operator: str) -> Entry:
    """Cumulative totals by a binary operator."""
    return scanned(lambda at, total, x: at.node(operator, total, x))


def scanned(combine: Combine) -> Entry:
    """Cumulative totals of ``combine``, in f32 for narrow floats."""

    def entry(at: OnnxWriting, op: Any) -> OnnxValue:
        (result,) = at.results
        wide = accumulator(result.dtype)
        rest = TensorType((*at.shape[: op.axis], *at.shape[op.axis + 1 :]), wide)

        def step(given: Sequence[OnnxValue]) -> list[Typed]:
            total, x = given
            more = combine(at, total, x)
            return [(more, rest), (total if op.exclusive else more, rest)]

        first = at.full(op.start(wide), rest.shape, wide)
        settings: Settings = {
            "num_scan_inputs": 1,
            **{f"scan_{kind}_axes": [op.axis] for kind in ("input", "output")},
            **{f"scan_{kind}_directions": [int(op.reverse)] for kind in ("input", "output")},
        }
        operands = [first, at.cast(at.input(), wide)]
        body = subgraph(at.build, "total", (rest, rest), step)
        _, found = at.build.node_of("Scan", operands, [wide, wide], body=body, **settings)
        return at.cast(found, result.dtype)

    return entry


def running_sum(at: OnnxWriting, op: Any) -> OnnxValue:
    """By ONNX's CumSum."""
    wide = accumulator(at.type().dtype)
    x, axis = at.cast(at.input(), wide), at.build.number(op.axis, I64)
    total = at.node("CumSum", x, axis, exclusive=int(op.exclusive), reverse=int(op.reverse))
    return at.cast(total, at.results[0].dtype)


def log_sum(at: OnnxWriting, total: OnnxValue, x: OnnxValue) -> OnnxValue:
    """``high + log(1 + exp(low - high))``; ``high`` where that is infinite."""
    high, low = at.node("Max", total, x), at.node("Min", total, x)
    power = at.node("Exp", at.node("Sub", low, high))
    rest = at.node("Log", at.node("Add", power, at.build.number(1, x.dtype)))
    infinite = at.node("IsInf", high, dtype=BOOL)
    return at.node("Where", infinite, high, at.node("Add", high, rest), dtype=x.dtype)
