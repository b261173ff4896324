"""The best element of a row: rows shorter than a vector one by one, others by a search."""

from __future__ import annotations

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    call,
    convert,
    index_number,
    integer,
    number,
    predicate,
    splat,
)
from modelcc.ir.index import Index
from modelcc.ir.loop import Expr, Select
from modelcc.ops.accumulate import accumulator
from modelcc.ops.extremes import Extreme, Read, search
from modelcc.ops.selection import Row
from modelcc.ops.sorting import below


def select_best(at: AlgorithmBuilder, row: Row) -> None:
    """The one result for k = 1, and its place: O(n)."""
    with at.when(predicate(row.extent, "<", at.lanes)):
        row.write(at, 0, *_of_few(at, row))
    with at.otherwise():
        place = _of_many(at, row)
        row.write(at, 0, row.element(at, at.index(place)), place)


def _of_few(at: AlgorithmBuilder, row: Row) -> tuple[Expr, Expr]:
    value, place = at.register(row.element(at, 0)), at.register(integer(0))
    with at.loop(1, row.extent) as i:
        own = at.let(row.element(at, i))
        better = at.let(below(value, own) if row.largest else below(own, value))
        at.assign(value, Select(better, own, value))
        at.assign(place, Select(better, index_number(i), place))
    return value, place


def _of_many(at: AlgorithmBuilder, row: Row) -> Expr:
    """The first extreme, or where nothing but NaN is, the first of all."""

    def read(place: Index, lanes: int) -> Expr:
        own = row.element(at, place, lanes)
        return at.let(convert(own, accumulator(own.dtype)) if own.dtype.is_float else own)

    best = _extreme(at, row, read)

    def found(own: Expr) -> Expr:
        same = call("eq", own, splat(best, own.lanes))
        odd = own.dtype.is_float and row.largest
        return call("or", same, call("isnan", own)) if odd else same

    place = search(at, read, row.extent, found)
    return at.let(Select(call("lt", place, index_number(row.extent)), place, integer(0)))


def _extreme(at: AlgorithmBuilder, row: Row, read: Read) -> Expr:
    least = read(0, 1)
    if least.dtype.is_float:
        least = number(-np.inf if row.largest else np.inf, least.dtype)
    kind = "max" if row.largest else "min"
    vectors, single = (Extreme(at, kind, least, lanes) for lanes in (at.lanes, 1))
    for place, lanes in at.vectors(row.extent):
        (single if lanes == 1 else vectors).take_in(read(place, lanes))
    single.take_in(vectors.of_all())
    return single.of_all()
