"""Windows that overlap along an axis: those of depthwise convolutions and of pooling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from modelcc.ir.index import Index, coefficient, substitute
from modelcc.ir.scalar_tree import reads, walk
from modelcc.ir.tensor import Bind, Read
from modelcc.schedule.nest import LoopVar, Nest

FAR = 4
"""The largest distance of results whose windows share elements in one strip."""

COALESCED = 8
"""The largest distance between elements of neighbouring threads at which their loads coalesce."""


@dataclass(frozen=True)
class SharedElements:
    """Windows of results ``apart`` along a loop share elements that are ``terms`` apart."""

    result: LoopVar
    term: LoopVar
    apart: int
    terms: int


@dataclass(frozen=True)
class Windows:
    """Neighbours in memory are along ``side``, along which windows move, unless all of them read
    the ``same`` elements; they overlap along a ``strip``, and maybe along lines ``beside`` it."""

    side: LoopVar
    strip: SharedElements
    beside: LoopVar | None
    same: bool = False

    @property
    def size(self) -> int:
        """Terms along the strip."""
        extent = self.strip.term.extent
        assert isinstance(extent, int)
        return extent

    def elements(self, points: int) -> int:
        """Elements that the windows of ``points`` results of a strip read in a line."""
        apart, terms = self.strip.apart, self.strip.terms
        return len({i * terms + k * apart for i in range(points) for k in range(self.size)})


def find_windows(nest: Nest) -> Windows | None:
    """The windows that ``nest`` reduces; None if they overlap only along neighbours."""
    if nest.combine is None or any(isinstance(node, Bind) for node in walk(nest.body)):
        return None
    for read in reads(nest.body):
        found = list(_overlaps(read, nest))
        columns = _columns(read, nest) if found else None
        side = columns or (_side(read, nest) if found else None)
        strips = [o for o in found if side is not None and o.result != side]
        if side is not None and strips:
            strip = min(strips, key=lambda o: _places(read, nest).index(o.result.name))
            others = [o.result for o in strips if o.result != strip.result]
            return Windows(side, strip, others[0] if others else None, side == columns)
    return None


def _columns(read: Read, nest: Nest) -> LoopVar | None:
    """The loop along which results and the other factor are contiguous, while ``read`` does not
    move."""
    for v in nest.parallel:
        steps = [coefficient(r.indices[0], v.name) for r in reads(nest.body) if r != read]
        stays = coefficient(read.indices[0], v.name) == 0 and v.extent != 1
        if stays and steps == [1] and coefficient(nest.store, v.name) == 1:
            return v
    return None


def _overlaps(read: Read, nest: Nest) -> Iterator[SharedElements]:
    """For each loop over results along which windows overlap, the smallest distance."""
    (index,) = read.indices if len(read.indices) == 1 else (0,)
    for v in nest.parallel:
        found: list[SharedElements] = []
        for r in nest.reduce:
            ratio = _ratio(coefficient(index, v.name), coefficient(index, r.name))
            if ratio is None or v.extent == 1 or not isinstance(r.extent, int):
                continue
            if ratio[0] < r.extent and ratio[1] <= FAR:
                found.append(SharedElements(v, r, ratio[1], ratio[0]))
        if found:
            yield min(found, key=lambda o: (o.apart, o.terms))


def _ratio(first: Index | None, second: Index | None) -> tuple[int, int] | None:
    """The reduced ratio of two positive steps; None if it is unknown."""
    if isinstance(first, int) and isinstance(second, int):
        if first <= 0 or second <= 0:
            return None
        common = gcd(first, second)
        return first // common, second // common
    if first is None or second is None or 0 in (first, second):
        return None
    pairs = ((n, 1) for n in range(1, 5)), ((1, n) for n in range(2, 5))
    return next(((a, b) for some in pairs for a, b in some if first * b == second * a), None)


def _places(read: Read, nest: Nest) -> list[str]:
    """Parallel loops that ``read`` moves along, by increasing stride."""
    steps = ((v.name, _step(read, v)) for v in nest.parallel if v.extent != 1)
    known = [(n, s) for n, s in steps if s != 0]
    return [n for n, _ in sorted(known, key=lambda found: found[1])]


def _step(read: Read, v: LoopVar) -> float:
    """The stride of ``read`` along ``v``, on average."""
    last = v.extent - 1 if isinstance(v.extent, int) else 1
    (index,) = read.indices
    moved = substitute(index, {v.name: last}) - substitute(index, {v.name: 0})
    return abs(moved) / last if isinstance(moved, int) else float("inf")


def _side(read: Read, nest: Nest) -> LoopVar | None:
    """The loop along which neighbours are read, if there is one."""
    names = _places(read, nest)
    if not names or _step(read, nest.var(names[0])) > COALESCED:
        return None
    return nest.var(names[0])
