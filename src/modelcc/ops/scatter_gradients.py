"""Gradients of updates that are put into a tensor, of which later ones cover earlier ones."""

from __future__ import annotations

from modelcc.ir.index import product
from modelcc.ir.op import Builder, Op
from modelcc.ir.types import I64
from modelcc.ops.comparison import Equal, Where
from modelcc.ops.generate import Full, Iota
from modelcc.ops.shape import Reshape


def of_replaced(
    build: Builder, put: Op, get: Op, dy: str, indices: str, updates: str
) -> tuple[str, str]:
    """Gradients of x and of the updates, for ``put``, which replaces what ``get`` reads.

    An update that a later one covers has none: each puts its number, and reads whose is there.
    """
    type, x = build.type_of(updates), build.type_of(dy)
    none = build.emit(Full(type.shape, 0.0, type.dtype))
    dx = build.emit(put, dy, indices, none)
    numbers = build.emit(Reshape(type.shape), build.emit(Iota((product(type.shape),))))
    last = build.emit(put, build.emit(Full(x.shape, -1, I64)), indices, numbers)
    stays = build.emit(Equal(), build.emit(get, last, indices), numbers)
    return dx, build.emit(Where(), stays, build.emit(get, dy, indices), none)
