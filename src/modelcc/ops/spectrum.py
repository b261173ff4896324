"""The spectrum of real numbers from that of half as many complex ones."""

from __future__ import annotations

from modelcc.ir.algorithm import AlgorithmBuilder, call, number
from modelcc.ir.index import Index
from modelcc.ir.loop import Expr, Shuffle
from modelcc.ops.butterfly import Complex, minus, plus, scaled, times, turned_back
from modelcc.ops.complex_line import Line


def half_spectrum(
    at: AlgorithmBuilder, half: Index, source: Line, target: Line, factors: Line
) -> None:
    """Frequencies 0 … ``half`` of 2 * ``half`` real numbers.

    ``source`` has the transform of every pair of neighbours taken as a complex number, and
    ``factors`` is the table for 2 * ``half`` (Sorensen and others, "Real-valued fast Fourier
    transform algorithms", 1987).
    """
    real, imaginary = source.read(at, 0)
    none = number(0.0, real.dtype)
    target.write(at, 0, (at.let(call("add", real, imaginary)), none))
    target.write(at, half, (at.let(call("sub", real, imaginary)), none))
    for place, lanes in at.vectors(half // 2):
        low = 1 + place
        high = half - low - (lanes - 1)
        own = source.read(at, low, lanes)
        other = _conjugate(at, _reversed(source.read(at, high, lanes)))
        even = scaled(at, plus(at, own, other), 0.5)
        odd = scaled(at, minus(at, own, other), 0.5)
        odd = turned_back(at, times(at, odd, factors.read(at, low, lanes)))
        target.write(at, low, plus(at, even, odd))
        target.write(at, high, _reversed(_conjugate(at, minus(at, even, odd))))


def _conjugate(at: AlgorithmBuilder, value: Complex) -> Complex:
    return value[0], at.let(call("neg", value[1]))


def _reversed(value: Complex) -> Complex:
    return _backwards(value[0]), _backwards(value[1])


def _backwards(value: Expr) -> Expr:
    if value.lanes == 1:
        return value
    return Shuffle(value, value, tuple(reversed(range(value.lanes))))
