"""TopK: the k largest or smallest elements along an axis, by a short list or by leading bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, call, predicate
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Index, ceildiv, minimum, product
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.types import F16, I32, I64, U8, Array, TensorType
from modelcc.ops.broadcast import numbers
from modelcc.ops.gather_elements import ScatterElements
from modelcc.ops.generate import filled
from modelcc.ops.group_sort import is_short, sort_in_groups
from modelcc.ops.group_top import select_in_groups
from modelcc.ops.radix_sort import KeyedPlaces, KeyOrder, keyed_places
from modelcc.ops.samples import sample, tensor
from modelcc.ops.selection import Row, select_by_key
from modelcc.ops.shortlist import MOST, Shortlist, select_by_list, shortlist
from modelcc.ops.top_columns import WIDE, TurnedColumns, select_best_of_columns, turned_columns

FEW = 64
"""Results up to which a short list is the faster way, whatever the row."""
MANY = 1 << 12
"""Elements of a row from which on it is up to ``MOST`` results."""

_NAN, _INF = np.nan, np.inf
_ODD = np.array([[1, _NAN, 3, 2], [_NAN, _NAN, 0, 5], [_INF, _NAN, -_INF, 0]], np.float32)


@dataclass(frozen=True)
class TopK(Op):
    """The ``k`` largest (or smallest) elements along ``axis``, best first, and their indices.

    Of equal elements the one with the lower index comes first; NaN is the largest.  Few come
    from a short list (:mod:`modelcc.ops.shortlist`), which most elements never enter; of many,
    those with the leading bits of the k-th and better ones are sorted: O(n) for n elements.
    """

    k: Index
    axis: int
    largest: bool = True
    samples = (
        sample(tensor(3, 7), k=3, axis=1),
        sample(tensor(4, "n"), k=2, axis=0, largest=False),
        sample(np.array([[3, 1, 3], [2, 2, 2]], np.int32), k=3, axis=1),
        sample(tensor(2, 5, 3, dtype=F16), k=4, axis=1),
        sample(tensor(9, dtype=I64), k=9, axis=0, largest=False),
        sample(tensor(5, dtype=U8), k=0, axis=0),
        sample(tensor(1, 1, dtype=I32), k=1, axis=1),
        sample(_ODD, k=1, axis=1),
        sample(tensor(3, 21), k=1, axis=1, largest=False),
        sample(_ODD, k=3, axis=1),
        sample(_ODD, k=3, axis=1, largest=False),
        sample(tensor(2, 6, 37), k=1, axis=1),
        sample(tensor(7, 70, dtype=F16), k=4, axis=0),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(x.dtype.is_float or x.dtype.is_integer, f"TopK of {x.dtype} has no order")
        require(0 <= self.axis < x.rank, f"TopK along axis {self.axis} of {x}")
        extent = x.shape[self.axis]
        fits = not isinstance(self.k, int) or (
            self.k >= 0 and not (isinstance(extent, int) and self.k > extent)
        )
        require(fits, f"TopK of {self.k} elements along axis {self.axis} of {x}")
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return TensorType(shape, x.dtype), TensorType(shape, I64)

    def shape_constraints(self, x: TensorType) -> Constraints:
        return ((self.k, "<=", x.shape[self.axis]),)

    def reference(self, x: Array) -> tuple[Array, Array]:
        (k,) = numbers((self.k,))
        # NumPy's sort misplaces NaN of types that are not its own.
        plain = x if x.dtype.kind in "iuf" else x.astype(np.float32)
        moved = np.moveaxis(plain, self.axis, -1)
        # The highest last with equal ones in reverse order, for a stable sort.
        order = (
            x.shape[self.axis] - 1 - np.argsort(moved[..., ::-1], -1, "stable")[..., ::-1]
            if self.largest
            else np.argsort(moved, -1, "stable")
        )[..., :k]
        order = np.moveaxis(order, -1, self.axis).astype(np.int64)
        return np.take_along_axis(x, order, self.axis), np.ascontiguousarray(order)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        zeros = filled(build, inputs[0])
        return (build.emit(ScatterElements(self.axis, "add"), zeros, outputs[1], dys[0]),)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (values, indices) = inputs, outputs
        assert x is not None
        inner = product(x.shape[self.axis + 1 :])
        if inner == 0:
            return
        work = x.type.elements
        extent, k = x.shape[self.axis], self.k
        order = KeyOrder(x.dtype, descending=self.largest)
        groups = at.capacity.groups_of(x.dtype)
        if groups is not None and k != 0:
            first = Row(x, values, indices, 0, 0, inner, inner, extent, k, self.largest)
            lines = product(x.shape[: self.axis]) * inner
            short = is_short(order, k, extent, groups)
            (select_in_groups if short else sort_in_groups)(at, first, lines, order, groups)
            return
        # A row, or the columns that are taken together.
        wide = 1 if inner == 1 else at.capacity.joined(WIDE)
        groups = ceildiv(inner, wide)
        units = product(x.shape[: self.axis]) * groups
        little = units == 1 or at.capacity.is_little(work)
        blocks = 1 if little else at.capacity.blocks(units)
        room = self._room(at, x, blocks)
        with at.shared_loop(blocks, work) as block:
            own = room.at_block(block)
            with at.loop(block * units // blocks, (block + 1) * units // blocks) as unit:
                outer, first = unit // groups, unit % groups * wide
                source, target = outer * extent * inner + first, outer * k * inner + first
                row = Row(x, values, indices, source, target, inner, inner, extent, k, self.largest)
                _select_unit(at, row, own, minimum(wide, inner - first))

    def _room(self, at: AlgorithmBuilder, x: Operand, blocks: Index) -> _Room:
        extent, is_row = x.shape[self.axis], product(x.shape[self.axis + 1 :]) == 1
        long, short = _is(extent, ">", MANY - 1), _is(extent, "<=", MANY - 1)
        always = _is(self.k, "<=", FEW) or (_is(self.k, "<=", MOST) and long)
        never = _is(self.k, ">", MOST) or (_is(self.k, ">", FEW) and short)
        order = KeyOrder(x.dtype, descending=self.largest)
        few = None if never else shortlist(at, x.dtype, self.largest, extent, blocks)
        many = None if always else keyed_places(at, order, extent, blocks)
        return _Room(few, many, None if is_row else turned_columns(at, x.dtype, extent, blocks))


@dataclass(frozen=True)
class _Room:
    """Memory for the ways that may be taken."""

    few: Shortlist | None
    many: KeyedPlaces | None
    columns: TurnedColumns | None

    def at_block(self, block: Index) -> _Room:
        """That of one of several blocks."""
        return _Room(
            self.few and self.few.at_block(block),
            self.many and self.many.at_block(block),
            self.columns and self.columns.at_block(block),
        )


def _is(size: Index, comparison: Literal["<=", ">"], bound: int) -> bool:
    """Whether that is known of a size."""
    return isinstance(size, int) and (size <= bound) == (comparison == "<=")


def _select_unit(at: AlgorithmBuilder, row: Row, room: _Room, count: Index) -> None:
    """The results of ``row``, or of ``count`` columns of which it is the first."""
    if room.columns is None:
        _select(at, row, room)
        return
    with at.when(predicate(row.k, "==", 1)):
        select_best_of_columns(at, row, count)
    if row.k == 1:
        return
    with at.when(predicate(row.k, ">", 1)):
        room.columns.fill(at, row, count)
        with at.loop(0, count) as column:
            _select(at, room.columns.row(row, column), room)


def _select(at: AlgorithmBuilder, row: Row, room: _Room) -> None:
    """By the way that is faster for k; there is memory for those that may be."""
    if room.few and room.many:
        listed = call("or", predicate(row.k, "<=", FEW), predicate(row.extent, ">=", MANY))
        listed = at.let(call("and", listed, predicate(row.k, "<=", MOST)))
        with at.when(call("and", listed, predicate(row.k, ">", 0))):
            select_by_list(at, row, room.few)
        with at.when(call("not", listed)):
            select_by_key(at, row, room.many)
    elif room.many:
        select_by_key(at, row, room.many)
    elif room.few and row.k != 0:
        select_by_list(at, row, room.few)


OPS: tuple[type[Op], ...] = (TopK,)
