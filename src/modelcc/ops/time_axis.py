"""Ops that move elements along a time axis by positions known at run time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, select
from modelcc.ir.index import Index
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Values, require, same_dtype
from modelcc.ir.types import I32, I64, Array, TensorType
from modelcc.ops.accumulate import Point
from modelcc.ops.arithmetic import Cast, Mod, Value, of
from modelcc.ops.broadcast import Reshape, with_axis
from modelcc.ops.gather_elements import GatherElements
from modelcc.ops.generate import Indices, Iota, filled
from modelcc.ops.runtime_index import require_integer
from modelcc.ops.samples import sample, tensor


@dataclass(frozen=True)
class ReverseSequence(Op):
    """x with the first ``lengths[b]`` elements along the time axis in reverse order, for each b."""

    batch_axis: int
    time_axis: int
    samples = (
        sample(tensor(3, 4), np.array([1, 3, 4]), batch_axis=0, time_axis=1),
        sample(tensor(4, 2, "n"), np.array([4, 2]), batch_axis=1, time_axis=0),
        sample(tensor(2, 3, dtype=I32), np.array([2, 0]), batch_axis=0, time_axis=1),
    )

    def infer(self, x: TensorType, lengths: TensorType) -> tuple[TensorType]:
        require_integer(lengths, "ReverseSequence")
        axes = (self.batch_axis, self.time_axis)
        require(
            len(set(axes)) == 2 and all(0 <= a < x.rank for a in axes) and lengths.rank == 1,
            f"ReverseSequence along axis {self.time_axis} of {x} needs one length for each of "
            f"axis {self.batch_axis}, not {lengths}",
        )
        self.require_meetings(x, lengths)
        return (TensorType(x.shape, x.dtype),)

    def meetings(self, x: TensorType, lengths: TensorType) -> Iterator[Meeting]:
        yield x.shape[self.batch_axis], lengths.shape[0], "lengths of ReverseSequence"

    def reference(self, x: Array, lengths: Array) -> Array:
        moved = np.moveaxis(x, (self.batch_axis, self.time_axis), (0, 1))
        result = moved.copy()
        for b, length in enumerate(lengths):
            result[b, :length] = moved[b, :length][::-1]
        return np.ascontiguousarray(np.moveaxis(result, (0, 1), (self.batch_axis, self.time_axis)))

    def compute(self, at: StageBuilder, x: Operand, lengths: Operand) -> Operand:
        along = f"lengths from 0 to all of axis {self.time_axis} of {x.name!r}"
        bound = IndexBound(x.shape[self.time_axis] + 1, along, "length")

        def body(o: Point) -> Element:
            return at.gather(
                lengths[o[self.batch_axis]], lambda length: reversed_at(o, length), bound
            )

        def reversed_at(o: Point, length: Index) -> Element:
            t, end = (index_value(i, I64) for i in (o[self.time_axis], length))
            source = select(t < end, end - 1 - t, t)  # of the axis, as the length fits it
            return at.gather(source, lambda i: x[with_axis(o, self.time_axis, i)], None)

        return at.stage(x.shape, body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """The reversal is its own inverse."""
        return build.emit(self, dys[0], inputs[1]), None


@dataclass(frozen=True)
class CacheUpdate(Op):
    """``cache`` with ``update`` put at positions ``starts[b]`` and following along ``axis``.

    Axis 0 is the batch; without ``starts`` they are 0.  In a ``circular`` cache positions wrap.
    """

    axis: int
    circular: bool = False
    samples = (
        sample(tensor(2, 5, 3), tensor(2, 2, 3), np.array([1, 3]), axis=1),
        sample(tensor(2, 4, "n"), tensor(2, 3, "n"), np.array([3, 0]), axis=1, circular=True),
        sample(tensor(1, 2, 4), tensor(1, 2, 2), None, axis=2),
    )

    def infer(
        self, cache: TensorType, update: TensorType, starts: TensorType | None = None
    ) -> tuple[TensorType]:
        same_dtype(cache, update)
        require(
            cache.rank == update.rank and 0 < self.axis < cache.rank,
            f"a cache {cache} cannot be updated along axis {self.axis} by {update}",
        )
        self.require_meetings(cache, update)
        if starts is not None:
            require_integer(starts, "CacheUpdate")
            require(starts.rank == 1, f"the starts of an update must be a vector, not {starts}")
        return (TensorType(cache.shape, cache.dtype),)

    def meetings(
        self, cache: TensorType, update: TensorType, starts: TensorType | None = None
    ) -> Iterator[Meeting]:
        for a, (one, other) in enumerate(zip(cache.shape, update.shape, strict=True)):
            if a != self.axis:
                yield one, other, f"extents of the cache and its update along axis {a}"
        if starts is not None:
            yield starts.shape[0], cache.shape[0], f"starts of an update of {cache}"

    def reference(self, cache: Array, update: Array, starts: Array | None = None) -> Array:
        result = np.moveaxis(cache.copy(), self.axis, 1)
        given = np.moveaxis(update, self.axis, 1)
        for b in range(len(result)):
            start = 0 if starts is None else int(starts[b])
            for i, row in enumerate(given[b], start):
                result[b, i % result.shape[1] if self.circular else i] = row
        return np.ascontiguousarray(np.moveaxis(result, 1, self.axis))

    def compute(
        self, at: StageBuilder, cache: Operand, update: Operand, starts: Operand | None = None
    ) -> Operand:
        """The new rows alone are written."""
        extent, count = cache.shape[self.axis], update.shape[self.axis]
        room = f"starts of an update along axis {self.axis} of {cache.name!r}"
        bound = IndexBound(extent - count + 1, room, "start")

        def places(o: Point) -> Sequence[tuple[Element, IndexBound | None]]:
            start = index_value(0, I64) if starts is None else starts[o[0]].cast(I64)
            if not self.circular:
                return [(start, bound)]
            return [(apply("mod", start + index_value(o[self.axis], I64), whole), None)]

        def write(o: Point, found: Point) -> Point:
            (place,) = found
            return with_axis(o, self.axis, place if self.circular else place + o[self.axis])

        whole = index_value(extent, I64)
        return at.scatter(cache, update.shape, places, write, lambda o: update[o])

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        cache, update, *starts = inputs
        type = build.type_of(update)
        zeros = filled(build, update)
        places = Value(build, build.emit(Iota(type.shape, self.axis)))
        for name in filter(None, starts):
            shape = (type.shape[0], *(1,) * (type.rank - 1))
            first = of(Cast(I64), Value(build, build.emit(Reshape(shape), name)))
            places = places + first
        if self.circular:
            extent = build.emit(Indices((build.type_of(cache).shape[self.axis],), ()))
            places = of(Mod(), places, Value(build, extent))
        dupdate = build.emit(GatherElements(self.axis), dys[0], places.name)
        return build.emit(self, dys[0], zeros, *starts), dupdate, *(None for _ in starts)


OPS: tuple[type[Op], ...] = (ReverseSequence, CacheUpdate)
