"""Parts of a concatenation that start or end within a block of channels, cut where blocks end.

The channels of the part then lie side by side in each piece, on both sides: whole vectors of them
are moved, only with some lanes left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, substitute
from modelcc.ir.scalar_tree import substitute_indices
from modelcc.ir.tensor import Axis, Item, Kernel, Stage, TensorProgram
from modelcc.ir.types import TensorType


@dataclass(frozen=True)
class SplitBlocks:
    """Cuts stages that write a part of a blocked tensor which is not whole blocks.

    before::

        program @main(%x: f32[20, 3]<d0/16 d1 d0%16>) -> (%y) {
          kernel @Concat(%x: f32[20, 3]<d0/16 d1 d0%16>) -> (%y: f32[40, 3]<d0/16 d1 d0%16>) {
            %y: f32[40, 3]<d0/16 d1 d0%16> = [c < 20, h < 3] %x[c, h]
          }
          kernel @Concat(%x: f32[20, 3]<d0/16 d1 d0%16>) -> (%y: f32[40, 3]<d0/16 d1 d0%16>) {
            %y[c + 20, h]: f32[40, 3]<d0/16 d1 d0%16> = [c < 20, h < 3] exp(%x[c, h])
          }
        }

    after::

        program @main(%x: f32[20, 3]<d0/16 d1 d0%16>) -> (%y) {
          kernel @Concat(%x: f32[20, 3]<d0/16 d1 d0%16>) -> (%y: f32[40, 3]<d0/16 d1 d0%16>) {
            %y[16*cb + cl, h]: f32[40, 3]<d0/16 d1 d0%16> =
              [cb < 1, cl < 16, h < 3] %x[16*cb + cl, h]
            %y[16*cb + cl + 16, h]: f32[40, 3]<d0/16 d1 d0%16> =
              [cb < 1, cl < 4, h < 3] %x[16*cb + cl + 16, h]
          }
          kernel @Concat(%x: f32[20, 3]<d0/16 d1 d0%16>) -> (%y: f32[40, 3]<d0/16 d1 d0%16>) {
            %y[16*cb + cl + 20, h]: f32[40, 3]<d0/16 d1 d0%16> =
              [cb < 1, cl < 12, h < 3] exp(%x[16*cb + cl, h])
            %y[16*cb + cl + 32, h]: f32[40, 3]<d0/16 d1 d0%16> =
              [cb < 1, cl < 4, h < 3] exp(%x[16*cb + cl + 12, h])
            %y[16*cb + cl + 36, h]: f32[40, 3]<d0/16 d1 d0%16> =
              [cb < 1, cl < 4, h < 3] exp(%x[16*cb + cl + 16, h])
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        items: list[Item] = []
        for item in program.items:
            items.append(_split(item, program) if isinstance(item, Kernel) else item)
        return program.with_items(tuple(items))


def _split(kernel: Kernel, program: TensorProgram) -> Kernel:
    first = kernel.stages[0]
    if len(kernel.stages) > 1 or first.reduce or first.output in kernel.inputs:
        return kernel
    part = ragged_part(first, program.types[first.output])
    return kernel if part is None else replace(kernel, stages=tuple(_pieces(first, part)))


@dataclass(frozen=True)
class RaggedPart:
    """``channels`` of a stage run along the dimension of its output that the layout cuts into
    blocks of ``block``, the first one at ``offset``."""

    channels: Axis
    block: int
    offset: int


def ragged_part(stage: Stage, type_: TensorType) -> RaggedPart | None:
    """What ``stage`` writes, if that shares a block with other parts of its output."""
    if not type_.shape:
        return None
    last = type_.physical.parts[-1]
    if last.mod is None:
        return None
    index = stage.write[last.axis]
    for axis in stage.axes:
        offset, extent = index - Sym(axis.name), axis.extent
        if isinstance(offset, int) and isinstance(extent, int):
            end = offset + extent
            inside = end % last.mod and end != type_.shape[last.axis]
            return RaggedPart(axis, last.mod, offset) if offset % last.mod or inside else None
    return None


def _pieces(stage: Stage, part: RaggedPart) -> Iterator[Stage]:
    """``stage`` in pieces over some lanes of several blocks."""
    axis, block = part.channels, part.block
    assert isinstance(axis.extent, int)
    skipped = part.offset % block
    head = block - skipped
    whole, rest = divmod(axis.extent, block)
    last = whole * block
    pieces = [
        (0, whole, head),
        (head, whole, skipped),
        (last, 1, min(rest, head)),
        (last + head, 1, rest - head),
    ]
    for first, blocks, lanes in pieces:
        if blocks > 0 and lanes > 0:
            yield _piece(stage, axis, first, Axis(f"{axis.name}b", blocks), lanes, block)


def _piece(stage: Stage, axis: Axis, first: int, blocks: Axis, lanes: int, block: int) -> Stage:
    lane = Axis(f"{axis.name}l", lanes)
    at: dict[str, Index] = {axis.name: Sym(blocks.name) * block + Sym(lane.name) + first}
    axes = tuple(a for own in stage.axes for a in ((blocks, lane) if own == axis else (own,)))
    write = tuple(substitute(i, at) for i in stage.write)
    return replace(stage, axes=axes, write=write, body=substitute_indices(stage.body, at))
