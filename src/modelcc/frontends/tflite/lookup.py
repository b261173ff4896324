"""Lookup tables for functions of one quantized number, computed as in TFLite."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.call import TfliteCall
from modelcc.frontends.tflite.module import TfliteQuantization
from modelcc.ir.types import I8, I16, I32, U8, Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.gather import Gather
from modelcc.ops.logic import BitShift, BitwiseAnd
from modelcc.ops.quant import limits

Function = Callable[[Array], Array]

STEPS = 512
"""Segments of a piecewise linear function of 16-bit numbers."""


def looked_up(call: TfliteCall, function: Function) -> str:
    """``function`` of the reals that operand 0 represents, as quantized results."""
    if call.dtype() == I16:
        return interpolated(call.value(0), _sampled(call.single(0), call.result(), function)).name
    if call.dtype() not in (I8, U8):
        unsupported(f"it is of {call.dtype()}")
    x = call.single(0)
    places = np.float32(x.scale) * (_numbers(call.dtype()) - x.zero).astype(np.float32)
    reals = function(places.astype(np.float64)).astype(np.float32)
    return from_table(call, _quantized(reals, call.result(), call.result_dtype))


def from_table(call: TfliteCall, table: Array) -> str:
    """For each 8-bit number its entry of ``table``, which is in ascending order of the numbers."""
    wide = of(ew.Cast(I32), call.value(0))
    place = wide + 128 if call.dtype() == I8 else wide
    return call.emit(Gather(0), call.constant(table, call.result_dtype), place.name)


def _numbers(dtype: DType) -> Array:
    low, high = limits(dtype)
    return np.arange(int(low), int(high) + 1)


def _quantized(reals: Array, own: TfliteQuantization, dtype: DType) -> Array:
    """f32 reals quantized, rounded half away from zero."""
    steps = (reals * (np.float32(1) / np.float32(own.scale))).astype(np.float64)
    return np.clip(rounded(steps) + own.zero, *limits(dtype))


def rounded(x: Array) -> Array:
    """The nearest integers, halves away from zero."""
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def _sampled(x: TfliteQuantization, y: TfliteQuantization, function: Function) -> Array:
    return sampled_table(x.scale, x.zero, y.scale, y.zero, function, np.float32)


def sampled_table(
    scale: float, zero: int, own: float, own_zero: int, function: Function, kind: type[np.floating]
) -> Array:
    """513 samples of ``function`` at segment ends, each shifted by half of the interpolation error
    at the midpoint of the next segment; arithmetic in ``kind``."""
    least, most = (kind(scale) * kind(end - zero) for end in (-32768, 32767))
    low, high = (kind(own) * kind(end - own_zero) for end in (-32768, 32767))
    step = kind((most - least) / kind(STEPS))
    per_real = kind(65536) / (high - low)
    places = least + np.arange(STEPS + 1).astype(kind) * step

    def values(at: Array) -> Array:
        return function(at.astype(np.float64)).astype(kind) * per_real

    ends, middles = values(places), values(places[:-1] + step / kind(2))
    first = rounded(ends[:-1])
    error = rounded((ends[1:] + first) / kind(2)) - rounded(middles)
    last = rounded(values(np.array([most], kind)))
    return np.clip(np.concatenate([first - rounded(error / kind(2)), last]), -32768, 32767)


def interpolated(x: Value, table: Array) -> Value:
    """i16 ``x`` interpolated in a table of 513 values; the upper nine bits select the segment."""
    wide, down = of(ew.Cast(I32), x), BitShift(left=False)
    data = Value(x.build, x.build.constant(table, I32))
    piece = of(down, wide, wide.lift(7)) + 256
    first, second = of(Gather(0), data, piece), of(Gather(0), data, piece + 1)
    rest = of(BitwiseAnd(), wide, wide.lift(127))
    delta = of(down, (second - first) * rest + 64, wide.lift(7))
    return of(ew.Cast(I16), first + delta)
