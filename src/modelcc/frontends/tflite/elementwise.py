"""Arithmetic, element by element: floats, integers and quantized numbers."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.activation import activated
from modelcc.frontends.tflite.call import Handler, Handlers, TfliteCall
from modelcc.frontends.tflite.requantization import (
    centred,
    requantized,
    rescaled,
)
from modelcc.ir.op import Op
from modelcc.ir.types import I16
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of


def sum_or_difference(op: Op) -> Handler:
    """ADD or SUB."""

    def handler(call: TfliteCall) -> str:
        if not call.is_quantized:
            return activated(call, of(op, call.value(0), call.value(1))).name
        places = 15 if call.result_dtype == I16 else 20
        if call.flag("pot_scale_int16") and call.result_dtype == I16:
            unsupported("16-bit numbers with scales that are powers of two")
        scales = [np.float32(call.single(i).scale) for i in (0, 1)]
        twice = float(2 * max(scales))
        parts = [_brought(call, i, float(scales[i]) / twice, places) for i in (0, 1)]
        own = float(np.float32(call.result().scale) * np.float32(2**places))
        return requantized(call, of(op, *parts), twice / own).name

    return handler


def _brought(call: TfliteCall, i: int, real: float, places: int) -> Value:
    """Operand ``i`` less its zero point with fraction bits, in the scale of both."""
    x = centred(call.value(i), call.single(i).zero)
    return rescaled(x * (1 << places), real)


def mul(call: TfliteCall) -> str:
    """MUL."""
    if not call.is_quantized:
        return activated(call, call.value(0) * call.value(1)).name
    a, b = (centred(call.value(i), call.single(i).zero) for i in (0, 1))
    first, second = (np.float32(call.single(i).scale) for i in (0, 1))
    real = float(first * second / np.float32(call.result().scale))
    return requantized(call, a * b, real).name


ELEMENTWISE: Handlers = {
    "ADD": sum_or_difference(ew.Add()),
    "SUB": sum_or_difference(ew.Sub()),
    "MUL": mul,
}
