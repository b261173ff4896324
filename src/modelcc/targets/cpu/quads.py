"""Byte contractions: four neighbouring steps of the reduction become one dot product.

``sum[k] cast(i32, a[…, k]) * cast(i32, w[…, k])`` of u8 values that are the same for all lanes and
i8 values that move with them is what the processors' dot products of bytes compute, if ``k`` is
contiguous in both: the innermost reduction loop is cut into *quads* of four elements.
"""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.index import Sym, coefficient, loop_range
from modelcc.ir.scalar_tree import depends_on, substitute_indices
from modelcc.ir.tensor import Apply, Cast, Read, Scalar
from modelcc.ir.types import I8, I32, U8
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.structure import Group, neutral_guards

QUAD = 4


def find_quads(
    group: Group, lane: LoopVar, constants: frozenset[str]
) -> tuple[Group, LoopVar] | None:
    """The group with its reduction cut into quads, and the loop over one; None if it is no
    contraction of bytes.  ``constants`` are still to be packed, so any order will do for them, if
    they can be: :func:`side_by_side` tells afterwards.
    """
    anchor = group.anchor
    operands = byte_operands(anchor) if anchor is not None else None
    if anchor is None or operands is None:
        return None
    repeated, vectors = operands
    if depends_on(repeated, lane.name) or not depends_on(vectors, lane.name):
        return None
    for loop in reversed(anchor.reduce):
        whole = isinstance(loop.extent, int) and loop.extent % QUAD == 0
        beside = vectors.tensor in constants or _interleaved(vectors, loop, lane)
        if whole and loop.multiplier == 1 and _contiguous(repeated, loop) and beside:
            return _cut(group, anchor, loop)
    return None


def side_by_side(group: Group, quad: LoopVar, lane: LoopVar) -> bool:
    """Whether the vectors of a group that is cut into quads have them along the lanes."""
    operands = byte_operands(group.anchor) if group.anchor is not None else None
    return operands is not None and _interleaved(operands[1], quad, lane)


def byte_operands(nest: Nest) -> tuple[Read, Read] | None:
    """The u8 and the i8 read of a sum of their products in i32."""
    if nest.combine != "sum" or not nest.reduce or nest.body.dtype != I32:
        return None
    _, body = neutral_guards(nest.body, "sum", I32)
    return byte_product(body)


def byte_product(body: Scalar) -> tuple[Read, Read] | None:
    """The u8 and the i8 factor of a product in i32."""
    match body:
        case Apply(function="mul", args=(Cast(value=Read() as a), Cast(value=Read() as b))):
            if (a.dtype, b.dtype) == (U8, I8):
                return a, b
            return (b, a) if (b.dtype, a.dtype) == (U8, I8) else None
        case _:
            return None


def _contiguous(read: Read, loop: LoopVar) -> bool:
    return len(read.indices) == 1 and coefficient(read.indices[0], loop.name) == 1


def _interleaved(read: Read, loop: LoopVar, lane: LoopVar) -> bool:
    """Whether quads lie side by side along the lanes."""
    return (
        len(read.indices) == 1
        and loop.extent == QUAD
        and coefficient(read.indices[0], loop.name) == 1
        and coefficient(read.indices[0], lane.name) == QUAD
    )


def _cut(group: Group, anchor: Nest, loop: LoopVar) -> tuple[Group, LoopVar]:
    quads = LoopVar(loop.name, _quarter(loop), loop.axis, QUAD)
    quad = LoopVar(f"{loop.name}q", QUAD, loop.axis)
    value = {loop.name: Sym(quads.name) * QUAD + Sym(quad.name)}
    ranges = {**anchor.ranges, **{v.name: loop_range(v.extent) for v in (quads, quad)}}
    cut = replace(
        anchor,
        reduce=tuple(quads if v == loop else v for v in anchor.reduce),
        body=substitute_indices(anchor.body, value),
        ranges=ranges,
    )
    return replace(group, nests=(cut, *group.nests[1:])), quad


def _quarter(loop: LoopVar) -> int:
    assert isinstance(loop.extent, int)
    return loop.extent // QUAD
