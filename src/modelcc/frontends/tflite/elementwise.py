"""Elementwise arithmetic on floats, integers and quantized numbers."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.angles import arctangent
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.activations import activated, function
from modelcc.frontends.tflite.call import Handlers, SingleResult, TfliteCall
from modelcc.frontends.tflite.requantization import centred, requantized, rescaled
from modelcc.ir.op import Op
from modelcc.ir.types import I16
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.generate import filled
from modelcc.ops.logic import BitShift, BitwiseXor


def sum_or_difference(op: Op) -> SingleResult:
    """ADD or SUB."""

    def handler(call: TfliteCall) -> str:
        if not call.is_quantized:
            return activated(call, of(op, call.value(0), call.value(1))).name
        places = 15 if call.result_dtype == I16 else 20
        if call.flag("pot_scale_int16") and call.result_dtype == I16:
            unsupported("16-bit numbers with scales that are powers of two")
        parts, twice = _in_one_scale(call, places)
        own = float(np.float32(call.result().scale) * np.float32(2**places))
        return requantized(call, of(op, *parts), twice / own).name

    return handler


def _in_one_scale(call: TfliteCall, places: int) -> tuple[list[Value], float]:
    """Both operands minus their zero points, with fraction bits, at twice the larger scale."""
    scales = [np.float32(call.single(i).scale) for i in (0, 1)]
    twice = float(2 * max(scales))
    wide = [centred(call.value(i), call.single(i).zero) * (1 << places) for i in (0, 1)]
    pairs = zip(wide, scales, strict=True)
    return [rescaled(x, float(scale) / twice) for x, scale in pairs], twice


def mul(call: TfliteCall) -> str:
    """MUL."""
    if not call.is_quantized:
        return activated(call, call.value(0) * call.value(1)).name
    a, b = (centred(call.value(i), call.single(i).zero) for i in (0, 1))
    first, second = (np.float32(call.single(i).scale) for i in (0, 1))
    real = float(first * second / np.float32(call.result().scale))
    return requantized(call, a * b, real).name


def squared_difference(call: TfliteCall) -> str:
    """SQUARED_DIFFERENCE."""
    if not call.is_quantized:
        difference = call.value(0) - call.value(1)
        return (difference * difference).name
    (a, b), twice = _in_one_scale(call, 7)
    own = (1 << 14) * float(call.result().scale)
    return requantized(call, (a - b) * (a - b), twice * twice / own).name


def add_n(call: TfliteCall) -> str:
    """ADD_N."""
    total = call.value(0)
    for i in range(1, len(call.inputs)):
        total = total + call.value(i)
    return total.name


def plain(op: Op) -> SingleResult:
    """An op on all operands, unquantized ones."""

    def handler(call: TfliteCall) -> str:
        if call.is_quantized:
            unsupported(f"it is of quantized {call.dtype()}")
        y = of(op, *(call.value(i) for i in range(len(call.inputs))))
        return activated(call, y).name

    return handler


def greater_or_lesser(op: Op) -> SingleResult:
    """MAXIMUM or MINIMUM; TFLite compares the raw quantized numbers."""

    def handler(call: TfliteCall) -> str:
        return of(op, call.value(0), call.value(1)).name

    return handler


def comparison(op: Op) -> SingleResult:
    """A comparison; quantized numbers are rescaled to 8 fraction bits."""

    def handler(call: TfliteCall) -> str:
        tensors = [t for t in call.operands if t and t.quantization]
        if len(tensors) < 2 or not call.dtype().is_integer or call.dtype().bits > 16:
            return of(op, call.value(0), call.value(1)).name
        sides = [
            rescaled(centred(call.value(i), call.single(i).zero) * 256, call.single(i).scale)
            for i in (0, 1)
        ]
        return of(op, *sides).name

    return handler


def floor_div(call: TfliteCall) -> str:
    """FLOOR_DIV: quotients rounded down."""
    a, b = call.value(0), call.value(1)
    if call.dtype().is_float:
        return of(ew.Floor(), a / b).name
    return ((a - of(ew.Mod(), a, b)) / b).name


def select(call: TfliteCall) -> str:
    """SELECT and SELECT_V2; a vector of conditions in the former selects rows."""
    condition = call.value(0)
    rank, own = call.rank(1), call.rank(0)
    if call.op.name == "SELECT" and own == 1 and rank > 1:
        condition = of(Reshape((*call.shape(0), *(1,) * (rank - 1))), condition)
    return of(ew.Where(), condition, call.value(1), call.value(2)).name


def cast(call: TfliteCall) -> str:
    """CAST."""
    return of(ew.Cast(call.result_dtype), call.value(0)).name


def bitcast(call: TfliteCall) -> str:
    """BITCAST to a type of the same width."""
    return of(ew.BitCast(call.result_dtype), call.value(0)).name


def absolute(call: TfliteCall) -> str:
    """ABS."""
    if not call.is_quantized:
        return of(ew.Abs(), call.value(0)).name
    x, y = call.single(0), call.result()
    size = of(ew.Abs(), centred(call.value(0), x.zero))
    real = float(np.float32(x.scale) / np.float32(y.scale))
    return requantized(call, size, real).name


def square(call: TfliteCall) -> str:
    """SQUARE."""
    if call.is_quantized:
        unsupported(f"it is of quantized {call.dtype()}")
    return (call.value(0) * call.value(0)).name


def atan2(call: TfliteCall) -> str:
    """ATAN2."""
    return arctangent(call.value(0), call.value(1)).name


def zeros_like(call: TfliteCall) -> str:
    """ZEROS_LIKE."""
    return filled(call, call.input(0))


ELEMENTWISE: Handlers = {
    "ADD": sum_or_difference(ew.Add()),
    "SUB": sum_or_difference(ew.Sub()),
    "MUL": mul,
    "DIV": plain(ew.Div()),
    "SQUARED_DIFFERENCE": squared_difference,
    "ADD_N": add_n,
    "POW": plain(ew.Pow()),
    "FLOOR_DIV": floor_div,
    "FLOOR_MOD": plain(ew.Mod()),
    "MAXIMUM": greater_or_lesser(ew.Max()),
    "MINIMUM": greater_or_lesser(ew.Min()),
    "EQUAL": comparison(ew.Equal()),
    "NOT_EQUAL": comparison(ew.NotEqual()),
    "LESS": comparison(ew.Less()),
    "LESS_EQUAL": comparison(ew.LessOrEqual()),
    "GREATER": comparison(ew.Greater()),
    "GREATER_EQUAL": comparison(ew.GreaterOrEqual()),
    "LOGICAL_AND": plain(ew.And()),
    "LOGICAL_OR": plain(ew.Or()),
    "LOGICAL_NOT": plain(ew.Not()),
    "BITWISE_XOR": plain(BitwiseXor()),
    "RIGHT_SHIFT": plain(BitShift(left=False)),
    "SELECT": select,
    "SELECT_V2": select,
    "CAST": cast,
    "BITCAST": bitcast,
    "ABS": absolute,
    "NEG": plain(ew.Neg()),
    "SIGN": plain(ew.Sign()),
    "SQUARE": square,
    "FLOOR": plain(ew.Floor()),
    "CEIL": plain(ew.Ceil()),
    "ROUND": plain(ew.Round()),
    "SIN": plain(ew.Sin()),
    "COS": plain(ew.Cos()),
    "ATAN2": atan2,
    "SQRT": plain(ew.Sqrt()),
    "RSQRT": plain(ew.Rsqrt()),
    "EXP": function(ew.Exp(), np.exp),
    "LOG": plain(ew.Log()),
    "ZEROS_LIKE": zeros_like,
}
