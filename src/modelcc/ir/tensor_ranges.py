"""Provable range errors of reads and writes.

An affine index reaches its extremes where every axis is at its first or last position (a corner
of the iteration space), so an index that leaves the tensor at a corner which all guards admit is
certainly invalid.  Indices that are not affine are compared under the axes' bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from modelcc.ir.index import (
    Bounds,
    Index,
    Sym,
    compare,
    loop_range,
    product,
    split_affine,
    substitute,
    symbols,
    total,
)
from modelcc.ir.index_uses import Use
from modelcc.ir.tensor import Condition, Read, Stage
from modelcc.ir.types import TensorType


def misread(
    stage: Stage, found: Sequence[Use], types: Mapping[str, TensorType], dims: Bounds
) -> Iterator[str]:
    """Reads of ``stage`` that provably leave their tensor and its border."""
    space = _Space.of(stage, dims, with_reduction=True)
    for use in found:
        if use.tensor is None or not space.populated:
            continue
        type = types[use.tensor]
        for d, (index, extent) in enumerate(zip(use.indices, type.shape, strict=True)):
            before, after = type.physical.halo[d]
            reached = space.outside(index, -before, extent + after, use)
            if reached is not None:
                yield f"{use.text} is out of range: {_reach(index, reached, d, extent)}"


def unproved(
    stage: Stage, found: Sequence[Use], types: Mapping[str, TensorType], dims: Bounds
) -> Iterator[Condition]:
    """Conditions, not implied by ``dims``, under which reads of ``stage`` stay in their tensor.

    Covers indices that are affine, or affine but for guards; those from memory have bounds.
    """
    space = _Space.of(stage, dims, with_reduction=True)
    for use in found:
        shape = () if use.tensor is None else types[use.tensor].shape
        for index, extent in zip(use.indices, shape, strict=False):
            if symbols(index).isdisjoint(use.gathered):
                yield from space.open_ends(index, extent, use.conditions)


def miswritten(stage: Stage, type: TensorType, dims: Bounds) -> Iterator[str]:
    """Provable errors of the writes of ``stage``: out of range, or twice to the same element."""
    space = _Space.of(stage, dims, with_reduction=False)
    if not space.populated:
        return
    for d, (index, extent) in enumerate(zip(stage.write, type.shape, strict=True)):
        reached = space.outside(index, 0, extent, Use(None, ()))
        if reached is not None:
            yield f"writes out of range: {_reach(index, reached, d, extent)}"
    used = frozenset[str]().union(*map(symbols, stage.write))
    for axis in stage.axes:
        if axis.name not in used and compare(axis.extent, ">", 1, dims):
            where = ", ".join(map(str, stage.write))
            yield f"writes [{where}] once for each of the {axis.extent} values of {axis.name}"


def _reach(index: Index, reached: Index, dimension: int, extent: Index) -> str:
    value = f"{index} reaches {reached}" if index != reached else f"index {index}"
    return f"{value} in dimension {dimension} of extent {extent}"


def implied_by_range(
    conditions: Sequence[Condition], read: Read, shape: Sequence[Index], bounds: Bounds
) -> bool:
    """Whether all ``conditions`` hold wherever ``read`` is in range of its tensor.

    Then it is out of range where one of them fails, and a border can replace the guard.
    """
    slacks = [s for i, e in zip(read.indices, shape, strict=True) for s in (i, e - 1 - i)]
    return all(
        any(compare(margin - slack, ">=", 0, bounds) for slack in (*slacks, 0))
        for condition in conditions
        for margin in _margins(condition)
    )


def not_implied_by_border(
    conditions: Sequence[Condition], read: Read, type: TensorType, bounds: Bounds
) -> tuple[Condition, ...]:
    """Those of ``conditions`` that the border of ``type`` cannot replace.

    The others hold wherever ``read`` is in range along the dimensions that it leaves only into
    the border; along the other dimensions, the remaining conditions keep it in range.
    """
    sides = list(zip(read.indices, type.shape, type.physical.halo, strict=True))
    within = [_stays(index, extent, halo, bounds) for index, extent, halo in sides]
    covered = [side[:2] for side, inside in zip(sides, within, strict=True) if inside]
    inner = replace(read, indices=tuple(i for i, _ in covered))
    shape = [extent for _, extent in covered]
    left = tuple(c for c in conditions if not implied_by_range((c,), inner, shape, bounds))
    margins = [m for c in left for m in _margins(c)]
    slacks = [s for (i, e, _), inside in zip(sides, within, strict=True) if not inside
              for s in (i, e - 1 - i)]  # fmt: skip
    kept = all(any(compare(s - m, ">=", 0, bounds) for m in (*margins, 0)) for s in slacks)
    return left if kept else tuple(conditions)


def _stays(index: Index, extent: Index, halo: tuple[int, int], bounds: Bounds) -> bool:
    """Whether ``index`` is provably in range or in a border of ``halo`` elements."""
    before, after = halo
    return bool(
        compare(index, ">=", -before, bounds) and compare(index, "<", extent + after, bounds)
    )


def _margins(condition: Condition) -> tuple[Index, ...]:
    """Expressions that are all non-negative exactly if the condition holds."""
    above = condition.right - condition.left
    match condition.comparison:
        case "<=":
            return (above,)
        case "<":
            return (above - 1,)
        case ">=":
            return (-1 * above,)
        case ">":
            return (-1 * above - 1,)
        case "==":
            return (above, -1 * above)
        case "!=":
            return (-1,)  # not expressible by a single margin


def written_twice(
    stages: Sequence[Stage], type: TensorType, dims: Bounds, whole: bool = True
) -> str | None:
    """The fault if the parts that ``stages`` write provably overlap or (``whole``) leave a gap."""
    boxes = [box for stage in stages if (box := _box(stage)) is not None]
    if not _in_a_row(boxes) and any(_meet(one, other, dims) for one, other in _pairs(boxes)):
        return f"two stages write the same elements of %{stages[0].output}"
    written = total([product(axis.extent for axis in stage.axes) for stage in stages])
    if whole and compare(written, "==", type.elements, dims) is False:
        return f"%{stages[0].output} has {type.elements} elements, of which {written} are written"
    return None


Box = tuple[tuple[Index, Index], ...]
"""First and past-the-last index, by dimension."""

COMPARED = 64
"""Preceding boxes with symbolic sides that each is compared with."""


def _in_a_row(boxes: Sequence[Box]) -> bool:
    """Whether along some dimension each box begins where the previous one ends."""
    along = list(zip(*boxes, strict=True))
    return any(all(a[1] == b[0] for a, b in pairwise(sides)) for sides in along)


def _pairs(boxes: Sequence[Box]) -> Iterator[tuple[Box, Box]]:
    """Pairs of boxes that may intersect; of very many with symbolic sides only close ones."""
    spans = [_Spans(box) for box in boxes if _is_static(box)]
    if len(spans) < len(boxes):
        for n, one in enumerate(boxes):
            yield from ((one, other) for other in boxes[max(0, n - COMPARED) : n])
        return
    # A sweep along the dimension with the most distinct starts.
    starts = [len({a for a, _ in sides}) for sides in zip(*boxes, strict=True)]
    along = max(range(len(starts)), key=starts.__getitem__, default=None)
    live: list[_Spans] = []
    for box in sorted(spans, key=lambda box: box.start(along)):
        live = [other for other in live if other.past(along) > box.start(along)]
        yield from ((box.box, other.box) for other in live)
        live.append(box)


def _is_static(box: Box) -> bool:
    return all(isinstance(a, int) and isinstance(b, int) for a, b in box)


@dataclass(frozen=True)
class _Spans:
    """A box with constant sides."""

    box: Box

    def start(self, along: int | None) -> int:
        """Its start along a dimension; scalars have none."""
        side = 0 if along is None else self.box[along][0]
        assert isinstance(side, int)
        return side

    def past(self, along: int | None) -> int:
        """Its end."""
        side = 1 if along is None else self.box[along][1]
        assert isinstance(side, int)
        return side


def _box(stage: Stage) -> Box | None:
    """The elements that ``stage`` writes if they are a contiguous box."""
    extents = {axis.name: axis.extent for axis in stage.axes}
    names = tuple(extents)
    sides: list[tuple[Index, Index]] = []
    for index in stage.write:
        if isinstance(index, Sym) and index.name in extents:
            sides.append((0, extents.pop(index.name)))
            continue
        split = split_affine(index, names)
        if split is None:
            return None
        moving = [name for name, coefficient in split[0].items() if coefficient != 0]
        if len(moving) > 1 or any(split[0][name] != 1 for name in moving):
            return None
        length = extents.pop(moving[0], None) if moving else 1
        if length is None:
            return None
        sides.append((split[1], split[1] + length))
    return tuple(sides)


def _meet(one: Box, other: Box, dims: Bounds) -> bool:
    """Whether two boxes provably share an element; empty ones share none."""
    return all(
        compare(low, "<", past, dims) and compare(a, "<", b, dims)
        for (a, b), (c, d) in zip(one, other, strict=True)
        for low, past in ((a, d), (c, b))
    )


class _Space:
    """The iteration space of a stage."""

    def __init__(self, extents: Mapping[str, Index], dims: Bounds) -> None:
        self._extents = extents
        self._dims = dims
        self.populated = all(compare(e, ">=", 1, dims) for e in extents.values())

    @cached_property
    def _bounds(self) -> Bounds:
        return {**self._dims, **{name: loop_range(e) for name, e in self._extents.items()}}

    @staticmethod
    def of(stage: Stage, dims: Bounds, with_reduction: bool) -> _Space:
        axes = (*stage.axes, *(stage.reduce if with_reduction else ()))
        return _Space({axis.name: axis.extent for axis in axes}, dims)

    def outside(self, index: Index, low: Index, past: Index, use: Use) -> Index | None:
        """A value of ``index`` that is provably attained and not in ``low <= index < past``."""
        if not symbols(index).isdisjoint(use.gathered):
            return None
        if self._surely_within(index, low, past):
            return None
        split = split_affine(index, tuple(self._extents))
        if split is None:
            return self._always_outside(index, low, past, use)
        for least in (True, False):
            corner = self._corner(split[0], least)
            reached = substitute(index, corner) if corner is not None else None
            if reached is None or corner is None:
                continue
            beyond = compare(reached, "<", low, self._dims) or compare(
                reached, ">=", past, self._dims
            )
            if beyond and self._admitted(use.conditions, corner):
                return reached
        return None

    def open_ends(
        self, index: Index, extent: Index, conditions: Sequence[Condition]
    ) -> Iterator[Condition]:
        """Unproved conditions on sizes under which ``0 <= index < extent`` at all points."""
        if self._surely_within(index, 0, extent):
            return
        margins = [m for c in conditions for m in _margins(c)]
        guarded = any(not symbols(m).isdisjoint(symbols(index) & self._extents.keys())
                      for m in margins)  # fmt: skip
        for slack, whole in ((index, 0), (extent - 1 - index, extent)):
            rests = [slack - m for m in margins]
            if any(compare(rest, ">=", 0, self._bounds) for rest in (slack, *rests)):
                continue
            told = [rest for rest in rests if symbols(rest).isdisjoint(self._extents)]
            least = next(iter(told), None) if guarded else self._least(slack)
            if least is not None and not compare(least, ">=", 0, self._dims):
                yield Condition(whole, ">=", whole - least)

    def _least(self, index: Index) -> Index | None:
        """The least value of an affine ``index``; undefined where a point is."""
        split = split_affine(index, tuple(self._extents))
        corner = None if split is None else self._corner(split[0], True)
        if corner is None:
            return None
        still = [e for name, e in self._extents.items() if name not in corner]
        return substitute(index, corner) * (1 if corner else product(still))

    def _surely_within(self, index: Index, low: Index, past: Index) -> bool:
        """Whether constants alone imply that ``low <= index < past``, as they mostly do."""
        if not (isinstance(low, int) and isinstance(past, int)):
            return False
        if isinstance(index, int):
            return low <= index < past
        least = greatest = index.const
        for coefficient, factors in index.terms.values():
            factor = factors[0]
            extent = self._extents.get(factor.name) if isinstance(factor, Sym) else None
            if len(factors) > 1 or not isinstance(extent, int):
                return False
            if coefficient > 0:
                greatest += coefficient * (extent - 1)
            else:
                least += coefficient * (extent - 1)
        return low <= least and greatest < past

    def _corner(self, coefficients: Mapping[str, Index], least: bool) -> dict[str, Index] | None:
        """Positions at which the index is least (greatest); None if a sign is unknown."""
        corner: dict[str, Index] = {}
        for name, coefficient in coefficients.items():
            if coefficient == 0:
                continue
            rising = compare(coefficient, ">=", 0, self._dims)
            if rising is None:
                return None
            corner[name] = 0 if rising == least else self._extents[name] - 1
        return corner

    def _admitted(self, conditions: Sequence[Condition], corner: Mapping[str, Index]) -> bool:
        return all(
            compare(
                substitute(c.left, corner), c.comparison, substitute(c.right, corner), self._bounds
            )
            for c in conditions
        )

    def _always_outside(self, index: Index, low: Index, past: Index, use: Use) -> Index | None:
        below = compare(index, "<", low, self._bounds)
        above = compare(index, ">=", past, self._bounds)
        return index if (below or above) and not use.conditions else None
