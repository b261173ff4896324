"""Packing constants: the layout in which a tiled nest streams an operand front to back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from modelcc.ir.index import Index, coefficient, substitute, symbols
from modelcc.ir.tensor import Read
from modelcc.ir.types import Layout, Part
from modelcc.schedule.nest import LoopVar


def packed_layout(
    read: Read,
    order: Sequence[LoopVar],
    vector: str,
    inner: Sequence[LoopVar],
    tile: int,
    shape: Sequence[Index],
    bound: Collection[str] = (),
) -> Layout | None:
    """Physical order of ``read``'s tensor of ``shape`` following the loops ``order`` (outermost
    first).

    The ``vector`` loop is tiled by ``tile`` blocks, unless it is within others that this does not
    divide; the inner part is innermost, before ``inner``: the lanes, then the bytes of a dot
    product.  A constant last digit goes first: one plane per phase of a transposed convolution.  So
    do indices invariant in all loops, such as an iteration's number, but not those ``bound`` to
    values from memory.  None if an index is not a mixed-radix number of the loop variables.
    """
    digits: list[tuple[LoopVar, int, int, int | None]] = []
    parts: list[Part] = []
    moved = {*bound, *(v.name for v in (*order, *inner))}
    for dim, index in enumerate(read.indices):
        if symbols(index).isdisjoint(moved):
            parts.append(Part(dim))
            continue
        split = _digits(index, (*order, *inner))
        if split is None:
            return None
        moving, fixed = split
        digits += [(v, dim, div, mod) for v, div, mod in moving]
        if fixed > 1:
            parts.append(Part(dim, 1, fixed))
    seen = {v.name for v, *_ in digits}
    if len(seen) != len(digits) or inner[0].name not in seen:
        return None
    panel: list[Part] = []
    by_name = {v.name: (dim, div, mod) for v, dim, div, mod in digits}
    for v in order:
        if v.name not in by_name:
            continue
        dim, div, mod = by_name[v.name]
        # Tiles that do not divide the blocks of others would restart in each of these.
        nested = mod is None or mod % tile == 0
        mod = _padded(v, div, shape[dim]) if mod is None else mod
        if v.name == vector and tile > 1 and nested:
            if mod != tile:
                parts.append(Part(dim, div * tile, -(-mod // tile) if mod is not None else None))
            panel.append(Part(dim, div, tile))
        else:
            parts.append(Part(dim, div, mod))
    parts += panel
    for v in (v for v in inner if v.name in by_name):
        dim, div, _ = by_name[v.name]
        parts.append(Part(dim, div, v.extent if isinstance(v.extent, int) else None))
    return Layout(tuple(parts), ((0, 0),) * len(read.indices))


def _padded(v: LoopVar, div: int, extent: Index) -> int | None:
    """Number of values of a leading digit whose loop exceeds the tensor, as loops over the lanes of
    a padded block do; else None."""
    if not isinstance(v.extent, int) or not isinstance(extent, int):
        return None
    return v.extent if v.extent > -(-extent // div) else None


def _digits(
    index: Index, variables: Sequence[LoopVar]
) -> tuple[list[tuple[LoopVar, int, int | None]], int] | None:
    """``index`` as digits (variable, divisor, modulus or None for the leading one), and the modulus
    of a constant last digit (1 without)."""
    involved: list[tuple[int, LoopVar]] = []
    rest = index
    for v in variables:
        slope = coefficient(index, v.name)
        if not isinstance(slope, int):
            return None
        if slope:
            involved.append((slope, v))
            rest = substitute(rest, {v.name: 0})
    involved.sort(key=lambda d: d[0])
    fixed = involved[0][0] if involved else 1
    if not isinstance(rest, int) or (involved and not 0 <= rest < fixed):
        return None
    result: list[tuple[LoopVar, int, int | None]] = []
    expected = fixed
    for position, (slope, v) in enumerate(involved):
        leading = position == len(involved) - 1
        if slope != expected or not (leading or isinstance(v.extent, int)):
            return None
        result.append((v, slope, None if leading else int(v.extent)))  # type: ignore[arg-type]
        expected = slope * v.extent if isinstance(v.extent, int) else expected
    return result, fixed
