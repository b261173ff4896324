"""Normalisations: by lengths, by neighbouring channels, and the logarithm of softmax."""

from __future__ import annotations

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import of
from modelcc.ops.attention import LogSoftmax
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.padding import Pad
from modelcc.ops.views import part


def l2_normalization(call: TfliteCall) -> str:
    """L2_NORMALIZATION along the last axis."""
    call.require_float()
    x = call.value(0)
    squares = of(ReduceSum((call.rank() - 1,), True), x * x)
    size = of(ew.Max(), of(ew.Sqrt(), squares), squares.lift(1e-6))
    return (x / size).name


def log_softmax(call: TfliteCall) -> str:
    """LOG_SOFTMAX along the last axis."""
    call.require_float()
    return call.emit(LogSoftmax(call.rank() - 1), call.input(0))


def local_response_normalization(call: TfliteCall) -> str:
    """LOCAL_RESPONSE_NORMALIZATION by the squares of ``radius`` channels before each, itself and
    ``radius - 1`` behind, as TFLite's kernel has it."""
    call.require_float()
    x, radius, last = call.value(0), call.integer("radius"), call.rank() - 1
    if radius < 1:
        call.fail(f"it has the radius {radius}")
    channels = number_of(call.shape()[last], "number of channels")
    radius = min(radius, channels)
    before, after = ((0,) * last + (pad,) for pad in (radius, radius - 1))
    squares = of(Pad(before, after), x * x)
    near = [part(squares, last, start, channels) for start in range(2 * radius)]
    total = sum(near[1:], near[0]) * call.number("alpha") + call.number("bias")
    return (x * of(ew.Pow(), total, total.lift(-call.number("beta")))).name


NORMALIZATION: Handlers = {
    "L2_NORMALIZATION": l2_normalization,
    "LOG_SOFTMAX": log_softmax,
    "LOCAL_RESPONSE_NORMALIZATION": local_response_normalization,
}
