"""Hybrid products of floats by 8-bit weights: rows are quantized dynamically, by their range."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.frontends.tflite.requantization import half_away
from modelcc.ir.types import F32, F64, I8, I32
from modelcc.ops import elementwise as ew
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.ops.reduce import ReduceMax, ReduceMin


@dataclass(frozen=True)
class QuantizedRows:
    """``x ~ factor * (numbers - offset)``, the numbers integral f32; an absent offset is 0.

    ``factor`` and ``offset`` have extents of 1 along the axes of a row.
    """

    numbers: Value
    factor: Value
    offset: Value | None

    @property
    def centred(self) -> Value:
        """The numbers minus their offset."""
        return self.numbers if self.offset is None else self.numbers - self.offset

    @property
    def bytes(self) -> Value:
        """The numbers in i8."""
        return of(ew.Cast(I8), self.numbers)


def product_by_bytes(x: Value, matrix: Value, scales: Value, asymmetric: bool) -> Value:
    """f32 ``x[…, K]`` by i8 ``matrix[K, N]`` times ``scales``, one or N; rows of x are
    quantized."""
    axes = (x.type.rank - 1,)
    rows = asymmetric_rows(x, axes) if asymmetric else symmetric_rows(x, axes)
    sums = of(ew.Cast(F32), of(MatMulInteger(), rows.bytes, matrix))
    if rows.offset is not None:
        columns = of(ReduceSum((0,)), of(ew.Cast(I32), matrix))
        sums = sums - of(ew.Cast(F32), columns) * rows.offset
    return sums * (rows.factor * scales)


def symmetric_rows(x: Value, axes: tuple[int, ...]) -> QuantizedRows:
    """-127 to 127 for the maximum magnitude along ``axes``; zero rows are 0."""
    size = of(ReduceMax(axes), of(ew.Abs(), x))
    none = of(ew.Equal(), size, size.lift(0.0))
    safe = of(ew.Where(), none, size.lift(1.0), size)
    steps = of(Clip(-127.0, 127.0), half_away(x * (safe.lift(127.0) / safe)))
    return QuantizedRows(steps, of(ew.Where(), none, size.lift(1.0), size / 127.0), None)


def asymmetric_rows(x: Value, axes: tuple[int, ...]) -> QuantizedRows:
    """-128 to 127 for the range along ``axes`` including 0, with an integral zero point."""
    zero = x.lift(0.0)
    low, high = (
        of(ew.Cast(F64), of(bound, of(found(axes), x), zero))
        for bound, found in ((ew.Min(), ReduceMin), (ew.Max(), ReduceMax))
    )
    none = of(ew.Equal(), low, high)
    scale = of(ew.Where(), none, low.lift(1.0), (high - low) / 255.0)
    below, above = low / scale, high / scale
    # The zero point is derived from the end of the range with the smaller error.
    nearer = of(ew.Less(), -below + 128.0, above + 127.0)
    place = of(ew.Where(), nearer, -below + -128.0, -above + 127.0)
    offset = of(ew.Cast(F32), half_away(of(Clip(-128.0, 127.0), place)))
    factor = of(ew.Cast(F32), scale)
    steps = half_away(x * (factor.lift(1.0) / factor) + offset)
    numbers = of(Clip(-128.0, 127.0), steps)
    return QuantizedRows(numbers, factor, offset)
