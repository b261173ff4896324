"""Contractions of narrow numbers: neighbouring reduction steps become one dot product.

``sum[k] cast(i32, a[…, k]) * cast(i32, w[…, k])`` of u8 values uniform over the lanes and i8 values
that vary with them maps to the processors' dot products of bytes, if ``k`` is contiguous in both:
the innermost reduction loop is split by four.  Dot products of bf16, added in f32, take two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.index import Sym, coefficient, loop_range
from modelcc.ir.instructions import DOT2, DOT4
from modelcc.ir.loop import Instruction
from modelcc.ir.scalar_tree import depends_on, substitute_indices
from modelcc.ir.tensor import Apply, Cast, Read, Scalar
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.structure import Group, neutral_guards


@dataclass(frozen=True)
class Dots:
    """A reduction split into dot products by ``instruction``: ``loop`` iterates over one's
    elements."""

    instruction: Instruction
    loop: LoopVar

    @property
    def size(self) -> int:
        """Elements of a dot product."""
        return _size(self.instruction)

    def factors(self, body: Scalar, lane: LoopVar) -> tuple[Read, Read] | None:
        """The factor uniform over the lanes and the one that varies, of a product that is
        summed."""
        return _factors(body, self.instruction, lane)

    def side_by_side(self, group: Group, lane: LoopVar) -> bool:
        """Whether the split group's vectors have the elements of a dot product contiguous in each
        lane."""
        anchor = group.anchor
        found = _summed(anchor, self.instruction, lane) if anchor is not None else None
        return found is not None and _interleaved(found[1], self.loop, lane, self.size)


def find_dots(
    group: Group, lane: LoopVar, constants: frozenset[str], pairs: bool
) -> tuple[Group, Dots] | None:
    """The group with its reduction split into dot products, of bytes or of ``pairs`` of bf16 if
    available; None if it is no contraction of such types.  ``constants`` are still to be packed, in
    any order, if they can be, which :meth:`Dots.side_by_side` checks afterwards.
    """
    anchor = group.anchor
    for instruction in (DOT4, *((DOT2,) if pairs else ())):
        found = _summed(anchor, instruction, lane) if anchor is not None else None
        if anchor is None or found is None:
            continue
        repeated, vectors = found
        for loop in reversed(anchor.reduce):
            dots = Dots(instruction, LoopVar(f"{loop.name}q", _size(instruction), loop.axis))
            whole = isinstance(loop.extent, int) and loop.extent % dots.size == 0
            beside = vectors.tensor in constants or _interleaved(vectors, loop, lane, dots.size)
            if whole and loop.multiplier == 1 and _contiguous(repeated, loop) and beside:
                return _cut(group, anchor, loop, dots), dots
    return None


def _summed(nest: Nest, instruction: Instruction, lane: LoopVar) -> tuple[Read, Read] | None:
    """The factors of a sum of products, if ``instruction`` multiplies them."""
    dtype = instruction.dtype
    if nest.combine != "sum" or not nest.reduce or nest.body.dtype != dtype:
        return None
    return _factors(neutral_guards(nest.body, "sum", dtype)[1], instruction, lane)


def _factors(body: Scalar, instruction: Instruction, lane: LoopVar) -> tuple[Read, Read] | None:
    match body:
        case Apply(function="mul", args=(Cast(value=Read() as a), Cast(value=Read() as b))):
            taken = tuple(o.dtype for o in instruction.operands[:2])
            repeated, vectors = (b, a) if depends_on(a, lane.name) else (a, b)
            apart = depends_on(vectors, lane.name) and not depends_on(repeated, lane.name)
            fits = apart and (repeated.dtype, vectors.dtype) == taken
            return (repeated, vectors) if fits else None
        case _:
            return None


def _size(instruction: Instruction) -> int:
    return instruction.operands[1].each


def _contiguous(read: Read, loop: LoopVar) -> bool:
    return len(read.indices) == 1 and coefficient(read.indices[0], loop.name) == 1


def _interleaved(read: Read, loop: LoopVar, lane: LoopVar, size: int) -> bool:
    """Whether the elements of a dot product are contiguous in each lane."""
    return (
        len(read.indices) == 1
        and loop.extent == size
        and coefficient(read.indices[0], loop.name) == 1
        and coefficient(read.indices[0], lane.name) == size
    )


def _cut(group: Group, anchor: Nest, loop: LoopVar, dots: Dots) -> Group:
    assert isinstance(loop.extent, int)
    steps = LoopVar(loop.name, loop.extent // dots.size, loop.axis, dots.size)
    value = {loop.name: Sym(steps.name) * dots.size + Sym(dots.loop.name)}
    ranges = {**anchor.ranges, **{v.name: loop_range(v.extent) for v in (steps, dots.loop)}}
    cut = replace(
        anchor,
        reduce=tuple(steps if v == loop else v for v in anchor.reduce),
        body=substitute_indices(anchor.body, value),
        ranges=ranges,
    )
    return replace(group, nests=(cut, *group.nests[1:]))
