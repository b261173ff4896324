"""Fourier transforms of any length by a convolution (Bluestein).

Bluestein, "A linear filtering approach to the computation of discrete Fourier transform", 1970:
with the chirp ``c[k] = exp(-i pi k^2 / n)`` the transform is ``c`` times the convolution of
``x * c`` with conjugates of ``c``.  The convolution takes two transforms of a longer, convenient
length, and the transform of the conjugates, the filter.
"""

from __future__ import annotations

from modelcc.ir.algorithm import AlgorithmBuilder, number
from modelcc.ir.index import Index
from modelcc.ops.butterfly import Complex, times
from modelcc.ops.complex_line import Line, swapped


def chirped(
    at: AlgorithmBuilder, length: Index, fast: Index, source: Line, chirp: Line, target: Line
) -> None:
    """``length`` numbers times the chirp, and zeros up to ``fast``."""
    for place, lanes in at.vectors(length):
        value = times(at, source.read(at, place, lanes), chirp.read(at, place, lanes))
        target.write(at, place, value)
    clear(at, length, fast, target)


def clear(at: AlgorithmBuilder, start: Index, stop: Index, target: Line) -> None:
    """Zeros from ``start`` on, before ``stop``."""
    for place, lanes in at.vectors(stop - start):
        target.write(at, start + place, _zero(target, lanes))


def _zero(like: Line, lanes: int) -> Complex:
    zero = number(0.0, like.dtype, lanes)
    return zero, zero


def filtered(at: AlgorithmBuilder, fast: Index, source: Line, filter: Line, target: Line) -> None:
    """The product with the filter, with its parts exchanged: the next transform is an inverse."""
    for place, lanes in at.vectors(fast):
        value = times(at, source.read(at, place, lanes), filter.read(at, place, lanes))
        target.write(at, place, swapped(value))


def unchirped(at: AlgorithmBuilder, count: Index, source: Line, chirp: Line, target: Line) -> None:
    """The first ``count`` numbers, exchanged back, times the chirp."""
    for place, lanes in at.vectors(count):
        value = times(at, swapped(source.read(at, place, lanes)), chirp.read(at, place, lanes))
        target.write(at, place, value)
