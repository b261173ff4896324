"""Slice and its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, guard
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Expr, Index, Sym, compare, maximum, mod
from modelcc.ir.narrowing import FOLLOWS
from modelcc.ir.op import Builder, Gradients, Op, Values, require, same_dtype
from modelcc.ir.quantized_form import MOVES, QuantizedForm
from modelcc.ir.tensor import Condition
from modelcc.ir.types import I64, Array, TensorType
from modelcc.ops.broadcast import Reshape, dim_bounds, numbers
from modelcc.ops.generate import filled
from modelcc.ops.samples import sample, tensor

Point = tuple[Index, ...]


@dataclass(frozen=True)
class Slice(Op):
    """``result[i] = x[starts + i * steps]`` for ``i < extents``; steps may be negative."""

    narrowing = FOLLOWS
    starts: tuple[Index, ...]
    extents: tuple[Index, ...]
    steps: tuple[Index, ...]
    symbolic = True
    samples = (
        sample(tensor(5), starts=(1,), extents=(3,), steps=(1,)),
        sample(tensor(5), starts=(4,), extents=(3,), steps=(-2,)),
        sample(tensor(4, "n"), starts=(0, 1), extents=(2, Sym("n") - 1), steps=(2, 1)),
        sample(tensor(3, 2), starts=(3, 0), extents=(0, 2), steps=(1, 1)),
        sample(tensor(), starts=(), extents=(), steps=()),
        sample(tensor(4, dtype=I64), starts=(3,), extents=(4,), steps=(-1,)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        given = {len(self.starts), len(self.extents), len(self.steps)}
        require(given == {x.rank}, f"Slice needs one start, extent and step per axis of {x}")
        bounds = dim_bounds(x.shape, self.starts, self.extents)
        for axis, (start, extent, step) in enumerate(
            zip(self.starts, self.extents, self.steps, strict=True)
        ):
            last = start + (extent - 1) * step
            outside = any(
                compare(place, "<", 0, bounds) or compare(place, ">=", x.shape[axis], bounds)
                for place in (start, last)
            )
            require(
                extent == 0 or not outside or (x.shape[axis] == 0 and isinstance(extent, Expr)),
                f"Slice takes elements {start} to {last} of axis {axis} of {x}",
                f"that axis has {x.shape[axis]} elements",
            )
        return (TensorType(self.extents, x.dtype),)

    def reference(self, x: Array) -> Array:
        return x[_picks(self.starts, self.extents, self.steps)].copy()

    def source(self, o: Sequence[Index]) -> Point:
        """Index into the operand of result element ``o``."""
        return tuple(
            start + i * step for i, start, step in zip(o, self.starts, self.steps, strict=True)
        )

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        return at.stage(self.extents, lambda o: x[self.source(o)])

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        shape = build.type_of(x).shape
        return (build.emit(Unslice(self.starts, self.steps, shape), dys[0]),)

    def quantize(self) -> QuantizedForm:
        return MOVES


def _picks(
    starts: Sequence[Index], extents: Sequence[Index], steps: Sequence[Index]
) -> tuple[Array | EllipsisType, ...]:
    """The NumPy index that takes ``starts + i * steps``."""
    if not starts:
        return (...,)
    lines = zip(numbers(starts), numbers(extents), numbers(steps), strict=True)
    return np.ix_(*(start + np.arange(extent) * step for start, extent, step in lines))


@dataclass(frozen=True)
class Unslice(Op):
    """The transpose of :class:`Slice`: x at ``starts + i * steps`` of zeros of ``shape``."""

    starts: tuple[Index, ...]
    steps: tuple[Index, ...]
    shape: tuple[Index, ...]
    samples = (
        sample(tensor(3), starts=(1,), steps=(1,), shape=(5,)),
        sample(tensor(3), starts=(4,), steps=(-2,), shape=(5,)),
        sample(tensor("n", 2), starts=(1, 0), steps=(1, 3), shape=(Sym("n") + 2, 4)),
        sample(tensor(), starts=(), steps=(), shape=()),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        Slice(self.starts, x.shape, self.steps).infer(TensorType(self.shape, x.dtype))
        return (TensorType(self.shape, x.dtype),)

    def shape_constraints(self, x: TensorType) -> Constraints:
        """The last element of each axis goes to a place within the shape."""
        rows = zip(self.starts, self.steps, x.shape, self.shape, strict=True)
        ends = ((start + step * (count - 1), step, extent) for start, step, count, extent in rows)
        return tuple(
            (last, "<", extent) if step > 0 else (last, ">=", 0)
            for last, step, extent in ends
            if isinstance(step, int)
        )

    def reference(self, x: Array) -> Array:
        result = np.zeros(numbers(self.shape), x.dtype)
        result[_picks(self.starts, x.shape, self.steps)] = x
        return result

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        def body(o: Point) -> Element:
            place: list[Index] = []
            conditions: list[Condition] = []
            for axis, (i, start, step) in enumerate(zip(o, self.starts, self.steps, strict=True)):
                offset = i - start if isinstance(step, int) and step > 0 else start - i
                stride = maximum(step, -step)
                place.append(offset // stride)
                conditions += inside(place[-1], 0, x.shape[axis], self.shape[axis])
                if stride != 1:
                    conditions.append(Condition(mod(offset, stride), "==", 0))
            return guard(conditions, x[tuple(place)], 0)

        return at.stage(self.shape, body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        return (build.emit(Slice(self.starts, build.type_of(x).shape, self.steps), dys[0]),)


@dataclass(frozen=True)
class ReplaceSlice(Op):
    """x with y put at ``starts``: ``result[starts + i] = y[i]``, the other elements those of x."""

    starts: tuple[Index, ...]
    samples = (
        sample(tensor(5), tensor(2), starts=(3,)),
        sample(tensor(4, "n"), tensor(2, 1), starts=(1, Sym("n") - 1)),
        sample(tensor(2, 3, 4, dtype=I64), tensor(2, 1, 4, dtype=I64), starts=(0, 2, 0)),
        sample(tensor(2, 2), tensor(0, 2), starts=(1, 0)),
        sample(tensor(), tensor(), starts=()),
    )

    def infer(self, x: TensorType, y: TensorType) -> tuple[TensorType]:
        require(x.rank == y.rank == len(self.starts), f"{y} at {self.starts} is no part of {x}")
        dtype = same_dtype(x, y)
        Slice(self.starts, y.shape, (1,) * y.rank).infer(x)
        return (TensorType(x.shape, dtype),)

    def shape_constraints(self, x: TensorType, y: TensorType) -> Constraints:
        """The part lies inside."""
        rows = list(zip(self.starts, y.shape, x.shape, strict=True))
        last: Constraints = tuple((a + n, "<=", e) for a, n, e in rows if (a, n) != (0, e))
        return (*((a, ">=", 0) for a in self.starts if a != 0), *last)

    def reference(self, x: Array, y: Array) -> Array:
        result, starts = x.copy(), numbers(self.starts)
        result[tuple(slice(a, a + n) for a, n in zip(starts, y.shape, strict=True))] = y
        return result

    def compute(self, at: StageBuilder, x: Operand, y: Operand) -> Operand:
        def body(o: Point) -> Element:
            rows = list(zip(o, self.starts, y.shape, x.shape, strict=True))
            conditions = [c for i, a, n, e in rows for c in inside(i - a, 0, n, e)]
            return guard(conditions, y[tuple(i - a for i, a, _, _ in rows)], x[o])

        return at.stage(x.shape, body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        _, y = inputs
        shape = build.type_of(y).shape
        own = build.emit(Slice(self.starts, shape, (1,) * len(shape)), dys[0])
        return build.emit(self, dys[0], filled(build, y)), own


@dataclass(frozen=True)
class At(Op):
    """``x`` at ``position`` along ``axis``, which is gone: ``result[i, j] = x[i, position, j]``.

    Positions that are no numbers are taken to lie inside.
    """

    axis: int
    position: Index
    samples = (
        sample(tensor(4), axis=0, position=2),
        sample(tensor(3, "n", 2), axis=1, position=Sym("n") - 1),
        sample(tensor("n", 2, dtype=I64), axis=0, position=0),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(0 <= self.axis < x.rank, f"{x} has no axis {self.axis}")
        extent, at = x.shape[self.axis], self.position
        inside = not isinstance(extent, int) or not isinstance(at, int) or 0 <= at < extent
        require(inside, f"there is no element {at} along axis {self.axis} of {x}")
        return (TensorType((*x.shape[: self.axis], *x.shape[self.axis + 1 :]), x.dtype),)

    def reference(self, x: Array) -> Array:
        assert isinstance(self.position, int)
        return np.asarray(np.take(x, self.position, self.axis))

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)
        k = self.axis
        return at.stage(result.shape, lambda o: x[(*o[:k], self.position, *o[k:])])

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x = build.type_of(inputs[0])
        zeros = filled(build, inputs[0])
        part = (*x.shape[: self.axis], 1, *x.shape[self.axis + 1 :])
        starts = tuple(self.position if a == self.axis else 0 for a in range(x.rank))
        return (build.emit(ReplaceSlice(starts), zeros, build.emit(Reshape(part), dys[0])),)


def inside(place: Index, low: Index, high: Index, extent: Index) -> list[Condition]:
    """What must hold for ``low <= place < high``; nothing where place is an axis of that range."""
    if low == 0 and high == extent and isinstance(place, Sym):
        return []
    return [Condition(place, ">=", low), Condition(place, "<", high)]


OPS: tuple[type[Op], ...] = (Slice, Unslice, ReplaceSlice, At)
