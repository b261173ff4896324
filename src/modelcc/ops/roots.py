"""Roots of one, ``exp(-2 pi i t / n)``, inside loop functions."""

from __future__ import annotations

from math import pi

from modelcc.ir.algorithm import AlgorithmBuilder, add, call, convert, index_number, number, splat
from modelcc.ir.index import Index, minimum
from modelcc.ir.loop import Expr, Select
from modelcc.ir.types import F64, DType
from modelcc.ops.butterfly import Complex, times
from modelcc.ops.complex_line import Line, split

STEP = 64
"""Neighbouring roots that are one root times the first ones."""


def root(at: AlgorithmBuilder, turn: Expr, whole: Expr) -> Complex:
    """``exp(-2 pi i turn / whole)`` in f64, for ``turn``, in lanes perhaps, below ``whole``.

    Angles beyond half a turn are taken from behind, which halves their rounding error.
    """
    lanes = turn.lanes
    step = splat(at.let(call("div", number(-2 * pi, F64), convert(whole, F64))), lanes)
    whole = splat(whole, lanes)
    late = call("gt", add(turn, turn), whole)
    signed = Select(late, call("sub", turn, whole), turn)
    angle = at.let(call("mul", convert(signed, F64), step))
    return at.let(call("cos", angle)), at.let(call("sin", angle))


def unit_roots(at: AlgorithmBuilder, count: Index, target: Line) -> None:
    """All ``count`` roots of that order, by one sine for each ``STEP`` of them.

    Each is the product, in f64, of the root at a multiple of ``STEP`` and one of the first.
    """
    first = split(at.scratch(F64, 2 * STEP), STEP)
    whole = at.let(index_number(count))
    with at.loop(0, minimum(STEP, count)) as t:
        first.write(at, t, root(at, at.let(index_number(t)), whole))
    blocks = count // STEP
    with at.loop(0, blocks) as block:
        _neighbours(at, block * STEP, STEP, first, whole, target)
    if blocks * STEP != count:
        _neighbours(at, blocks * STEP, count - blocks * STEP, first, whole, target)


def _neighbours(
    at: AlgorithmBuilder, start: Index, count: Index, first: Line, whole: Expr, target: Line
) -> None:
    """``count`` roots from ``start`` on: the root there times the ``first`` ones."""
    real, imaginary = root(at, at.let(index_number(start)), whole)
    for t, lanes in at.vectors(count):
        wide = (splat(real, lanes), splat(imaginary, lanes))
        value = times(at, first.read(at, t, lanes), wide)
        target.write(at, start + t, narrowed(at, value, target.dtype))


def narrowed(at: AlgorithmBuilder, value: Complex, dtype: DType) -> Complex:
    """The parts of ``value`` in another type."""
    return at.let(convert(value[0], dtype)), at.let(convert(value[1], dtype))
