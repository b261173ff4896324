"""Stages of a Fourier transform that sorts itself, between two copies of the numbers.

Stockham's form (Cochran and others, "What is the fast Fourier transform?", 1967; Van Loan,
"Computational Frameworks for the Fast Fourier Transform", 1992, 1.7).  With ``length = stride *
radix * rest``, a stage makes, of ``a[j] = x[q + stride * (p + rest * j)]``::

    y[q + stride * (radix * p + k)] = transform(a)[k] * exp(-2 pi i stride p k / length)

for ``q < stride`` and ``p < rest``: vectors are over q, or over p where the stride is small.  A
last vector that is not whole begins earlier, and makes some elements again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from modelcc.ir.algorithm import AlgorithmBuilder, call, index_number, integer, predicate, splat
from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, ceildiv, minimum
from modelcc.ir.loop import Expr, Predicate, Var
from modelcc.ops.butterfly import Complex, butterfly, times
from modelcc.ops.complex_line import Copies, Line, copied, interleaved

RADICES = (8, 4, 2, 9, 7, 5, 3)
"""In the order in which they are taken: the stride grows quickly."""
BINARY = (8, 4, 2)
CONVOLVED = (*BINARY, 5, 3)
"""Of the longer lengths that are chosen at run time."""
DYNAMIC = (*BINARY, 7, 5, 3)
"""Where the length is not given, and code for all of them is there."""


def stage(
    at: AlgorithmBuilder,
    radix: int,
    stride: Index,
    rest: Index,
    source: Line,
    target: Line,
    table: Line,
) -> None:
    """One stage, not in place; ``table`` has ``exp(-2 pi i t / length)`` at ``t``."""
    one = _Stage(at, radix, stride, rest, source, target, table)
    lanes = at.lanes
    if isinstance(stride, int) and isinstance(rest, int):
        if stride >= lanes:
            one.by_lanes()
        else:
            one.by_places(lanes if rest >= lanes else 1)
        return
    with at.when(predicate(stride, ">=", lanes)):
        one.by_lanes()
    with at.otherwise():
        with at.when(Predicate((Condition(stride, "==", 1), Condition(rest, ">=", lanes)))):
            replace(one, stride=1).by_places(lanes)
        with at.otherwise():
            one.by_places(1)


@dataclass(frozen=True)
class _Stage:
    at: AlgorithmBuilder
    radix: int
    stride: Index
    rest: Index
    source: Line
    target: Line
    table: Line

    def by_lanes(self) -> None:
        """Vectors of neighbouring q, which have factors in common."""
        at, stride, lanes = self.at, self.stride, self.at.lanes
        with at.loop(0, self.rest) as p:
            factors = self._factors(p, 1)
            wide = [(splat(a, lanes), splat(b, lanes)) for a, b in factors]
            with _overlapping(at, stride) as q:
                values = self._values(q, p, lanes, 1)
                for k, value in enumerate(_multiplied(at, butterfly(at, values), wide)):
                    self.target.write(at, q + stride * (self.radix * p + k), value)

    def by_places(self, lanes: int) -> None:
        """Vectors of neighbouring p, which have neighbouring factors; or one by one."""
        at, stride, radix = self.at, self.stride, self.radix
        places = at.loop(0, self.rest) if lanes == 1 else _overlapping(at, self.rest)
        with at.loop(0, stride) as q, places as p:
            values = self._values(q, p, lanes, stride)
            results = _multiplied(at, butterfly(at, values), self._factors(p, lanes))
            place = q + stride * radix * p
            if stride == 1 and lanes > 1 and radix & (radix - 1) == 0:
                parts = [interleaved([value[i] for value in results]) for i in range(2)]
                self.target.write(at, place, (parts[0], parts[1]))
                return
            for k, value in enumerate(results):
                self.target.write(at, place + stride * k, value, stride * radix)

    def _values(self, q: Index, p: Index, lanes: int, step: Index) -> list[Complex]:
        places = (q + self.stride * (p + self.rest * j) for j in range(self.radix))
        return [self.source.read(self.at, place, lanes, step) for place in places]

    def _factors(self, p: Index, lanes: int) -> list[Complex]:
        if self.rest == 1:
            return []
        turns = (self.stride * k for k in range(1, self.radix))
        return [self.table.read(self.at, turn * p, lanes, turn) for turn in turns]


@contextmanager
def _overlapping(at: AlgorithmBuilder, count: Index) -> Generator[Index]:
    """Where vectors of ``count`` elements, a whole one at least, begin; the last may overlap."""
    lanes = at.lanes
    with at.loop(0, ceildiv(count, lanes)) as block:
        whole = isinstance(count, int) and count % lanes == 0
        yield block * lanes if whole else minimum(block * lanes, count - lanes)


def _multiplied(
    at: AlgorithmBuilder, values: Sequence[Complex], factors: Sequence[Complex]
) -> Sequence[Complex]:
    if not factors:
        return values
    return values[0], *(times(at, v, f) for v, f in zip(values[1:], factors, strict=True))


def radices_of(length: int) -> tuple[int, ...] | None:
    """The radices of the stages for ``length``, 1 or more; None if it has another prime factor."""
    if length < 1:
        raise ValueError(f"a transform of {length} numbers")
    found: list[int] = []
    for radix in RADICES:
        while length % radix == 0:
            found.append(radix)
            length //= radix
    return tuple(found) if length == 1 else None


def stages(
    at: AlgorithmBuilder,
    radices: Sequence[int],
    source: Line,
    target: Line,
    copies: Sequence[Line],
    table: Line,
) -> None:
    """All stages of a transform whose length, the product of ``radices``, is given.

    The source may be copy 0, and the target that which the number of stages leads to.
    """
    if not radices:
        copied(at, 1, source, target)
    stride, rest = 1, 1
    for radix in radices:
        rest *= radix
    for number_, radix in enumerate(radices):
        rest //= radix
        first, last = number_ == 0, number_ == len(radices) - 1
        before = source if first else copies[number_ % 2]
        behind = target if last else copies[1 - number_ % 2]
        stage(at, radix, stride, rest, before, behind, table)
        stride *= radix


def dynamic_stages(
    at: AlgorithmBuilder,
    length: Index,
    copies: Copies,
    table: Line,
    which: Var,
    radices: Sequence[int],
) -> None:
    """All stages of a transform of a ``length`` known at run time, a product of ``radices``.

    Copy 0 is transformed; ``which`` says in which copy the result is.
    """
    at.assign(which, integer(0))
    stride, rest = at.register(integer(1)), at.register(index_number(length))
    for radix in radices:
        with at.while_(divides(rest, radix)):
            at.assign(rest, call("div", rest, integer(radix)))
            here = at.index(which)
            before, behind = copies.at(here), copies.at(1 - here)
            stage(at, radix, at.index(stride), at.index(rest), before, behind, table)
            at.assign(stride, call("mul", stride, integer(radix)))
            at.assign(which, index_number(1 - here))


def divides(value: Expr, radix: int) -> Expr:
    """Whether ``radix`` divides ``value``, which is not 0: that is divided for ever."""
    exact = call("eq", call("mod", value, integer(radix)), integer(0))
    return call("and", call("gt", value, integer(0)), exact)
