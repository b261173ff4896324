"""The distance at which a result may overlap an operand in memory.

A kernel that traverses rows in order has read an operand's first rows when it writes the last ones.
So its result may overwrite rows that have been read if it begins a few rows before the operand; if
it traverses them in reverse, a few rows after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from typing import TypeAlias

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Range, bounds_of, compare, split_affine, substitute, symbols
from modelcc.ir.loop import (
    BindIndex,
    Buffer,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Load,
    ParallelCall,
    Predicate,
    RoutineCall,
    Stmt,
    Store,
    VectorGather,
    VectorScatter,
    While,
)
from modelcc.ir.loop_traversal import statement_expressions, walk

MOMENTS = 1024
"""Iterations, or runs of several, that are analysed individually; inner loops are merged."""


Bytes: TypeAlias = tuple[int, int]
"""The first byte and the end."""


@dataclass(frozen=True)
class Lead:
    """Minimum distance in bytes of results to operands, if results begin ``before`` these, and of
    operands to results if they begin ``behind``."""

    before: int
    behind: int


@dataclass(frozen=True)
class _Moment:
    """Bytes of operands read and of results written at a point in time; None if there are none."""

    read: Bytes | None
    written: Bytes | None


class _UnknownError(Exception):
    """An access whose range is unknown."""


@dataclass(frozen=True)
class CallAccess:
    """A call of ``function`` with ranges of sizes, and its names for results and operands."""

    function: Function
    sizes: tuple[Range, ...]
    results: frozenset[str]
    operands: frozenset[str]


def lead(function: Function, results: Collection[str], operands: Collection[str]) -> Lead | None:
    """:func:`lead_of_calls` for one call of a function without sizes."""
    call = CallAccess(function, (), frozenset(results), frozenset(operands))
    return lead_of_calls([call], MOMENTS)


def lead_of_calls(calls: Sequence[CallAccess], room: int = 0) -> Lead | None:
    """The minimum distance between the results that consecutive calls write and the operands they
    read, such that no byte is written before its last read; None if unknown.  Up to ``room``
    iterations per call are analysed individually."""
    moments: list[_Moment] = []
    known: dict[tuple[int, frozenset[str], frozenset[str]], _KernelAccesses] = {}
    for call in calls:
        if len(call.function.sizes) != len(call.sizes):
            return None
        buffers = {p.buffer.name: p.buffer for p in call.function.parameters}
        if any(buffers[n].dtype.bits < 8 for n in (*call.results, *call.operands)):
            return None
        key = id(call.function), call.results, call.operands
        accesses = known.setdefault(key, _KernelAccesses(call.results, call.operands, buffers))
        found = _MomentWalk(accesses, _IndexEnds())
        ranges = dict(zip(call.function.sizes, call.sizes, strict=True))
        try:
            found.visit(call.function.body, ranges, room)
        except _UnknownError:
            return None
        moments += found.moments
    return _lead_of(moments)


def _lead_of(moments: Sequence[_Moment]) -> Lead:
    """The maximum distance that writes are ahead of later reads, and behind them."""
    reads = [moment.read for moment in reversed(moments)]
    still: list[Bytes | None] = [*accumulate(reads, _both)]
    before = behind = 0
    written: Bytes | None = None
    for moment, left in zip(moments, reversed(still), strict=True):
        written = _both(written, moment.written)
        if left is not None and written is not None:
            before = max(before, written[1] - left[0])
            behind = max(behind, left[1] - written[0])
    return Lead(before, behind)


def _both(a: Bytes | None, b: Bytes | None) -> Bytes | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a[0], b[0]), max(a[1], b[1])


@dataclass(frozen=True)
class _Access:
    """Elements of ``width`` bytes between two indices, inclusive."""

    is_read: bool
    width: int
    first: Index
    last: Index

    def moment(self, ends: _IndexEnds, ranges: Mapping[str, Range]) -> _Moment:
        """The bytes accessed, for these ranges of symbols."""
        first, last = ends.of(self.first, ranges)[0], ends.of(self.last, ranges)[1]
        bytes_ = max(0, first) * self.width, (last + 1) * self.width
        return _Moment(bytes_, None) if self.is_read else _Moment(None, bytes_)


@dataclass(frozen=True)
class _KernelAccesses:
    """Accesses of statements to results and operands, memoised."""

    results: frozenset[str]
    operands: frozenset[str]
    buffers: Mapping[str, Buffer]
    known: dict[int, tuple[_Access, ...]] = field(default_factory=dict[int, tuple[_Access, ...]])

    def of(self, s: Stmt) -> tuple[_Access, ...]:
        """The accesses of one statement without inner ones."""
        found = self.known.get(id(s))
        if found is None:
            found = self.known[id(s)] = tuple(self._found(s))
        return found

    def _found(self, s: Stmt) -> Iterator[_Access]:
        for outer in statement_expressions(s):
            for e in walk(outer):
                yield from self._read(e)
        match s:
            case Store(buffer=name, offset=offset, value=value, stride=stride):
                yield from self._ends(name, offset, stride, value.lanes, False)
            case VectorScatter(buffer=name) if name in self.results:
                raise _UnknownError
            case RoutineCall():
                yield from self._called(s)
            case _:
                pass

    def _read(self, e: Expr) -> Iterator[_Access]:
        match e:
            case Load(buffer=name, offset=offset, lanes=lanes, stride=stride):
                yield from self._ends(name, offset, stride, lanes, True)
            case VectorGather(buffer=name) if name in self.operands:
                yield _Access(True, 1, 0, 0)
            case _:
                pass

    def _ends(
        self, name: str, offset: Index, stride: Index, lanes: int, is_read: bool
    ) -> Iterator[_Access]:
        if name in (self.operands if is_read else self.results):
            width, last = self.buffers[name].dtype.bytes, offset + stride * (lanes - 1)
            yield from (_Access(is_read, width, end, end) for end in {offset, last})

    def _called(self, s: RoutineCall) -> Iterator[_Access]:
        sizes = dict(zip(s.routine.sizes, s.sizes, strict=True))
        for parameter, given in zip(s.routine.parameters, s.arguments, strict=True):
            name, start = given.buffer, given.offset
            end = start + substitute(parameter.buffer.size, sizes) - 1
            if name in self.operands:
                yield _Access(True, self.buffers[name].dtype.bytes, start, end)
            if name in self.results and parameter.mutable:
                yield _Access(False, self.buffers[name].dtype.bytes, start, end)


@dataclass(frozen=True)
class _IndexEnds:
    """Minimum and maximum of indices; linear forms are memoised."""

    known: dict[Index, tuple[int, tuple[tuple[int, str], ...]] | None] = field(
        default_factory=dict[Index, "tuple[int, tuple[tuple[int, str], ...]] | None"]
    )

    def of(self, index: Index, ranges: Mapping[str, Range]) -> tuple[int, int]:
        """Bounds of an index; :class:`_UnknownError` if there are none."""
        if isinstance(index, int):
            return index, index
        if index not in self.known:
            self.known[index] = _linear(index)
        parts = self.known[index]
        found = bounds_of(index, ranges) if parts is None else None
        if parts is None or found is not None:
            if found is None or not isinstance(found.lo, int) or not isinstance(found.hi, int):
                raise _UnknownError
            return found.lo, found.hi
        low = high = parts[0]
        for factor, name in parts[1]:
            least, most = _numbers(ranges[name])
            low += factor * (least if factor > 0 else most)
            high += factor * (most if factor > 0 else least)
        return low, high


def _linear(index: Index) -> tuple[int, tuple[tuple[int, str], ...]] | None:
    """A constant and coefficients of symbols; None if not linear."""
    names = sorted(symbols(index))
    split = split_affine(index, names)
    if split is None or not isinstance(split[1], int):
        return None
    factors = tuple((factor, name) for name, factor in split[0].items() if isinstance(factor, int))
    return (split[1], factors) if len(factors) == len(names) else None


def _numbers(range_: Range) -> tuple[int, int]:
    if not isinstance(range_.lo, int) or not isinstance(range_.hi, int):
        raise _UnknownError
    return range_.lo, range_.hi


@dataclass
class _MomentWalk:
    """Traverses statements in execution order."""

    accesses: _KernelAccesses
    ends: _IndexEnds
    moments: list[_Moment] = field(default_factory=list[_Moment])

    def visit(self, body: Sequence[Stmt], known: Mapping[str, Range], room: int) -> None:
        """Records accesses of ``body``; loops in up to ``room`` runs of iterations."""
        ranges = dict(known)
        for s in body:
            match s:
                case BindIndex(symbol, IndexOf(index)):
                    ranges[symbol] = Range(*self.ends.of(index, ranges))
                case For():
                    self._loop(s, ranges, room)
                case If(condition=condition):
                    for block in self._taken(s, condition, ranges):
                        self.visit(block, ranges, room)
                case BindIndex(symbol):  # an index from memory is unbounded
                    ranges[symbol] = Range(None, None)
                    self.moments += _together(
                        [a.moment(self.ends, ranges) for a in self.accesses.of(s)]
                    )
                case While() | ParallelCall():
                    raise _UnknownError
                case _:
                    found = [(a, a.moment(self.ends, ranges)) for a in self.accesses.of(s)]
                    if not isinstance(s, RoutineCall):  # values are computed before stores
                        self.moments += _together([m for a, m in found if a.is_read])
                        found = [(a, m) for a, m in found if not a.is_read]
                    self.moments += _together([moment for _, moment in found])

    def _loop(self, s: For, ranges: Mapping[str, Range], room: int) -> None:
        starts, stops = self.ends.of(s.start, ranges), self.ends.of(s.stop, ranges)
        first, stop = starts[0], stops[1]
        exact = starts[0] == starts[1] and stops[0] == stops[1] and s.part is None
        count = -(-(stop - first) // s.step)
        if count <= 0:
            return
        if exact and count <= room:
            for value in range(first, stop, s.step):
                self.visit(s.body, {**ranges, s.variable: Range(value, value)}, room // count)
            return
        some = s.step * -(-count // max(room, 1)) if exact else stop - first
        for value in range(first, stop, some):
            inner = _MomentWalk(self.accesses, self.ends)
            last = min(value + some, stop) - 1
            inner.visit(s.body, {**ranges, s.variable: Range(value, last)}, 0)
            self.moments += _together(inner.moments)

    def _taken(
        self, s: If, condition: Expr, ranges: Mapping[str, Range]
    ) -> tuple[Sequence[Stmt], ...]:
        """The sides of a branch that may be taken."""
        if not isinstance(condition, Predicate):
            return s.then, s.other
        holds = [self._holds(c, ranges) for c in condition.conditions]
        if all(holds):
            return (s.then,)
        return (s.other,) if any(h is False for h in holds) else (s.then, s.other)

    def _holds(self, condition: Condition, ranges: Mapping[str, Range]) -> bool | None:
        left, right = (self.ends.of(e, ranges) for e in (condition.left, condition.right))
        if left[0] == left[1] and right[0] == right[1]:
            return compare(left[0], condition.comparison, right[0], {})
        return None


def _together(moments: Sequence[_Moment]) -> list[_Moment]:
    """Several moments merged into one, in any order."""
    read, written = (
        reduce(_both, (m.read for m in moments), None),
        reduce(_both, (m.written for m in moments), None),
    )
    return [] if read is None and written is None else [_Moment(read, written)]
