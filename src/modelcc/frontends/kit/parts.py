"""Concatenation and splitting of tensors along an axis.

Part k begins at the sum of the extents before it; if these are symbols, the offsets of n parts
mention n * n / 2 symbols in all.  Many such parts are concatenated in groups, and these in groups:
no sum is then longer than the number of symbols in a group times the size of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from modelcc.frontends.kit.conversion import Conversion
from modelcc.ir.condition import Constraint
from modelcc.ir.index import Index, symbols, total
from modelcc.ops.shape import Concat, Slice

Part = TypeVar("Part")

GROUP = 16
"""Parts per group.  Each level of groups copies all elements once more."""

TERMS = 4096
"""Symbols in the offsets of parts that are concatenated at once, in all."""


def joined(call: Conversion, axis: int, parts: Sequence[str]) -> str:
    """``parts`` concatenated along ``axis``."""
    while len(parts) > GROUP and not _is_short([call.type_of(p).shape[axis] for p in parts]):
        parts = [_concat(call, axis, group) for group in _groups(parts)]
    return _concat(call, axis, parts)


def _concat(call: Conversion, axis: int, parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else call.emit(Concat(axis), *parts)


def taken_apart(call: Conversion, x: str, axis: int, sizes: Sequence[Index]) -> Iterator[str]:
    """``x`` split along ``axis`` into parts of ``sizes``."""
    if len(sizes) > GROUP and not _is_short(sizes):
        groups = _groups(sizes)
        wholes = taken_apart(call, x, axis, [total(group) for group in groups])
        for whole, group in zip(wholes, groups, strict=True):
            yield from taken_apart(call, whole, axis, group)
        return
    extents = call.type_of(x).shape
    for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        yield sliced(call, x, {axis: (start, size, 1)}, extents)


def _groups(parts: Sequence[Part]) -> list[Sequence[Part]]:
    return [parts[i : i + GROUP] for i in range(0, len(parts), GROUP)]


def sliced(
    call: Conversion,
    x: str,
    ranges: Mapping[int, tuple[Index, Index, int]],
    extents: tuple[Index, ...],
) -> str:
    """``x`` with ``axis: (start, extent, step)`` applied; ``x`` itself if that is all of it."""
    starts = tuple(ranges[a][0] if a in ranges else 0 for a in range(len(extents)))
    counts = tuple(ranges[a][1] if a in ranges else extents[a] for a in range(len(extents)))
    steps = tuple(ranges[a][2] if a in ranges else 1 for a in range(len(extents)))
    if counts == extents and all(s == 1 for s in steps):
        return x
    constraints: list[Constraint] = []
    for first, count, extent in zip(starts, counts, extents, strict=True):
        constraints.append((first, ">=", 0))
        constraints.append((count, ">=", 0))
        constraints.append((first + count, "<=", extent))
    if all(s == 1 for s in steps):
        call.emitter.require(constraints, call.source)
    return call.emit(Slice(starts, counts, steps), x)


def _is_short(extents: Sequence[Index]) -> bool:
    """Whether the prefix sums of the extents mention few symbols in all."""
    names: set[str] = set()
    terms = 0
    for extent in extents:
        terms += len(names)
        names |= symbols(extent)
    return terms <= TERMS
