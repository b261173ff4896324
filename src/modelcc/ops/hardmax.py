"""Hardmax: 1 at the first greatest element along an axis; of rows by one pass and a search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, call, convert, number, predicate, splat
from modelcc.ir.compute import (
    Element,
    Inputs,
    Operand,
    Outputs,
    StageBuilder,
    apply,
    index_value,
    select,
)
from modelcc.ir.compute import number as constant
from modelcc.ir.index import Index, product
from modelcc.ir.loop import Expr
from modelcc.ir.op import Op, Sample, require
from modelcc.ir.types import I64, Array, TensorType
from modelcc.ops.accumulate import Point, accumulator
from modelcc.ops.attention import AxisOp
from modelcc.ops.extremes import CHUNK, Extreme, search
from modelcc.ops.reduce import ArgMax
from modelcc.ops.samples import sample


def _rank(sample: Sample) -> int:
    (x,) = sample.operands
    assert x is not None
    return len(x.shape)


def _edges() -> Iterator[Array]:
    """Rows of several chunks: the place at either end of one, equals, NaN, nothing greater."""
    x = np.zeros((9, 2 * CHUNK + 11), np.float32)
    places = (0, CHUNK - 1, CHUNK, 2 * CHUNK - 1, 2 * CHUNK, x.shape[1] - 1)
    x[range(len(places)), places] = 1
    x[6, [70, 75, 130]] = np.nan
    x[7] = -np.inf
    x[8, [3, 66, 138]] = 7
    yield x
    yield x.astype(np.float64)[:, :CHUNK]


@dataclass(frozen=True)
class Hardmax(AxisOp):
    """1 at the first greatest element along ``axis``, 0 elsewhere; NaN is the greatest."""

    differentiable = False
    samples = (
        *AxisOp.samples,
        sample(np.array([[1, np.nan, 3, np.nan], [2, 2, 1, 0]], np.float32), axis=1),
        sample(np.array([[1, np.nan], [3, 2], [3, np.nan]], np.float32), axis=0),
    )

    def reference(self, x: Array) -> Array:
        if not x.shape[self.axis]:
            return np.zeros_like(x)
        first = np.expand_dims(np.argmax(x, axis=self.axis), self.axis)
        result = np.zeros_like(x)
        np.put_along_axis(result, first, np.ones((), x.dtype), axis=self.axis)
        return result

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        first = ArgMax(self.axis, keepdims=True).compute(at, x)

        def body(o: Point) -> Element:
            here = index_value(o[self.axis], I64)
            kept = (*o[: self.axis], 0, *o[self.axis + 1 :])
            return select(apply("eq", here, first[kept]), constant(1, x.dtype), 0)

        return at.stage(x.shape, body)


@dataclass(frozen=True)
class RowHardmax(AxisOp):
    """:class:`Hardmax` along the last axis: the place of the 1 is searched for in each row."""

    differentiable = False
    samples = (
        *(s for s in Hardmax.samples if s.attributes["axis"] == _rank(s) - 1),
        *(sample(x, axis=1) for x in _edges()),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(self.axis == x.rank - 1, f"RowHardmax along axis {self.axis} of {x}")
        return super().infer(x)

    def reference(self, x: Array) -> Array:
        return Hardmax(self.axis).reference(x)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (y,) = inputs, outputs
        assert x is not None
        extent = x.shape[-1]
        with at.shared_loop(product(x.shape[:-1]), x.type.elements) as row:
            _mark(at, _Row(x, y, row * extent, extent))


@dataclass(frozen=True)
class _Row:
    """``extent`` elements of x from ``start`` on, and those of y."""

    x: Operand
    y: Operand
    start: Index
    extent: Index

    def read(self, at: AlgorithmBuilder, place: Index, lanes: int) -> Expr:
        """Neighbouring elements from that at ``place`` on."""
        own = at.load(self.x, self.start + place, lanes)
        return at.let(convert(own, accumulator(self.x.dtype)))

    def write(self, at: AlgorithmBuilder, place: Index, value: Expr) -> None:
        """Set neighbouring results from that at ``place`` on."""
        at.store(self.y, self.start + place, convert(value, self.y.dtype))


def _mark(at: AlgorithmBuilder, row: _Row) -> None:
    """Zeros and the extreme in one pass; then a 1 at the place that a search finds."""
    best = _extreme_of_zeroed(at, row)

    def found(own: Expr) -> Expr:
        return call("or", call("eq", own, splat(best, own.lanes)), call("isnan", own))

    place = search(at, lambda place, lanes: row.read(at, place, lanes), row.extent, found)
    with at.when(predicate(row.extent, ">", 0)):
        row.write(at, at.index(place), number(1, row.y.dtype))


def _extreme_of_zeroed(at: AlgorithmBuilder, row: _Row) -> Expr:
    """The greatest element, NaN if there is one; all results become 0."""
    wide = accumulator(row.x.dtype)
    vectors, single = (Extreme(at, "max", number(-np.inf, wide), n) for n in (at.lanes, 1))
    for place, lanes in at.vectors(row.extent):
        own = row.read(at, place, lanes)
        (single if lanes == 1 else vectors).take_in(own)
        row.write(at, place, number(0, wide, lanes))
    single.take_in(vectors.of_all())
    return single.of_all()


OPS: tuple[type[Op], ...] = (Hardmax, RowHardmax)
