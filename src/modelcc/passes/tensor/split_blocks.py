"""Parts of a concatenation that start or end within a block of channels, cut where blocks end.

The channels of the part are then contiguous in each piece, on both sides: whole vectors of them are
moved, with some lanes masked.  The same holds for elementwise stages that read some of the channels
of a tensor, from within a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, substitute
from modelcc.ir.scalar_tree import reads, substitute_indices
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
    part = ragged_part(first, program.types)
    return kernel if part is None else replace(kernel, stages=tuple(_pieces(first, part)))


@dataclass(frozen=True)
class RaggedPart:
    """``channels`` of a stage run along the dimension of its output that the layout cuts into
    blocks of ``block``; ``cuts`` are the channels modulo ``block`` at which some block starts."""

    channels: Axis
    block: int
    cuts: tuple[int, ...]


def ragged_part(stage: Stage, types: Mapping[str, TensorType]) -> RaggedPart | None:
    """The part of its output that ``stage`` writes, if that shares a block with other parts, or if
    an elementwise stage reads at another offset in blocks than it writes."""
    type_ = types[stage.output]
    channel = _blocked_channel(stage.write, stage.axes, type_)
    if channel is None:
        return None
    axis, block, offset = channel
    assert isinstance(axis.extent, int)
    end = offset + axis.extent
    inside = bool(end % block) and end != type_.shape[type_.physical.parts[-1].axis]
    starts = {-offset % block}
    for read in () if stage.reduce else reads(stage.body):
        other = _blocked_channel(read.indices, (axis,), types[read.tensor])
        if other is not None and other[1] == block:
            starts.add(-other[2] % block)
    if starts == {0} and not inside:
        return None
    return RaggedPart(axis, block, tuple(sorted(starts | {0})))


def _blocked_channel(
    indices: Sequence[Index], axes: Sequence[Axis], type_: TensorType
) -> tuple[Axis, int, int] | None:
    """The axis that runs along the dimension in blocks, their size, and its first index there."""
    last = type_.physical.parts[-1] if type_.shape else None
    if last is None or last.mod is None:
        return None
    for axis in axes:
        offset = indices[last.axis] - Sym(axis.name)
        if isinstance(offset, int) and isinstance(axis.extent, int):
            return axis, last.mod, offset
    return None


def _pieces(stage: Stage, part: RaggedPart) -> Iterator[Stage]:
    """``stage`` in pieces over some lanes of several blocks."""
    axis, block = part.channels, part.block
    assert isinstance(axis.extent, int)
    whole, rest = divmod(axis.extent, block)
    spans = list(zip(part.cuts, (*part.cuts[1:], block), strict=True))
    last = whole * block
    pieces = [(start, whole, end - start) for start, end in spans]
    pieces += [(last + start, 1, min(rest, end) - start) for start, end in spans]
    for first, blocks, lanes in pieces:
        if blocks > 0 and lanes > 0:
            yield _piece(stage, axis, first, Axis(f"{axis.name}b", blocks), lanes, block)


def _piece(stage: Stage, axis: Axis, first: int, blocks: Axis, lanes: int, block: int) -> Stage:
    lane = Axis(f"{axis.name}l", lanes)
    at: dict[str, Index] = {axis.name: Sym(blocks.name) * block + Sym(lane.name) + first}
    axes = tuple(a for own in stage.axes for a in ((blocks, lane) if own == axis else (own,)))
    write = tuple(substitute(i, at) for i in stage.write)
    return replace(stage, axes=axes, write=write, body=substitute_indices(stage.body, at))
