"""Unique: every different element or slice once, by sorting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    index_number,
    integer,
    number,
    predicate,
)
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.index import Index, Sym, product
from modelcc.ir.loop import Buffer, Expr
from modelcc.ir.op import Op, require
from modelcc.ir.types import BOOL, I64, Array, TensorType
from modelcc.ops.radix_sort import KeyedPlaces, KeyOrder, keyed_places, radix_sort
from modelcc.ops.samples import sample, tensor
from modelcc.ops.sorting import below, sort_indices


@dataclass(frozen=True)
class Unique(Op):
    """The different slices of x along ``axis`` (None: its elements), ascending or as they come.

    Results: the slices; the index of the first like each; for each slice of x the number of its
    like; how often each occurs; and how many there are, i64[1].  All but the last and the third
    have room for every slice to be different; what is not needed is 0.  NaN equals NaN, and is
    greater than all else.
    """

    differentiable = False
    axis: int | None = None
    sorted: bool = True
    samples = (
        sample(np.array([2, 1, 1, 3, 4, 3], np.float32)),
        sample(np.array([2, 1, 1, 3, 4, 3]), sorted=False),
        sample(np.array([[1, 0, 0], [1, 0, 0], [2, 3, 4]], np.float32), axis=0),
        sample(np.array([[[1, 1, 0], [1, 1, 2]]], np.int32), axis=2, sorted=False),
        sample(np.array([[1, 2], [3, 1]], np.uint8)),
        sample(tensor("n", dtype=I64)),
        sample(np.array([1, np.nan, 0, np.nan, 1, -np.inf, np.nan], np.float32)),
        sample(np.array([np.nan, 1, np.nan, 0], np.float32), sorted=False),
        sample(np.array([[1, np.nan], [0, 2], [1, np.nan]], np.float32), axis=0),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        require(x.dtype.is_float or x.dtype.is_integer, f"Unique of {x.dtype} has no order")
        axis = self.axis
        require(axis is None or 0 <= axis < x.rank, f"Unique along axis {axis} of {x}")
        extent = x.elements if axis is None else x.shape[axis]
        values = TensorType((extent,) if axis is None else x.shape, x.dtype)
        line = TensorType((extent,), I64)
        return values, line, line, line, TensorType((1,), I64)

    def reference(self, x: Array) -> tuple[Array, ...]:
        _, first, inverse, counts = np.unique(_ranks(x), True, True, True, axis=self.axis)
        order = np.arange(len(first)) if self.sorted else np.argsort(first)
        axis = self.axis or 0
        rank = np.argsort(order)
        whole = np.take(x.reshape(-1) if self.axis is None else x, first[order], axis)
        extent = x.size if self.axis is None else x.shape[axis]
        padding = [(0, 0)] * whole.ndim
        padding[axis] = (0, extent - len(first))
        lines = [np.pad(a[order], (0, extent - len(first))) for a in (first, counts)]
        inverse = rank[inverse.reshape(-1)]
        count = np.array([len(first)], np.int64)
        return np.pad(whole, padding), lines[0], inverse.astype(np.int64), lines[1], count

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (values, first, inverse, counts, count) = inputs, outputs
        assert x is not None
        extent = inverse.shape[0]
        lines = _Slices(at, x, self.axis, extent)
        with at.loop(0, extent) as i:
            at.store(first, i, integer(0))
            at.store(counts, i, integer(0))
        ranked = _by_key(at, x, extent) if self.axis is None else _by_comparison(at, lines, extent)
        found = at.register(integer(0))
        with at.loop(0, extent) as i:
            own = ranked.place(i)
            fresh = at.register(number(True, BOOL))
            with at.when(predicate(i, ">", 0)):
                at.assign(fresh, ranked.differs(i))
            with at.when(fresh):
                at.store(first, at.index(found), index_number(own))
                at.assign(found, add(found, 1))
            group = at.index(found) - 1
            at.store(inverse, own, index_number(group))
            at.store(counts, group, add(at.load(counts, group), 1))
        groups = at.index(found)
        if not self.sorted:
            _as_they_come(at, (first, inverse, counts), groups, extent)
        at.store(count, 0, found)
        lines.copy(values, first, groups)


def _ranks(x: Array) -> Array:
    """Numbers that are in the order of the elements, the same for each NaN."""
    plain = x if x.dtype.kind in "iufb" else x.astype(np.float32)
    return np.unique(plain, return_inverse=True)[1].reshape(x.shape)


def _as_they_come(
    at: AlgorithmBuilder, results: tuple[Operand, Operand, Operand], groups: Index, extent: Index
) -> None:
    """Number groups by their first members instead."""
    first, inverse, counts = results
    member, renamed = at.scratch(I64, extent), at.scratch(I64, extent)
    with at.loop(0, extent) as i:
        at.store(member, i, integer(-1))
    with at.loop(0, groups) as g:
        at.store(member, at.index(at.load(first, g)), index_number(g))
    number_ = at.register(integer(0))
    with at.loop(0, extent) as i, at.when(call("ge", at.load(member, i), integer(0))):
        at.store(renamed, at.index(at.load(member, i)), number_)
        at.store(first, at.index(number_), index_number(i))
        at.assign(number_, add(number_, 1))
    # What was counted by old numbers is counted again by the new ones.
    with at.loop(0, groups) as g:
        at.store(counts, g, integer(0))
    with at.loop(0, extent) as i:
        group = at.index(at.load(renamed, at.index(at.load(inverse, i))))
        at.store(inverse, i, index_number(group))
        at.store(counts, group, add(at.load(counts, group), 1))


class _Ranked(Protocol):
    """Slices in ascending order."""

    def place(self, rank: Index) -> Sym:
        """Which slice is at ``rank``."""
        ...

    def differs(self, rank: Index) -> Expr:
        """Whether the slice at ``rank`` is another than the one before it."""
        ...


@dataclass(frozen=True)
class _Keyed:
    """Elements that were sorted by key, from ``begin`` on."""

    at: AlgorithmBuilder
    pairs: KeyedPlaces
    begin: Index

    def place(self, rank: Index) -> Sym:
        return self.at.index(self.pairs.place(self.at, self.begin + rank))

    def differs(self, rank: Index) -> Expr:
        own, other = (self.pairs.key(self.at, self.begin + r) for r in (rank, rank - 1))
        return call("ne", own, other)


@dataclass(frozen=True)
class _Compared:
    """Slices that were sorted by comparison."""

    at: AlgorithmBuilder
    lines: _Slices
    order: Buffer

    def place(self, rank: Index) -> Sym:
        return self.at.index(self.at.load(self.order, rank))

    def differs(self, rank: Index) -> Expr:
        return self.lines.less(self.place(rank - 1), self.place(rank))


def _by_key(at: AlgorithmBuilder, x: Operand, extent: Index) -> _Ranked:
    pairs = keyed_places(at, KeyOrder(x.dtype), extent)
    with at.loop(0, extent) as i:
        pairs.put(at, i, pairs.order.of(at, at.load(x, i)), index_number(i))
    return _Keyed(at, pairs, radix_sort(at, pairs, extent))


def _by_comparison(at: AlgorithmBuilder, lines: _Slices, extent: Index) -> _Ranked:
    order, spare = at.scratch(I64, extent), at.scratch(I64, extent)
    with at.loop(0, extent) as i:
        at.store(order, i, index_number(i))
    sort_indices(at, order, spare, extent, lines.less)
    return _Compared(at, lines, order)


class _Slices:
    """Slices of a tensor along an axis, compared element by element."""

    def __init__(self, at: AlgorithmBuilder, x: Operand, axis: int | None, extent: Index) -> None:
        self._at = at
        self._x = x
        self._extent = extent
        self._outer = 1 if axis is None else product(x.shape[:axis])
        self._inner = 1 if axis is None else product(x.shape[axis + 1 :]) or 1

    def _place(self, slice_: Index, element: Index) -> Index:
        outer, inner = element // self._inner, element % self._inner
        return (outer * self._extent + slice_) * self._inner + inner

    def less(self, a: Sym, b: Sym) -> Expr:
        """Whether slice ``a`` comes before slice ``b``."""
        at, x = self._at, self._x
        size = self._outer * self._inner
        if size == 1:
            return at.let(below(at.load(x, a), at.load(x, b)))
        result = at.register(number(False, BOOL))
        place = at.register(integer(0))
        with at.while_(call("lt", place, index_number(size))):
            element = at.index(place)
            left = at.let(at.load(x, self._place(a, element)))
            right = at.let(at.load(x, self._place(b, element)))
            at.assign(place, add(place, 1))
            smaller = at.let(below(left, right))
            with at.when(call("or", smaller, below(right, left))):
                at.assign(result, smaller)
                at.assign(place, index_number(size))
        return result

    def copy(self, target: Operand, places: Operand, groups: Index) -> None:
        """``target`` with the slices at the first ``groups`` of ``places``, zeros behind."""
        at, x, inner = self._at, self._x, self._inner
        with at.loop(0, self._outer) as outer:
            start = outer * self._extent
            with at.loop(0, groups) as g:
                source = at.index(at.load(places, g))
                at.copy(target, (start + g) * inner, x, (start + source) * inner, inner)
            rest = (self._extent - groups) * inner
            at.fill(target, (start + groups) * inner, rest, number(0, x.dtype))


OPS: tuple[type[Op], ...] = (Unique,)
