"""The first extreme element of a row: one pass finds the extreme, a search its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    integer,
    number,
    reduce,
    splat,
)
from modelcc.ir.index import Index
from modelcc.ir.loop import Expr, IndexOf, Select
from modelcc.ir.types import I32, I64

CHUNK = 64
"""Elements that are searched without looking whether the place is found."""
NONE = CHUNK
"""What a search of a chunk finds where there is nothing."""

Read = Callable[[Index, int], Expr]
"""So many neighbouring elements of a row, from that at a place on."""
Found = Callable[[Expr], Expr]
"""Whether elements are the one that is searched for."""


class Extreme:
    """The ``kind`` of those taken in so far, in each of ``lanes``.

    NaN is greater than any number: where there was one it is the greatest.
    """

    def __init__(
        self, at: AlgorithmBuilder, kind: Literal["max", "min"], least: Expr, lanes: int
    ) -> None:
        self._at, self._kind = at, kind
        self._best = at.register(splat(least, lanes))
        odd = least.dtype.is_float and kind == "max"
        self._odd = at.register(number(0, least.dtype, lanes)) if odd else None

    def take_in(self, own: Expr) -> None:
        """One more element for each lane.  Machines drop NaN from extremes: it is kept apart."""
        if self._odd is not None:
            self._at.assign(self._odd, Select(call("isnan", own), own, self._odd))
        elif own.dtype.is_float:
            own = Select(call("isnan", own), number(np.inf, own.dtype, own.lanes), own)
        self._at.assign(self._best, call(self._kind, self._best, own))

    def of_all(self) -> Expr:
        """The extreme of all lanes; the least element of NaN only is infinity."""
        best = reduce(self._kind, self._best)
        return self._at.let(
            best if self._odd is None else call("add", best, reduce("add", self._odd))
        )


def search(at: AlgorithmBuilder, read: Read, extent: Index, found: Found) -> Expr:
    """The place of the first element that is ``found``; ``extent`` or more if none is."""
    base, place = at.register(integer(0)), at.register(number(NONE, I32))
    whole = extent // CHUNK * CHUNK
    more = call("lt", base, index_number(whole))
    with at.while_(call("and", more, call("eq", place, number(NONE, I32)))):
        at.assign(place, _in_chunk(at, read, at.index(base), CHUNK, found))
        at.assign(base, add(base, CHUNK))
    with at.when(call("eq", place, number(NONE, I32))):
        at.assign(place, _in_chunk(at, read, whole, extent - whole, found))
        at.assign(base, index_number(whole + CHUNK))
    return at.let(call("add", call("sub", base, integer(CHUNK)), convert(place, I64)))


def _in_chunk(at: AlgorithmBuilder, read: Read, start: Index, count: Index, found: Found) -> Expr:
    """The place from ``start`` on of the first that is found among ``count``, or NONE."""
    first = {lanes: at.register(number(NONE, I32, lanes)) for lanes in dict.fromkeys((at.lanes, 1))}
    for place, lanes in at.vectors(count):
        here = found(read(start + place, lanes))
        candidate = Select(here, IndexOf(place, I32, lanes, 1), number(NONE, I32, lanes))
        at.assign(first[lanes], call("min", first[lanes], candidate))
    return call("min", reduce("min", first[at.lanes]), first[1])
