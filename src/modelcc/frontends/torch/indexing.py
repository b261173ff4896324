"""Handlers of gathers: by several index tensors, along one axis, by a mask, embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.frontends.kit.selection import places
from modelcc.frontends.torch.aten import Aten, table
from modelcc.frontends.torch.views import concatenated, expanded
from modelcc.ir.index import Index
from modelcc.ir.op import broadcast_shapes
from modelcc.ir.types import BOOL, I64, U8
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import Equal, where
from modelcc.ops.gather import Gather, GatherElements, GatherND, GatherSum
from modelcc.ops.generate import Full
from modelcc.ops.views import cast, part, permuted, reshaped

Given = Sequence[Value | None]
"""Index tensors by axis; None for whole axes."""


@dataclass(frozen=True)
class Selection:
    """The elements of a tensor selected by index tensors.

    ``order`` are the tensor's axes with the indexed ones first, ``indices`` of one shape for
    these; in the result the axes of ``indices`` are at position ``place``.
    """

    order: tuple[int, ...]
    indices: tuple[Value, ...]
    place: int

    @property
    def side_by_side(self) -> bool:
        """Whether the indexed axes are adjacent, in order."""
        first, count = self.order[0], len(self.indices)
        return self.order[:count] == tuple(range(first, first + count))

    def front(self, x: Value) -> Value:
        """The tensor with its indexed axes moved to the front."""
        return _ordered(x, self.order)

    def back(self, x: Value) -> Value:
        """The tensor with its axes moved back."""
        return _ordered(x, tuple(map(self.order.index, range(len(self.order)))))

    def tuples(self, call: Aten) -> Value:
        """The index tuples, stacked along a last axis."""
        wide = [reshaped(i, *i.type.shape, 1) for i in self.indices]
        return concatenated(call, wide[0].type.rank - 1, *wide)

    def placed(self, x: Value) -> Value:
        """The selected elements with the axes of the indices moved from the front to PyTorch's
        position."""
        rank = self.indices[0].type.rank
        lead = range(rank, rank + self.place)
        return _ordered(x, (*lead, *range(rank), *range(rank + self.place, x.type.rank)))

    def unplaced(self, x: Value) -> Value:
        """The inverse of :meth:`placed`."""
        rank = self.indices[0].type.rank
        own = range(self.place, self.place + rank)
        return _ordered(x, (*own, *range(self.place), *range(self.place + rank, x.type.rank)))


def _ordered(x: Value, order: tuple[int, ...]) -> Value:
    return x if order == tuple(range(len(order))) else permuted(x, *order)


def selection(call: Aten, x: Value, given: Given) -> Selection:
    """The elements selected by PyTorch's index tensors; masks become the indices where they
    hold."""
    found: dict[int, Value] = {}
    axis = 0
    for index in given:
        if index is None:
            axis += 1
        elif index.type.dtype in (BOOL, U8):
            for column in _columns(call, index):
                found[axis], axis = column, axis + 1
        else:
            found[axis], axis = cast(index, I64), axis + 1
    shape = broadcast_shapes(*(i.type.shape for i in found.values()))
    axes = tuple(found)
    adjacent = axes == tuple(range(axes[0], axes[0] + len(axes)))
    order = (*axes, *(a for a in range(x.type.rank) if a not in axes))
    whole = tuple(expanded(i, shape) for i in found.values())
    return Selection(order, whole, axes[0] if adjacent else 0)


def _columns(call: Aten, mask: Value) -> list[Value]:
    found = Value(call, places(call, mask.name))
    return [reshaped(part(found, 0, k, 1), found.type.shape[1]) for k in range(mask.type.rank)]


def index(call: Aten, x: Value, indices: Given) -> Value:
    """Elements at indices; for a single index tensor whole slices along its axis."""
    tensors = [(a, i) for a, i in enumerate(indices) if i is not None]
    if not tensors:
        return x
    (axis, only), *more = tensors
    if not more and only.type.dtype not in (BOOL, U8):
        return of(Gather(axis), x, only)
    if any(i.type.rank == 0 and i.type.dtype in (BOOL, U8) for _, i in tensors):
        return _by_scalar_mask(call, x, indices)
    chosen = selection(call, x, indices)
    if len(chosen.indices) == 1:
        return of(Gather(chosen.order[0]), x, chosen.indices[0])
    return chosen.placed(of(GatherND(), chosen.front(x), chosen.tuples(call)))


def _by_scalar_mask(call: Aten, x: Value, indices: Given) -> Value:
    """A scalar mask acts as one along a new axis of extent 1."""
    at = next(a for a, i in enumerate(indices) if i is not None and i.type.rank == 0)
    shape = x.type.shape
    wide = reshaped(x, *shape[:at], 1, *shape[at:])
    mask = indices[at]
    assert mask is not None
    return index(call, wide, (*indices[:at], reshaped(mask, 1), *indices[at + 1 :]))


def index_select(call: Aten, x: Value, dim: int, indices: Value) -> Value:
    if not x.type.rank:
        return of(Gather(0), reshaped(x, 1), reshaped(indices))
    axis = call.axis(dim, x.type.rank)
    return of(Gather(axis), x, reshaped(indices, indices.type.elements))


def gather(call: Aten, x: Value, dim: int, indices: Value, *_: object) -> Value:
    """One element per index; a scalar is a vector of one."""
    if 0 in indices.type.shape:
        return call.made(Full(call.extents(), 0, x.type.dtype))
    axis = call.axis(dim, x.type.rank)
    places = indices if indices.type.rank else reshaped(indices, 1)
    found = of(GatherElements(axis, signed=False), x if x.type.rank else reshaped(x, 1), places)
    return reshaped(found, *indices.type.shape)


def take(call: Aten, x: Value, indices: Value) -> Value:
    return of(Gather(0), reshaped(x, x.type.elements), indices)


def masked_select(call: Aten, x: Value, mask: Value) -> Value:
    """The elements where a mask holds, in row-major order."""
    shape = broadcast_shapes(x.type.shape, mask.type.shape)
    whole = expanded(x, shape), expanded(mask, shape)
    flat, holds = (reshaped(e, e.type.elements) for e in whole)
    (column,) = _columns(call, holds)
    return of(Gather(0), flat, column)


def nonzero(call: Aten, x: Value) -> Value:
    found = Value(call, places(call, x.name))
    return permuted(found, 1, 0)


def nonzero_by_axes(call: Aten, x: Value) -> Sequence[Value]:
    """``where`` of a condition alone: the indices, a vector per axis; a scalar has one."""
    return _columns(call, x if x.type.rank else reshaped(x, 1))


def nonzero_static(call: Aten, x: Value, size: int, fill: int = -1) -> Value:
    """The first ``size`` indices, padded with ``fill``."""
    rest = call.made(Full((size, x.type.rank), fill, I64))
    return part(concatenated(call, 0, nonzero(call, x), rest), 0, 0, size)


def embedding(call: Aten, weight: Value, indices: Value, *_: object) -> Value:
    return of(Gather(0), weight, indices)


def embedding_backward(
    call: Aten, dy: Value, indices: Value, rows: Index, padding: int, by_frequency: bool
) -> Value:
    """Gradients of rows accumulated, except padding; optionally divided by the frequency of each
    row."""
    if padding >= 0:
        unused = of(Equal(), indices, indices.lift(padding))
        dy = where(reshaped(unused, *indices.type.shape, 1), dy.lift(0), dy)
    if by_frequency:
        ones = call.made(Full(indices.type.shape, 1, dy.type.dtype))
        often = of(Gather(0), of(GatherSum(0, rows), ones, indices), indices)
        dy = dy / reshaped(often, *indices.type.shape, 1)
    return of(GatherSum(0, rows), dy, indices)


INDEXING = table(
    index=index,
    _unsafe_index=index,
    index_select=index_select,
    gather=gather,
    take=take,
    masked_select=masked_select,
    nonzero=nonzero,
    nonzero_static=nonzero_static,
    embedding=embedding,
    embedding_dense_backward=embedding_backward,
    **{"where.default": nonzero_by_axes},
)
