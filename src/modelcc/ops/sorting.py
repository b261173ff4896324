"""Sorting inside loop functions: a stable merge sort of indices, and the order of values."""

from __future__ import annotations

from collections.abc import Callable

from modelcc.ir.algorithm import AlgorithmBuilder, add, call, index_number, integer, number
from modelcc.ir.index import Index, Sym, minimum
from modelcc.ir.loop import Buffer, Expr
from modelcc.ir.types import BOOL

Less = Callable[[Sym, Sym], Expr]
"""Whether the first of two elements, given by index, comes before the second."""


def below(a: Expr, b: Expr) -> Expr:
    """Whether ``a`` comes before ``b`` in ascending order; NaN is last, as in NumPy."""
    if not a.dtype.is_float:
        return call("lt", a, b)
    return call("and", call("not", call("ge", a, b)), call("eq", a, a))


def sort_indices(
    at: AlgorithmBuilder, order: Buffer, spare: Buffer, count: Index, less: Less
) -> None:
    """Sort the first ``count`` indices in ``order``; equal ones keep their order.

    Bottom-up merge sort: runs of 1, 2, 4 … are merged into ``spare`` and copied back (Knuth, The
    Art of Computer Programming 3, 5.2.4).
    """
    total = index_number(count)
    width = at.register(integer(1))
    with at.while_(call("lt", width, total)):
        run = at.index(width)
        begin = at.register(integer(0))
        with at.while_(call("lt", begin, total)):
            first = at.index(begin)
            _merge(at, order, spare, first, run, count, less)
            at.assign(begin, add(begin, index_number(2 * run)))
        with at.loop(0, count) as i:
            at.store(order, i, at.load(spare, i))
        at.assign(width, add(width, width))


def _merge(
    at: AlgorithmBuilder,
    order: Buffer,
    spare: Buffer,
    first: Sym,
    run: Sym,
    count: Index,
    less: Less,
) -> None:
    """The runs at ``first`` and ``first + run`` as one in ``spare``."""
    middle, end = minimum(first + run, count), minimum(first + 2 * run, count)
    left, right = at.register(index_number(first)), at.register(index_number(middle))
    with at.loop(first, end) as place:
        takes_left = at.register(number(False, BOOL))
        with at.when(call("lt", left, index_number(middle))):
            at.assign(takes_left, number(True, BOOL))
            with at.when(call("lt", right, index_number(end))):
                a = at.index(at.load(order, at.index(left)))
                b = at.index(at.load(order, at.index(right)))
                at.assign(takes_left, call("not", less(b, a)))
        with at.when(takes_left):
            at.store(spare, place, at.load(order, at.index(left)))
            at.assign(left, add(left, 1))
        with at.otherwise():
            at.store(spare, place, at.load(order, at.index(right)))
            at.assign(right, add(right, 1))
