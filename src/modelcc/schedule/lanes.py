"""Vectors along a loop: their addresses in memory, broadcasts, and linearity of indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.index import Index, Range, Sym, coefficient, mod, simplify, substitute
from modelcc.ir.loop import Const, Expr, Splat
from modelcc.ir.tensor import Condition


@dataclass(frozen=True)
class Lanes:
    """The vector loop: lane l of ``variable`` is the point ``variable = l``.

    ``active`` (None: all) bounds the active lanes; accesses to ``masked`` buffers must respect it,
    others are padded to whole vectors.
    """

    variable: str
    count: int
    active: Index | None = None
    masked: frozenset[str] = frozenset()

    def active_for(self, buffer: str) -> Index | None:
        """Lanes that may touch ``buffer``; None: all."""
        return self.active if buffer in self.masked else None

    def split(self, offset: Index) -> tuple[Index, Index]:
        """Offset of lane 0 and stride between lanes; ``ValueError`` if the lanes are irregular."""
        stride = coefficient(offset, self.variable)
        if stride is None:
            offset = simplify(offset, {self.variable: Range(0, self.count - 1)})
            stride = coefficient(offset, self.variable)
        if stride is None:
            raise ValueError(f"{offset} is not linear in the vector variable {self.variable}")
        return substitute(offset, {self.variable: 0}), stride


@dataclass(frozen=True)
class Access:
    """The address of a vector as a function of some variables: ``moved`` from ``start``, plus a
    number of elements for each step of a variable."""

    start: Index
    moved: int
    steps: tuple[tuple[str, int], ...]
    lanes: int
    stride: Index
    active: Index | None

    def at(self, point: Mapping[str, Index]) -> int | None:
        """Elements from ``start`` at ``point``; None if a variable is not an integer there."""
        moved = self.moved
        for name, step in self.steps:
            place = point[name]
            if not isinstance(place, int):
                return None
            moved += place * step
        return moved


def widen(value: Expr, lanes: int) -> Expr:
    """``value`` broadcast to ``lanes`` lanes."""
    if value.lanes == lanes:
        return value
    if isinstance(value, Const):
        return Const(value.value, value.dtype, lanes)
    return Splat(value, lanes)


def regular(index: Index, variable: str, lanes: int) -> bool:
    """Whether ``index`` is linear within each vector of ``lanes`` along ``variable``."""
    if coefficient(index, variable) is not None:
        return True
    vector, lane = Sym(f"{variable}.vector"), Sym(f"{variable}.lane")
    within = substitute(index, {variable: vector * lanes + lane})
    within = simplify(within, {lane.name: Range(0, lanes - 1)})
    return coefficient(within, lane.name) is not None


def uniform(condition: Condition, variable: str, lanes: int) -> bool:
    """Whether ``left >= 0`` is uniform over vectors of ``lanes`` along ``variable`` that
    begin at multiples of ``lanes``."""
    step = coefficient(condition.left, variable)
    if step == 0:
        return True
    if condition.comparison != ">=" or condition.right != 0 or step not in (1, -1):
        return False
    # The side where it holds begins or ends at a vector boundary.
    first = substitute(condition.left, {variable: 0})
    return mod(first, lanes) == (0 if step == 1 else lanes - 1)


def repeats(index: Index, variable: str, lanes: int) -> int | None:
    """How many neighbours along ``variable`` share each element, if vectors of ``lanes`` read a run
    of elements, each repeated as often; None if they do not."""
    if coefficient(index, variable) is not None:
        return None
    vector, run, lane = (Sym(f"{variable}.{part}") for part in ("vector", "run", "lane"))
    times = 2
    while times < lanes:
        places = {variable: vector * lanes + run * times + lane}
        ranges = {run.name: Range(0, lanes // times - 1), lane.name: Range(0, times - 1)}
        within = simplify(substitute(index, places), ranges)
        if coefficient(within, lane.name) == 0 and coefficient(within, run.name) == 1:
            return times
        times *= 2
    return None
