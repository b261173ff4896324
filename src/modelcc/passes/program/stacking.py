"""Symbolic offsets: who lies on whom in a numeric placement, then sums and maxima of sizes.

A placement found for typical sizes says, of two blocks live at once, which is the lower one.
With that order kept, each block starts where the highest of the blocks under it ends.  This is
right for every size, and for the typical one no higher than the placement it came from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.index import (
    DIM,
    Bounds,
    Index,
    Sym,
    compare,
    index_size,
    maximum,
    substitute,
    symbols,
)
from modelcc.ir.program import Definition

INLINE = 7
"""Offsets of more terms than this are given a name."""


@dataclass(frozen=True)
class Stacking:
    """``order`` goes from the bottom up; ``below[i]`` are the blocks that carry block i."""

    order: tuple[int, ...]
    below: tuple[tuple[int, ...], ...]


def stacking(
    offsets: Sequence[int], sizes: Sequence[int], near: Sequence[Sequence[int]]
) -> Stacking:
    """The vertical order of a placement; an empty block is under what starts where it does.

    What carries a carrying block is left out of ``below``.
    """
    order = sorted(range(len(offsets)), key=lambda i: (offsets[i], sizes[i], i))
    rank = {block: position for position, block in enumerate(order)}
    below: list[tuple[int, ...]] = [()] * len(offsets)
    carried: list[set[int]] = [set() for _ in offsets]
    for i in order:
        direct: list[int] = []
        for j in sorted((j for j in near[i] if rank[j] < rank[i]), key=lambda j: -rank[j]):
            if j not in carried[i]:
                direct.append(j)
                carried[i] |= {j, *carried[j]}
        below[i] = tuple(direct)
    return Stacking(tuple(order), tuple(below))


def stacked_offsets(stack: Stacking, sizes: Sequence[int]) -> tuple[int, ...]:
    """Offsets for blocks of ``sizes``."""
    offsets = [0] * len(sizes)
    for i in stack.order:
        offsets[i] = max((offsets[j] + sizes[j] for j in stack.below[i]), default=0)
    return tuple(offsets)


@dataclass(frozen=True)
class SymbolicOffsets:
    """Offset of each block and height of all, in terms of dimensions and ``definitions``."""

    offsets: tuple[Index, ...]
    height: Index
    definitions: tuple[Definition, ...]


def symbolic_offsets(
    stack: Stacking, sizes: Sequence[Index], dims: Bounds, taken: Collection[str]
) -> SymbolicOffsets:
    """As :func:`stacked_offsets`, for symbolic sizes; ``taken`` are names not to define."""
    known = {name: dims.get(name, DIM) for size in sizes for name in symbols(size)}
    namer = _Namer(frozenset((*taken, *known)))
    offsets: list[Index] = [0] * len(sizes)
    for i in stack.order:
        offsets[i] = namer.named(_highest([offsets[j] + sizes[j] for j in stack.below[i]], known))
    carrying = {j for ids in stack.below for j in ids}
    tops = [offsets[i] + sizes[i] for i in stack.order if i not in carrying]
    total = namer.named(_highest(tops, known))
    return SymbolicOffsets(tuple(offsets), total, tuple(namer.definitions))


class _Namer:
    """Gives names to long expressions, one name per expression."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = taken
        self._names: dict[Index, Index] = {}
        self.definitions: list[Definition] = []

    def named(self, value: Index) -> Index:
        if index_size(value) <= INLINE:
            return value
        if value not in self._names:
            symbol = f"at{len(self.definitions)}"
            while symbol in self._taken:
                symbol += "_"
            self.definitions.append(Definition(symbol, value))
            self._names[value] = Sym(symbol)
        return self._names[value]


def _highest(ends: Sequence[Index], dims: Bounds) -> Index:
    """The maximum, without ends that are provably never the highest."""
    kept: list[Index] = []
    for end in dict.fromkeys(ends):
        if any(compare(end, "<=", other, dims) for other in kept):
            continue
        kept = [other for other in kept if not compare(other, "<=", end, dims)]
        kept.append(end)
    return maximum(*kept) if kept else 0


def definition_values(
    definitions: Sequence[Definition], values: Mapping[str, int]
) -> dict[str, int]:
    """``values`` and the value of every definition."""
    known = dict(values)
    for definition in definitions:
        value = substitute(definition.value, known)
        if not isinstance(value, int):
            raise KeyError(f"{definition.symbol} = {value} needs values of more dimensions")
        known[definition.symbol] = value
    return known
