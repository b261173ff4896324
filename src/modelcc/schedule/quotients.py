"""Axes that reads divide (nearest neighbours, pixel shuffles), split where the quotient changes."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from modelcc.ir.index import (
    Bounds,
    Index,
    Sym,
    coefficient,
    divisions,
    floordiv,
    loop_range,
    simplify,
    substitute,
    symbols,
)
from modelcc.ir.index_expr import Division
from modelcc.ir.scalar_tree import reads, walk
from modelcc.ir.tensor import Axis, Bind, Stage


def quotient_blocks(stage: Stage, dims: Bounds, beside: Index | None = None) -> dict[str, int]:
    """Parallel axis → block within which all reads of ``stage`` are affine, if they divide it.

    With ``a = 2*o + v`` and ``v < 2``, ``x[a floordiv 2]`` reads ``x[o]`` and ``x[a mod 2]`` reads
    ``x[v]``.  Blocks divide the axis; odd ones, which no vectors fit, are left out.  So is the
    contiguous axis ``beside`` if vector loads can repeat its elements.
    """
    ranges = {**dims, **{a.name: loop_range(a.extent) for a in stage.axes}}
    indices = [i for read in reads(stage.body) for i in read.indices]
    quotients = [d for index in indices for d in divisions(index)]
    blocks: dict[str, int] = {}
    for axis in stage.axes:
        steps = {s for d in quotients if (s := _step(d, axis)) is not None}
        if beside == Sym(axis.name) and _repeat_elements(stage, indices, axis):
            continue
        if len(steps) == 1 and _is_affine_within(indices, axis, min(steps), ranges):
            blocks[axis.name] = min(steps)
    return blocks


def _repeat_elements(stage: Stage, indices: Sequence[Index], axis: Axis) -> bool:
    """Whether elements read along ``axis`` are contiguous, or each is read 2, 4, 8 … times, at
    indices that do not come from memory."""
    if any(isinstance(s, Bind) for s in walk(stage.body)):
        return False

    def is_plain(index: Index) -> bool:
        if coefficient(index, axis.name) in (0, 1):
            return True
        divisors = {d.divisor for d in divisions(index) if isinstance(d.divisor, int)}
        halves = (d for d in divisors if d & (d - 1) == 0)
        return any(index == floordiv(Sym(axis.name), d) for d in halves)

    return all(is_plain(i) for i in indices)


def _is_affine_within(indices: Sequence[Index], axis: Axis, block: int, ranges: Bounds) -> bool:
    outer, inner = f"{axis.name}o", f"{axis.name}v"
    ranges = {**ranges, outer: loop_range(axis.extent // block), inner: loop_range(block)}
    value = {axis.name: Sym(outer) * block + Sym(inner)}
    cut = (simplify(substitute(i, value), ranges) for i in indices if axis.name in symbols(i))
    return all(coefficient(i, inner) is not None for i in cut)


def _step(division: Division, axis: Axis) -> int | None:
    """Smallest step of ``axis`` that changes the quotient by an integer, if even and a divisor of
    the extent; else None."""
    slope, divisor = coefficient(division.dividend, axis.name), division.divisor
    if not isinstance(slope, int) or not isinstance(divisor, int) or slope == 0:
        return None
    step = divisor // gcd(slope, divisor)
    inside = isinstance(axis.extent, int) and axis.extent % step == 0 and axis.extent > step
    return step if inside and step % 2 == 0 else None
