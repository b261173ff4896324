"""Errors in copies to shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.copies import CopyAsync
from modelcc.ir.index import symbols
from modelcc.ir.loop import Buffer
from modelcc.ir.tiles import CopyTile


def copy_fault(
    s: CopyAsync | CopyTile, to: Buffer, source: Buffer, sizes: Sequence[str] | None
) -> str:
    """Why a copy is invalid, or "" if it is valid; ``sizes`` are the function's, None for a source
    that it may write."""
    box = isinstance(s, CopyTile)
    fault = _box_fault(s, to, source, sizes) if box else _fault(s, to, source)
    if not fault and to.dtype != source.dtype:
        return f"%{to.name} has elements of {to.dtype}, not {source.dtype}"
    return fault


def _fault(s: CopyAsync, to: Buffer, source: Buffer) -> str:
    if (to.space, source.space) != ("shared", "global"):
        return "copies go from global to shared memory"
    if s.lanes * to.dtype.bytes not in (4, 8, 16):
        return "4, 8 or 16 bytes are copied at once"
    return ""


def _box_fault(s: CopyTile, to: Buffer, source: Buffer, sizes: Sequence[str] | None) -> str:
    rank, numbers = len(s.box), (s.offset, *s.sizes, *s.strides)
    if to.space != "tile" or source.space != "global" or sizes is None:
        return "boxes of inputs are copied to memory of space tile"
    if not rank or any(len(part) != rank for part in (s.at, s.sizes, s.strides)):
        return "place, sizes, strides and box have as many numbers each"
    if s.strides[-1] != 1 or min(s.box) < 1:
        return "elements of rows lie side by side, and a box has some"
    if not {name for index in numbers for name in symbols(index)} <= set(sizes):
        return "the tensor is described by the function's sizes"
    return ""
