"""Causal masks, where query i sees keys up to i + offset: constant or computed from positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Node
from modelcc.ir.index import Index, compare
from modelcc.ir.rewriting import Rewriter
from modelcc.ir.types import BOOL, Array
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.comparison import Greater, GreaterOrEqual, Less, LessOrEqual, Where
from modelcc.ops.elementwise import Add, And, Cast, Not, Sub
from modelcc.ops.generate import Full, Indices, Iota
from modelcc.ops.shape import Trilu
from modelcc.passes.graph.products import scalar, swapped

SWALLOWS_SCORES = -1e30
"""Below this, replacing a score and adding to it give the same f32."""


def causal_offset(
    at: Rewriter, mask: str, queries: Index, keys: Index, least: float = SWALLOWS_SCORES
) -> Index | None:
    """The offset of an additive mask with a row for each query and a column for each key, which
    hides keys by ``least`` or lower numbers; None if it has another form.

    Every query sees a key.
    """
    if at.type_of(mask).shape[-2:] != (queries, keys):
        return None
    data = at.constant_value(mask)
    if data is not None:
        offset: Index | None = _offset_of_data(data, least)
    else:
        offset = _offset_of_addend(at, mask, least)
    return offset if offset is not None and compare(offset, ">=", 0, at.bounds) else None


def _offset_of_data(mask: Array, least: float) -> int | None:
    seen = mask == 0
    if not (mask[~seen].astype(np.float64) <= least).all():
        return None
    found = _triangle_of_data(seen)
    return found[0] if found is not None and found[1] else None


def _triangle_of_data(data: Array) -> tuple[int, bool] | None:
    """Offset and ``inside`` of a :class:`Triangle`."""
    if data.ndim < 2 or not data.size:
        return None
    table = data.reshape(-1, *data.shape[-2:])
    inside = bool(table[0, 0, 0])
    offset = int((table[0, 0] == inside).sum()) - 1
    rows, columns = np.ogrid[: data.shape[-2], : data.shape[-1]]
    fits = (table == inside) == (columns <= rows + offset)
    return (offset, inside) if fits.all() else None


def _offset_of_addend(at: Rewriter, name: str, least: float) -> Index | None:
    """The offset of a mask that is 0 for visible keys and low for others."""
    node = at.producer(name)
    if node is None:
        return None
    match node.op:
        case Where():
            return _offset_of_choice(at, node, least)
        case Trilu(upper=True, k=k):
            low = number_everywhere(at, node.inputs[0])
            return k - 1 if low is not None and low <= least else None
        case Add():
            pairs = swapped(node)
            inner = next((x for x, zero in pairs if number_everywhere(at, zero) == 0), None)
            fits = inner is not None and same_matrix(at, node, inner)
            return _offset_of_addend(at, inner, least) if inner and fits else None
        case Cast() | Reshape() | Expand() if same_matrix(at, node, node.inputs[0]):
            return _offset_of_addend(at, node.inputs[0], least)
        case _:
            return None


def _offset_of_choice(at: Rewriter, node: Node, least: float) -> Index | None:
    condition, yes, no = node.inputs
    found = triangle_of(at, condition)
    if found is None or not same_matrix(at, node, condition):
        return None
    seen, hidden = (yes, no) if found.inside else (no, yes)
    low = number_everywhere(at, hidden)
    fits = number_everywhere(at, seen) == 0 and low is not None and low <= least
    return found.offset if fits else None


def same_matrix(at: Rewriter, node: Node, operand: str) -> bool:
    """Whether the result has the operand's last two axes."""
    return at.type_of(node.outputs[0]).shape[-2:] == at.type_of(operand).shape[-2:]


def number_everywhere(at: Rewriter, name: str) -> float | None:
    """The value of all elements, if known to be the same."""
    node = at.producer(name)
    if node is None:
        return scalar(at, name)
    match node.op:
        case Full(value=value):
            return float(value)
        case Expand() | Reshape() | Cast() if at.type_of(name).dtype != BOOL:
            return number_everywhere(at, node.inputs[0])
        case _:
            return None


@dataclass(frozen=True)
class Triangle:
    """A mask that is true where ``(column <= row + offset) == inside``, of the last two axes."""

    offset: Index
    inside: bool


def triangle_of(at: Rewriter, name: str) -> Triangle | None:
    """The triangle of a condition, if it has that form."""
    node, data = at.producer(name), at.constant_value(name)
    if data is not None:
        known = _triangle_of_data(data)
        return None if known is None else Triangle(*known)
    if node is None:
        return None
    match node.op:
        case LessOrEqual() | Less():
            low, high = node.inputs
            return _ordered(at, node, low, high, isinstance(node.op, Less))
        case GreaterOrEqual() | Greater():
            high, low = node.inputs
            return _ordered(at, node, low, high, isinstance(node.op, Greater))
        case Not():
            found = triangle_of(at, node.inputs[0])
            return None if found is None else replace(found, inside=not found.inside)
        case And():
            return next((t for x, y in swapped(node) if (t := _and(at, node, x, y))), None)
        case Trilu(upper=upper, k=k) if _is_true(at, node.inputs[0]):
            return Triangle(k - 1, False) if upper else Triangle(k, True)
        case Reshape() | Expand() if same_matrix(at, node, node.inputs[0]):
            return triangle_of(at, node.inputs[0])
        case _:
            return None


def _and(at: Rewriter, node: Node, name: str, other: str) -> Triangle | None:
    fits = _is_true(at, other) and same_matrix(at, node, name)
    return triangle_of(at, name) if fits else None


def _is_true(at: Rewriter, name: str) -> bool:
    """Whether all elements of a condition are true."""
    node, data = at.producer(name), at.constant_value(name)
    if data is not None:
        return bool(data.all())
    match node.op if node is not None else None:
        case Full(value=value):
            return bool(value)
        case _:
            return False


def _ordered(at: Rewriter, node: Node, low: str, high: str, strictly: bool) -> Triangle | None:
    """``low <= high`` or ``low < high`` of positions: ``±(column - row) + start <= 0``."""
    less, more = _position(at, low), _position(at, high)
    if less is None or more is None or at.type_of(node.outputs[0]).rank < 2:
        return None
    if not (_keeps(at, node, low, less) and _keeps(at, node, high, more)):
        return None
    apart = less.plus(more, -1)
    start = apart.start + strictly
    if apart.steps == {1: 1, 2: -1}:
        return Triangle(-1 * start, True)
    return Triangle(start - 1, False) if apart.steps == {1: -1, 2: 1} else None


@dataclass(frozen=True)
class Position:
    """An integer that is ``start`` plus ``steps`` times indices; axes are counted from the last,
    which is 1."""

    start: Index
    steps: Mapping[int, int]

    def plus(self, other: Position, sign: int) -> Position:
        """This plus ``sign`` times the other one."""
        axes = {*self.steps, *other.steps}
        sums = {a: self.steps.get(a, 0) + sign * other.steps.get(a, 0) for a in axes}
        steps = {axis: step for axis, step in sums.items() if step}
        return Position(self.start + sign * other.start, steps)


def _position(at: Rewriter, name: str) -> Position | None:
    dtype, node = at.type_of(name).dtype, at.producer(name)
    if dtype.is_float or dtype == BOOL:
        return None
    if node is None:
        number = scalar(at, name)
        return None if number is None else Position(int(number), {})
    match node.op:
        case Iota(shape, axis, start, int(step)) if not isinstance(start, float):
            return Position(start, {len(shape) - axis: step} if shape[axis] != 1 else {})
        case Indices(values=(number,)):
            return Position(number, {})
        case Add() | Sub():
            one, other = (_kept_position(at, node, x) for x in node.inputs)
            sign = 1 if isinstance(node.op, Add) else -1
            return None if one is None or other is None else one.plus(other, sign)
        case Cast() | Expand():
            return _kept_position(at, node, node.inputs[0])
        case Reshape():
            return _moved_position(at, node)
        case _:
            return None


def _kept_position(at: Rewriter, node: Node, operand: str) -> Position | None:
    found = _position(at, operand)
    return found if found is not None and _keeps(at, node, operand, found) else None


def _keeps(at: Rewriter, node: Node, operand: str, found: Position) -> bool:
    """Whether the result has the axes along which the operand varies."""
    before, after = at.type_of(operand).shape, at.type_of(node.outputs[0]).shape
    return all(before[-axis] == after[-axis] for axis in found.steps)


def _moved_position(at: Rewriter, node: Node) -> Position | None:
    """The position after axes of extent 1 are added or removed."""
    found = _position(at, node.inputs[0])
    before, after = (_wide_axes(at, name) for name in (node.inputs[0], node.outputs[0]))
    if found is None or [n for _, n in before] != [n for _, n in after]:
        return None
    moved = {old: new for (old, _), (new, _) in zip(before, after, strict=True)}
    return Position(found.start, {moved[axis]: step for axis, step in found.steps.items()})


def _wide_axes(at: Rewriter, name: str) -> list[tuple[int, Index]]:
    """Axes, counted from the last, and extents, of those that are not 1."""
    shape = at.type_of(name).shape
    return [(len(shape) - axis, extent) for axis, extent in enumerate(shape) if extent != 1]
