"""Rows with guards or clamped and reflected indices, split where these apply: most of each is a
contiguous run.

Edges repeated around a row (``Pad``)::

    y[i] = x[min(max(i - 3, 0), n - 1)]     i < n + 6

become three stages, of which the longest reads contiguous elements, as vectors do::

    y[i + 3] = x[i]                                  i < n
    y[i] = x[min(max(i - 3, 0), n - 1)]              i < 3
    y[i + n + 3] = x[min(max(i + n, 0), n - 1)]      i < 3

So do rows with guarded elements, such as zero padding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from modelcc.ir.index import (
    Bounds,
    Index,
    Range,
    Sym,
    bounds_of,
    coefficient,
    compare,
    loop_range,
    simplify,
    symbols,
)
from modelcc.ir.index_expr import Atom, Expr, FloorMod, product
from modelcc.ir.index_extremum import Extremum, IndexMax, IndexMin
from modelcc.ir.scalar_tree import substitute_indices, transform, walk
from modelcc.ir.tensor import Axis, Condition, Guard, Read, Scalar, Stage
from modelcc.ir.types import TensorType
from modelcc.schedule.nest import normal_form
from modelcc.schedule.segments import interior_of

DEPTH = 3
"""Splits of one axis: nested parts (concatenations) are split one after the other."""

WIDE = 64
"""Contiguous elements from which one branch for all of them is cheap."""

SHORT = 8
"""Length of a run too short for vectors."""

PART = 4
"""A run shorter than this fraction of a row does not pay for splitting."""

_Straight: TypeAlias = "tuple[Index, tuple[Condition, ...]]"


@dataclass(frozen=True)
class RowRuns:
    """The stages for the parts of the rows along ``axis``, the longest first.

    Their bounds may depend on the ``outer`` axes.  Lengths that contain a minimum or maximum are
    named: ``sizes``, each of which may mention those before it.
    """

    axis: Axis
    outer: tuple[Axis, ...]
    parts: tuple[Stage, ...]
    sizes: tuple[tuple[str, Index], ...] = ()


def straight_runs(stage: Stage, types: Mapping[str, TensorType], dims: Bounds) -> RowRuns | None:
    """The parts of the rows of ``stage``; None if these are contiguous already, or cannot be
    split."""
    type_ = types.get(stage.output)
    if type_ is None or type_.layout is not None or stage.reduce:
        return None
    axis = _bent_axis(stage)
    if axis is None:
        return None
    outer = outside(stage, axis)
    ranges = {**dims, **{a.name: loop_range(a.extent) for a in outer}}
    line = _Line(axis.name, frozenset(a.name for a in outer))
    parts, sizes = _parts(stage, line, ranges, DEPTH, axis.name)
    return RowRuns(axis, outer, tuple(parts), tuple(sizes)) if len(parts) > 1 else None


def outside(stage: Stage, axis: Axis) -> tuple[Axis, ...]:
    """Axes with a greater stride in the result than ``axis``."""
    named = [symbols(index) for index in stage.write]
    place = next(n for n, names in enumerate(named) if axis.name in names)
    inside = {name for names in named[place:] for name in names}
    return tuple(a for a in stage.axes if a.name not in inside)


@dataclass(frozen=True)
class _Line:
    """The ``axis`` that is split, and those outside of it."""

    axis: str
    outer: frozenset[str]


_Sizes: TypeAlias = "list[tuple[str, Index]]"


def _parts(
    stage: Stage, line: _Line, dims: Bounds, depth: int, label: str
) -> tuple[list[Stage], _Sizes]:
    """Parts of the rows, the longest first, and the named sizes that they mention, prefixed by
    ``label``."""
    cut = _cut(stage, line, dims, label) if depth else None
    if cut is None:
        return [stage], []
    middle, sides, sizes = cut
    bounds: Bounds = {**dims, **{name: Range(0, bounds_of(s, dims).hi) for name, s in sizes}}
    parts = [middle]
    for number, side in enumerate(sides):
        more, inside = _parts(side, line, bounds, depth - 1, f"{label}.{number}")
        parts += more
        sizes += inside
    return parts, sizes


def _bent_axis(stage: Stage) -> Axis | None:
    """The innermost axis on which guards or clamped indices depend, if few elements are inside
    it."""
    inside = 1
    for index in reversed(stage.write):
        axes = [axis for axis in stage.axes if axis.name in symbols(index)]
        if len(axes) > 1 or any(coefficient(index, axis.name) != 1 for axis in axes):
            return None
        for axis in axes:
            if _is_bent(stage.body, axis.name):
                return axis
            inside *= axis.extent if isinstance(axis.extent, int) else 1
        if inside >= WIDE:
            return None
    return None


def _is_bent(body: Scalar, name: str) -> bool:
    for node in walk(body):
        match node:
            case Guard(conditions) if any(name in symbols(c.left - c.right) for c in conditions):
                return True
            case Read(_, indices) if any(coefficient(i, name) is None for i in indices):
                return True
            case _:
                pass
    return False


def _cut(
    stage: Stage, line: _Line, dims: Bounds, label: str
) -> tuple[Stage, list[Stage], _Sizes] | None:
    """The contiguous part along an axis, the parts on either side, and the sizes that they
    mention."""
    axis = next(a for a in stage.axes if a.name == line.axis)
    conditions = _conditions(stage.body, axis.name, dims)
    inside = interior_of(axis.name, axis.extent, conditions or (), {})
    if not conditions or inside is None:
        return None
    low, high = (simplify(end, dims) for end in inside)
    lengths = (low, simplify(high - low, dims), simplify(axis.extent - high, dims))
    if not _is_long(lengths[1], dims):
        return None
    sizes: _Sizes = []
    before, run, after = (
        _named(length, f"{label}.{what}", sizes)
        for length, what in zip(lengths, ("before", "run", "after"), strict=True)
    )
    middle = _part(stage, axis, before, run, _straightened(stage.body, axis.name))
    below = [c for c in conditions if _slope(c, axis) > 0]
    above = [c for c in conditions if _slope(c, axis) < 0]
    ends = ((0, before, below), (before + run, after, above))
    sides = [
        _part(stage, axis, start, count, _beyond(stage.body, bounds))
        for start, count, bounds in ends
        if count != 0
    ]
    straight = not any(_is_bent(side.body, axis.name) for side in sides)
    worth = straight or _is_most(lengths[1], axis.extent, dims, line.outer)
    return (middle, sides, sizes) if worth else None


def _named(length: Index, name: str, sizes: _Sizes) -> Index:
    """``length``, or a ``name`` for it, added to ``sizes``, if it contains an extremum."""
    factors = () if isinstance(length, int) else [a for _, m in length.terms.values() for a in m]
    if not any(isinstance(factor, Extremum) for factor in factors):
        return length
    sizes.append((name, length))
    return Sym(name)


def _slope(condition: Condition, axis: Axis) -> int:
    slope = coefficient(condition.left, axis.name)
    return slope if isinstance(slope, int) else 0


def _is_long(run: Index, dims: Bounds) -> bool:
    """Whether a run may be long enough for vectors, by its upper bound."""
    most = bounds_of(run, dims).hi
    return most is None or most >= SHORT


def _is_most(run: Index, extent: Index, dims: Bounds, outer: frozenset[str]) -> bool:
    """Whether a run is a substantial part of a row, by known bounds."""
    most = bounds_of(run, dims).hi
    if most is not None and not bool(compare(extent, "<=", PART * most, dims)):
        return False
    # The remainder grows with other sizes, or is constant; that of triangles grows with the row.
    rest = simplify(extent - run, dims)
    shared = symbols(rest) & symbols(run) - outer
    return not shared or bool(compare(rest, "<", SHORT, dims))


def _part(stage: Stage, axis: Axis, start: Index, extent: Index, body: Scalar) -> Stage:
    value = {axis.name: Sym(axis.name) + start}
    axes = tuple(Axis(a.name, extent) if a == axis else a for a in stage.axes)
    moved = substitute_indices(body, value)
    write = tuple(_moved(index, axis.name, start) for index in stage.write)
    return replace(stage, axes=axes, write=write, body=moved)


def _moved(index: Index, name: str, start: Index) -> Index:
    return index + start if name in symbols(index) else index


def _conditions(body: Scalar, name: str, dims: Bounds) -> tuple[Condition, ...] | None:
    """Conditions of the contiguous run (``left >= 0``), none implied by another; None if they
    cannot be determined."""
    bends = list(dict.fromkeys(_bends(body, name, dims.keys())))
    if None in bends:
        return None
    needed = [c for c in bends if c is not None]
    for condition in tuple(needed):
        others = [c for c in needed if c is not condition]
        if any(_follows(condition, other, name, dims) for other in others):
            needed = others
    return tuple(needed)


def _follows(condition: Condition, other: Condition, name: str, dims: Bounds) -> bool:
    """Whether ``condition`` is implied by ``other``."""
    slopes = (coefficient(c.left, name) for c in (condition, other))
    one, two = (slope if isinstance(slope, int) else 0 for slope in slopes)
    rest = abs(two) * condition.left - abs(one) * other.left
    return one * two > 0 and bool(compare(rest, ">=", 0, dims))


def _bends(body: Scalar, name: str, sizes: Collection[str]) -> Iterator[Condition | None]:
    """The conditions of the run; None for one that cannot be used."""
    for node in walk(body):
        match node:
            case Guard(conditions):
                for condition in conditions:
                    if name in symbols(condition.left - condition.right):
                        yield from (_usable(c, name, sizes) for c in normal_form(condition))
            case Read(_, indices):
                for index in indices:
                    if coefficient(index, name) is None:
                        line = _straight(index, name)
                        below = (None,) if line is None else line[1]
                        yield from (c and _usable(c, name, sizes) for c in below)
            case _:
                pass


def _usable(condition: Condition, name: str, sizes: Collection[str]) -> Condition | None:
    """``condition``, if it is about ``name`` and sizes only."""
    slope = coefficient(condition.left, name)
    linear = symbols(condition.left) <= {name, *sizes} and condition.comparison == ">="
    return condition if linear and isinstance(slope, int) and slope != 0 else None


def _straightened(body: Scalar, name: str) -> Scalar:
    """``body`` simplified where all :func:`_conditions` hold."""

    def visit(node: Scalar) -> Scalar:
        match node:
            case Guard(conditions):
                kept = tuple(c for c in conditions if name not in symbols(c.left - c.right))
                return replace(node, conditions=kept) if kept else node.inside
            case Read(_, indices):
                lines = tuple(_line(index, name) for index in indices)
                return node if lines == indices else replace(node, indices=lines)
            case _:
                return node

    return transform(body, visit)


def _line(index: Index, name: str) -> Index:
    straight = _straight(index, name) if coefficient(index, name) is None else None
    return index if straight is None else straight[0]


def _beyond(body: Scalar, bounds: list[Condition]) -> Scalar:
    """``body`` simplified where the only one of ``bounds`` does not hold."""
    if len(bounds) != 1:
        return body

    def visit(node: Scalar) -> Scalar:
        if not isinstance(node, Guard):
            return node
        never = any(bounds[0] in normal_form(c) for c in node.conditions)
        return node.outside if never else node

    return transform(body, visit)


def _straight(index: Index, name: str) -> _Straight | None:
    """``index`` along a run in which it is affine in ``name``, and the run's conditions."""
    if isinstance(index, int) or coefficient(index, name) is not None:
        return index, ()
    total: Index = index.const
    conditions: list[Condition] = []
    for count, factors in index.terms.values():
        lines = [_straight_atom(atom, name) for atom in factors]
        for line in lines:
            if line is None:
                return None
            conditions += line[1]
        total = total + count * product(line[0] for line in lines if line is not None)
    return None if coefficient(total, name) is None else (total, tuple(conditions))


def _straight_atom(atom: Atom, name: str) -> _Straight | None:
    if coefficient(atom, name) is not None:
        return atom, ()
    match atom:
        case FloorMod(dividend, divisor) if name not in symbols(divisor):
            line = _straight(dividend, name)
            if line is None:
                return None
            value, conditions = line
            if isinstance(divisor, int) and isinstance(value, Expr) and 2 * value.const > divisor:
                value = value - divisor  # most of a period is beyond the extent
            whole = (Condition(value, ">=", 0), Condition(divisor - 1 - value, ">=", 0))
            return value, (*conditions, *whole)
        case IndexMin(args):
            return _chosen(args, name, -1)
        case IndexMax(args):
            return _chosen(args, name, 1)
        case _:
            return None


def _chosen(args: tuple[Index, ...], name: str, sign: int) -> _Straight | None:
    """The extremum's argument that advances with ``name``, with the conditions under which it is
    chosen."""
    lines = [_straight(arg, name) for arg in args]
    if any(line is None for line in lines):
        return None
    straight = [line for line in lines if line is not None]
    first = next((line for line in straight if coefficient(line[0], name) == 1), None)
    if first is None:
        return None
    conditions = [c for line in straight for c in line[1]]
    for value, _ in straight:
        if value != first[0]:
            conditions.append(Condition(sign * (first[0] - value), ">=", 0))
    return first[0], tuple(conditions)
