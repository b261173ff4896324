"""Tile: copies of the largest blocks that are contiguous in both tensors."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.kit.vectors import named_sizes
from modelcc.frontends.onnx.call import Call
from modelcc.ir.index import Index, Range, maximum, product
from modelcc.ops.late_tile import LateTile
from modelcc.ops.shape import Reshape, Tile


def tile(call: Call) -> str:
    """Before opset 6, a number of tiles along one axis."""
    repeats = call.indices(1, "repeats", Range(0, None))
    if call.opset < 6:
        axis = call.normal(call.integers(2, "axis")[0], call.rank())
        repeats = tuple(repeats[0] if a == axis else 1 for a in range(call.rank()))
    if len(repeats) != call.rank():
        call.fail(f"{len(repeats)} repeats for a tensor of rank {call.rank()}")
    if all(r == 1 for r in repeats):
        return call.input(0)
    if all(isinstance(r, int) for r in repeats):
        return call.emit(Tile(repeats), call.input(0))
    return _in_blocks(call, repeats)


def _in_blocks(call: Call, repeats: Sequence[Index]) -> str:
    """Tiles with repeats known at run time: the blocks are determined at run time, too.

    The last axis that is repeated and those inside it form one block, whose repetitions are
    contiguous; the others are iterated one by one.
    """
    extents = call.shape()
    once = [maximum(1 - maximum(r - 1, 1 - r), 0) for r in repeats]
    inside = [product(once[a + 1 :]) for a in range(len(once))]
    walked = [e + s - e * s for e, s in zip(extents[:-1], inside, strict=False)]
    block = product(1 + s * (e - 1) for e, s in zip(extents, inside, strict=True))
    *walked, block = named_sizes(call, [*walked, block], f"{call.labels[0]}_tiled")
    whole = tuple(e * r for e, r in zip(extents, repeats, strict=True))
    parts = walked or (1,)
    tiles = tuple(repeats) if walked else (1, *repeats)
    blocks = call.emit(Reshape((*parts, block)), call.input(0))
    return call.emit(Reshape(whole), call.emit(LateTile(tiles), blocks))
