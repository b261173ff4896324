"""Tile by numbers that a run finds: runs of elements that grow as they are repeated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, call, index_number, predicate, splat
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.index import Index, Sym, product
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.types import I64, U8, Array, TensorType
from modelcc.ops.broadcast import numbers
from modelcc.ops.samples import sample, tensor
from modelcc.ops.shape import Tile
from modelcc.ops.window import row_major


@dataclass(frozen=True)
class LateTile(Op):
    """x, of two axes or more, repeated ``repeats`` times along each axis.

    What is repeated is written once, and then read where it was written: from the last axis on,
    whose rows are few elements, to longer and longer runs.
    """

    repeats: tuple[Index, ...]
    samples = (
        sample(tensor(3, 5), repeats=(2, 3)),
        sample(tensor(2, "n", 3), repeats=(2, 3, 1)),
        sample(tensor(2, 1, dtype=U8), repeats=(1, 21)),
        sample(tensor(3, 2, 9, dtype=I64), repeats=(Sym("n"), 1, 3)),
        sample(tensor(2, 3, 4), repeats=(2, 0, 1)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        fits = len(self.repeats) == x.rank >= 2
        require(fits, f"LateTile of {x} by {len(self.repeats)} numbers")
        shape = tuple(e * r for e, r in zip(x.shape, self.repeats, strict=True))
        return (TensorType(shape, x.dtype),)

    def reference(self, x: Array) -> Array:
        return np.tile(x, numbers(self.repeats))

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        return Tile(self.repeats).grad(build, dys, inputs, outputs)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (y,) = inputs, outputs
        assert x is not None
        if at.capacity.groups is not None:
            with at.each(y.shape) as (element, places):
                own = [place % (extent or 1) for place, extent in zip(places, x.shape, strict=True)]
                at.store(y, element, at.load(x, row_major(own, x.shape)))
            return
        work, rows, times = y.type.elements, x.shape[0], self.repeats[0]
        tiles = _Tiles(at, x, y, self.repeats)
        size = tiles.size(0)
        shares = at.capacity.shares
        with (
            at.shared_loop(shares, work) as share,
            at.when(predicate(work, ">", 0)),
            at.loop(share * rows // shares, (share + 1) * rows // shares) as row,
        ):
            tiles.make(1, row * product(x.shape[1:]), row * size)
            with at.loop(1, times) as n:
                at.copy(y, (n * rows + row) * size, y, row * size, size)


@dataclass(frozen=True)
class _Tiles:
    at: AlgorithmBuilder
    x: Operand
    y: Operand
    repeats: tuple[Index, ...]

    def size(self, axis: int) -> Index:
        """Results of one index of ``axis``."""
        return product(self.y.shape[axis + 1 :])

    def make(self, axis: int, source: Index, target: Index) -> None:
        """The results from ``target`` on of what lies within ``axis`` from ``source`` on."""
        at, (*_, last) = self.at, self.x.shape
        if axis == len(self.repeats) - 1:
            at.copy(self.y, target, self.x, source, last)
            self._repeat(target, last, self.repeats[-1])
            return
        within, size = product(self.x.shape[axis + 1 :]), self.size(axis)
        with at.loop(0, self.x.shape[axis]) as i:
            self.make(axis + 1, source + i * within, target + i * size)
        self._repeat(target, self.x.shape[axis] * size, self.repeats[axis])

    def _repeat(self, start: Index, length: Index, times: Index) -> None:
        """Results from ``start`` on, ``times`` in all: what there is twice over is more."""
        at, y = self.at, self.y
        with at.when(predicate(length, "==", 1)):
            element = at.let(at.load(y, start))
            for place, lanes in at.vectors(times):
                at.store(y, start + place, splat(element, lanes))
        with at.when(predicate(length, ">", 1)):
            done, end = at.register(index_number(length)), index_number(length * times)
            with at.while_(call("lt", done, end)):
                count = at.index(call("min", done, call("sub", end, done)))
                at.copy(y, start + at.index(done), y, start, count)
                at.assign(done, call("add", done, index_number(count)))


OPS: tuple[type[Op], ...] = (LateTile,)
