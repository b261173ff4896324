"""The broadcast shape of operands with symbolic extents, any of which may be 1 at run time.

Symbolic extents are mostly equal, and kernels that read every operand at the index they write are
the fast ones.  So a hint of which operand is the larger one is trusted and checked at run time: a
constant, an operand that is broadcast along no other axis, an extent that was computed.  Only
without a hint may any of the operands be 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import (
    Bounds,
    Index,
    Sym,
    broadcast_extent,
    broadcast_parts,
    compare,
    simplify,
)
from modelcc.ir.op import broadcast_shapes

Shape = tuple[Index, ...]


def common_shape(shapes: Sequence[Shape], bounds: Bounds) -> Shape:
    """The shape that ``shapes`` broadcast to; :class:`ModelError` if they cannot."""
    wide = [tuple(1 if _is_narrow(e, bounds) else e for e in shape) for shape in shapes]
    found = _common_shape(wide, bounds)
    if wide == list(shapes):
        return found
    return tuple(
        _broadcast(_different(_along(shapes, distance), bounds), bounds) if extent == 1 else extent
        for distance, extent in zip(range(len(found), 0, -1), found, strict=True)
    )


def _is_narrow(extent: Index, bounds: Bounds) -> bool:
    """Whether a symbolic extent is never above 1."""
    return not isinstance(extent, int) and compare(extent, "<=", 1, bounds) is True


def _common_shape(shapes: Sequence[Shape], bounds: Bounds) -> Shape:
    guess = broadcast_shapes(*shapes)
    whole = [shape for shape in shapes if _is_whole(shape, guess)]
    return tuple(
        _common(extent, _along(shapes, distance), _along(whole, distance), bounds)
        for distance, extent in zip(range(len(guess), 0, -1), guess, strict=True)
    )


def _common(guess: Index, along: Shape, whole: Shape, bounds: Bounds) -> Index:
    """``guess`` is an extent of ``along``; ``whole`` are those of operands with the result's
    shape."""
    if isinstance(guess, int):
        return guess
    leading = _different(whole or along, bounds)
    computed = [e for e in leading if not isinstance(e, Sym) and _parts(e, bounds) is None]
    return computed[0] if computed else _broadcast(leading, bounds)


def _broadcast(extents: Sequence[Index], bounds: Bounds) -> Index:
    """The broadcast extent of ``extents``, any of which may be 1; 1 if there are none."""
    if len(extents) < 2:
        return extents[0] if extents else 1
    parts = (part for e in extents for part in _parts(e, bounds) or (e,))
    return simplify(broadcast_extent(tuple(dict.fromkeys(parts))), bounds)


def _parts(extent: Index, bounds: Bounds) -> tuple[Index, ...] | None:
    """The extents that ``extent`` was broadcast from.  A maximum alone is one if nothing in it can
    be 0, else it is the length of a slice."""
    parts = broadcast_parts(extent)
    if parts is None or extent == broadcast_extent(parts):
        return parts
    return parts if all(compare(part, ">=", 1, bounds) for part in parts) else None


def _different(extents: Shape, bounds: Bounds) -> list[Index]:
    found: list[Index] = []
    for extent in extents:
        if extent != 1 and not any(compare(extent, "==", e, bounds) for e in found):
            found.append(extent)
    return found


def _is_whole(shape: Shape, guess: Shape) -> bool:
    """Whether there is no sign that an operand of ``shape`` is broadcast to ``guess``."""
    missing = [e for e in guess[: len(guess) - len(shape)] if e != 1]
    return not missing and all(
        old != 1 or new == 1 for old, new in zip(reversed(shape), reversed(guess), strict=False)
    )


def _along(shapes: Sequence[Shape], distance: int) -> Shape:
    return tuple(shape[-distance] for shape in shapes if len(shape) >= distance)
