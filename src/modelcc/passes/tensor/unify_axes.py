"""Axes of a stage in terms of other stages', from the elements that both access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from modelcc.ir.index import Index, Sym, substitute, symbols
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Axis, Read, Stage

Place: TypeAlias = tuple[Index, ...]
"""An element of a tensor, by its indices."""


def unify_axes(
    places: Iterable[tuple[Place, Place]], own: Sequence[Axis], common: Sequence[Axis]
) -> dict[str, Index] | None:
    """Values of axes of ``own`` that make the first place of each pair the second, which is over
    ``common`` axes; None if there are none.

    An axis becomes one of the same extent, or 0 if it has one point; no two become the same.
    """
    extents, targets = ({a.name: a.extent for a in axes} for axes in (own, common))
    units = {name: 0 for name, extent in targets.items() if extent == 1}
    values: dict[str, Index] = {}
    for first, second in places:
        for index, target in zip(first, second, strict=True):
            if not symbols(index):
                fits = index == substitute(target, units)
            elif not isinstance(index, Sym) or values.setdefault(index.name, target) != target:
                fits = False
            elif isinstance(target, Sym):
                fits = extents.get(index.name) == targets.get(target.name, 0)
            else:
                fits = target == 0 and extents.get(index.name) == 1
            if not fits:
                return None
    return values if are_distinct(values.values()) else None


def are_distinct(values: Iterable[Index]) -> bool:
    """Whether no symbol is in two of ``values``."""
    names = [name for value in values for name in symbols(value)]
    return len(set(names)) == len(names)


def shared_places(stage: Stage, writers: Mapping[str, Stage]) -> Iterator[tuple[Place, Place]]:
    """Indices where ``stage`` reads outputs of ``writers``, and where these write them."""
    for read in reads(stage.body):
        if read.tensor in writers:
            yield read.indices, writers[read.tensor].write


def reads_own_point(read: Read, reader: Stage, writer: Stage, depth: int | None = None) -> bool:
    """Whether ``read`` is of the element that ``writer`` defines at the reader's point; their first
    ``depth`` axes, or (None) all, are those of a common space."""
    pairs = zip(reader.axes[:depth], writer.axes[:depth], strict=True)
    values = {a.name: 0 if a.extent == 1 else Sym(b.name) for a, b in pairs}
    units = {a.name: 0 for a in writer.axes if a.extent == 1}
    here = tuple(substitute(i, values) for i in read.indices[:depth])
    return here == tuple(substitute(i, units) for i in writer.write[:depth])
