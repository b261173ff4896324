"""Quantized numbers: the real value is the scale times (integer - zero point)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from modelcc.frontends.stablehlo.call import HloCall
from modelcc.frontends.stablehlo.quantized_text import BITS, QUANTIZED, STANDS_FOR
from modelcc.ir.types import Array
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of

_TYPE = re.compile(r"([iu])(\d+)(?:<(-?\d+):(-?\d+)>)?:\w+(?::(\d+))?,\s*\{?([^}]*)\}?", re.DOTALL)


@dataclass(frozen=True)
class Quantization:
    """Scales and zero points, per tensor or along ``axis``, and the range of the integers."""

    low: int
    high: int
    axis: int | None
    scales: tuple[float, ...]
    zeros: tuple[int, ...]


def quantization(text: str) -> Quantization:
    """Parses a quantized type such as ``i8<-127:127>:f32:1, {0.1:-30, 0.5}``."""
    found = _TYPE.fullmatch(text)
    assert found is not None, text
    kind, bits, low, high, axis, pairs = found.groups()
    half = 1 << (int(bits) - 1)
    least, most = (-half, half - 1) if kind == "i" else (0, 2 * half - 1)
    scales, zeros = zip(
        *(pair.strip().partition(":")[::2] for pair in pairs.split(",")), strict=True
    )
    return Quantization(
        least if low is None else int(low),
        most if high is None else int(high),
        None if axis is None else int(axis),
        tuple(map(float, scales)),
        tuple(int(zero or 0) for zero in zeros),
    )


def _parameters(call: HloCall) -> tuple[Quantization, Value, Value]:
    """The quantization, and its scales and zero points as broadcastable real numbers."""
    own, rank = quantization(str(call.attribute("quantization"))), call.rank()
    dtype = call.dtype() if call.dtype().is_float else call.result_dtype
    shape = [-1 if axis == own.axis else 1 for axis in range(rank)] if own.axis is not None else []

    def real(numbers: tuple[float, ...]) -> Value:
        array: Array = np.array(numbers).reshape(shape)
        return call.literal(array, dtype)

    return own, real(own.scales), real(own.zeros)


def _stored(call: HloCall) -> tuple[Value, Value, Value]:
    """The integers as real numbers, scales and zero points ("quantization computations" of the
    specification); NaN becomes 0, as in conversions to integers."""
    own, scale, zero = _parameters(call)
    place = call.value(0) / scale + zero
    inside = of(ew.Min(), of(ew.Max(), place, place.lift(own.low)), place.lift(own.high))
    none = of(ew.IsNaN(), place)
    return of(ew.Where(), none, place.lift(0.0), of(ew.Round(), inside)), scale, zero


def quantized(call: HloCall) -> str:
    """The nearest numbers that a quantized type represents."""
    stored, scale, zero = _stored(call)
    return ((stored - zero) * scale).name


def bits(call: HloCall) -> str:
    """The storage integers of quantized numbers."""
    return call.emit(ew.Cast(call.result_dtype), _stored(call)[0].name)


def stands_for(call: HloCall) -> str:
    """The real numbers that integers represent."""
    _, scale, zero = _parameters(call)
    whole = call.as_value(call.emit(ew.Cast(scale.type.dtype), call.input(0)))
    return ((whole - zero) * scale).name


CALLS = {QUANTIZED: quantized, BITS: bits, STANDS_FOR: stands_for}
"""Handlers by the targets of custom calls."""
