"""Starts of the slices that a gather reads or a scatter writes, with general dimension numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.frontends.kit.parts import joined
from modelcc.frontends.stablehlo.call import HloCall
from modelcc.frontends.stablehlo.structure import converted, reshaped, transposed
from modelcc.ir.index import Index, simplify
from modelcc.ir.types import I64
from modelcc.ops.broadcast import Expand
from modelcc.ops.elementwise import Add
from modelcc.ops.generate import Iota


@dataclass(frozen=True)
class IndexNumbers:
    """Dimension numbers of a gather, or of the inverse of a scatter.

    ``windows`` are axes of the result that belong to a slice (offset_dims), ``hidden`` those of the
    operand without an axis in the result (collapsed), ``batching`` pairs batching axes of the
    operand with those of the indices, and ``mapped`` are the axes of an index's components
    (start_index_map).
    """

    windows: tuple[int, ...]
    collapsed: tuple[int, ...]
    batching: tuple[tuple[int, int], ...]
    mapped: tuple[int, ...]
    vector: int

    @property
    def hidden(self) -> frozenset[int]:
        return frozenset((*self.collapsed, *(axis for axis, _ in self.batching)))


def index_numbers(
    call: HloCall,
    attribute: str,
    windows: str,
    collapsed: str,
    batching: tuple[str, str],
    mapped: str,
) -> IndexNumbers:
    """The dimension numbers in ``attribute``, whose fields have these names."""
    n = call.numbering(attribute)
    pairs = zip(n[batching[0]], n[batching[1]], strict=True)
    return IndexNumbers(
        tuple(n[windows]), tuple(n[collapsed]), tuple(pairs), tuple(n[mapped]),
        int(n["index_vector_dim"]),
    )  # fmt: skip


@dataclass(frozen=True)
class SlicePlaces:
    """Starts of slices: ``indices`` is ``[*batch, components]`` in i64, a component for each of
    ``axes``."""

    indices: str
    batch: tuple[Index, ...]
    axes: tuple[int, ...]

    def wide(self, sizes: Sequence[Index]) -> tuple[int, ...]:
        """The indexed axes along which a slice has more than one element."""
        return tuple(a for a in sorted(self.axes) if sizes[a] != 1)

    def rest(self, rank: int) -> tuple[int, ...]:
        """The axes without an index."""
        return tuple(a for a in range(rank) if a not in self.axes)


def places_of(call: HloCall, numbers: IndexNumbers) -> SlicePlaces:
    """Operand 1; batching axes are among those that are indexed."""
    indices = converted(call, call.input(1), I64)
    if numbers.vector == call.rank(1):
        indices = reshaped(call, indices, (*call.shape(1), 1))
    rank = call.type_of(indices).rank
    order = (*(a for a in range(rank) if a != numbers.vector), numbers.vector)
    indices = transposed(call, indices, order)
    batch = call.type_of(indices).shape[:-1]
    parts = [indices] if numbers.mapped else []
    for _, along in numbers.batching:
        axis = along - (along > numbers.vector)
        parts.append(call.emit(Iota((*batch, 1), axis)))
    axes = (*numbers.mapped, *(axis for axis, _ in numbers.batching))
    return SlicePlaces(joined(call, len(batch), parts) if parts else indices, batch, axes)


def greatest(call: HloCall, axes: Sequence[int], sizes: Sequence[Index]) -> str:
    """The maximum start along each axis with which a slice of operand 0 is in bounds."""
    shape = call.shape()
    return call.note([simplify(shape[a] - sizes[a], call.bounds) for a in axes], I64)


def with_windows(call: HloCall, indices: str, places: SlicePlaces, sizes: Sequence[Index]) -> str:
    """Indices ``[*batch, *wide, components]``: starts plus window offsets."""
    wide = places.wide(sizes)
    if not wide:
        return indices
    count, parts = len(places.batch), len(places.axes)
    ones = (1,) * len(wide)
    extents = tuple(sizes[a] for a in wide)
    apart = reshaped(call, indices, (*places.batch, *ones, parts))
    total = call.emit(Expand((*places.batch, *extents, parts)), apart)
    lead = (1,) * count
    steps: list[str] = []
    for axis in places.axes:
        if axis in wide:
            line = Iota((*lead, *extents, 1), count + wide.index(axis))
            steps.append(call.emit(line))
        else:
            steps.append(call.constant(np.zeros((*lead, *ones, 1), np.int64)))
            if any(not isinstance(e, int) or e != 1 for e in extents):
                steps[-1] = call.emit(Expand((*lead, *extents, 1)), steps[-1])
    return call.emit(Add(), total, joined(call, count + len(wide), steps))
