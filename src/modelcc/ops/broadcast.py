"""Reshape, Expand, and the sum that undoes an Expand: what gradients of broadcasting need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, guard
from modelcc.ir.condition import Condition, Constraints
from modelcc.ir.index import (
    DIM,
    Bounds,
    Index,
    Range,
    Sym,
    compare,
    floordiv,
    loop_range,
    minimum,
    mod,
    product,
    simplify,
    symbols,
)
from modelcc.ir.narrowing import FOLLOWS
from modelcc.ir.op import Builder, Gradients, Op, Sample, Values, broadcast_shapes, require
from modelcc.ir.quantized_form import MOVES, QuantizedForm
from modelcc.ir.scalar import Combine
from modelcc.ir.types import BF16, BOOL, F16, I64, Array, DType, TensorType
from modelcc.ops.accumulate import accumulator, combined, require_numeric, widen
from modelcc.ops.samples import bounded, sample, tensor


def shape_text(shape: Sequence[Index]) -> str:
    """A shape as users write it: ``[2, n, 3]``."""
    return f"[{', '.join(map(str, shape))}]"


def with_axis(values: Sequence[Index], axis: int, value: Index) -> tuple[Index, ...]:
    """``values`` of axes, or indices, with another one for ``axis`` (not negative)."""
    return (*values[:axis], value, *values[axis + 1 :])


def numbers(values: Sequence[Index]) -> tuple[int, ...]:
    """``values`` as ints; :class:`ModelError` if one has no value before the model runs."""
    static = tuple(v for v in values if isinstance(v, int))
    require(
        len(static) == len(values),
        f"{shape_text(values)} has named dimensions where numbers are needed",
        "substitute their sizes first",
    )
    return static


def dim_bounds(*shapes: Sequence[Index]) -> dict[str, Range]:
    """Every symbol of ``shapes`` is a dimension."""
    return {s: DIM for shape in shapes for e in shape for s in sorted(symbols(e))}


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements in row-major order under another ``shape``."""

    narrowing = FOLLOWS
    symbolic = True
    shape: tuple[Index, ...]
    samples = (
        sample(tensor(2, 6), shape=(3, 4)),
        sample(tensor(2, "n", 3), shape=(2, Sym("n") * 3)),
        sample(tensor("n", 12), shape=(Sym("n"), 3, 2, 2)),
        sample(tensor("n", 4), shape=(Sym("n") * 2, 2)),
        sample(tensor(2, 1, 3, dtype=I64), shape=(6, 1)),
        sample(tensor(), shape=(1, 1)),
        sample(tensor(1, 1, dtype=BOOL), shape=()),
        sample(tensor(4, 6), shape=(3, 8)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        old, new = product(x.shape), product(self.shape)
        same = compare(old, "==", new, dim_bounds(x.shape, self.shape))
        require(
            same is not False or 0 in (old, new),
            f"cannot reshape {x} ({old} elements) to {shape_text(self.shape)} ({new} elements)",
            "the number of elements must stay the same",
        )
        return (TensorType(self.shape, x.dtype),)

    def shape_constraints(self, *xs: TensorType | None) -> Constraints:
        """The numbers of elements, where no rule tells that they are the same."""
        (x,) = (t for t in xs if t is not None)
        old, new = product(x.shape), product(self.shape)
        return (
            () if compare(old, "==", new, dim_bounds(x.shape, self.shape)) else ((old, "==", new),)
        )

    def reference(self, x: Array) -> Array:
        return x.reshape(numbers(self.shape))

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        bounds = dim_bounds(x.shape, self.shape)

        if compare(product(x.shape), "==", product(self.shape), bounds) is None:
            return x  # sizes read at run time: a view, which is as large as x

        def body(o: tuple[Index, ...]) -> Element:
            return x[reshaped_place(o, self.shape, x.shape, bounds)]

        return at.stage(self.shape, body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        return (build.emit(Reshape(build.type_of(x).shape), dys[0]),)

    def quantize(self) -> QuantizedForm:
        return MOVES


def reshaped_place(
    o: Sequence[Index], new: Sequence[Index], old: Sequence[Index], dims: Bounds
) -> tuple[Index, ...]:
    """Indices into ``old`` of element ``o`` of ``new``, both row-major."""
    if 0 in old:
        return (0,) * len(old)
    bounds = {
        **dims,
        **{i.name: loop_range(e) for i, e in zip(o, new, strict=True) if isinstance(i, Sym)},
    }
    result: list[Index] = []
    for ours, theirs in _matching_groups(new, old):
        linear: Index = 0
        for axis in ours:
            linear = linear * new[axis] + o[axis]
        for position, axis in enumerate(theirs):
            stride = product(old[a] for a in theirs[position + 1 :])
            index = floordiv(linear, stride)
            index = mod(index, old[axis]) if position else index
            result.append(0 if old[axis] == 1 else simplify(index, bounds))
    return tuple(result)


def _matching_groups(
    new: Sequence[Index], old: Sequence[Index]
) -> Iterator[tuple[list[int], list[int]]]:
    """Shortest runs of axes of both shapes with equal products, so indices stay separate."""
    first, start = 0, 0
    for i in range(len(new)):
        for j in range(start, len(old)):
            ours, theirs = list(range(first, i + 1)), list(range(start, j + 1))
            if product(new[a] for a in ours) == product(old[a] for a in theirs):
                yield ours, theirs
                first, start = i + 1, j + 1
                break
    rest = list(range(first, len(new))), list(range(start, len(old)))
    if rest[0] or rest[1]:
        yield rest


@dataclass(frozen=True)
class Expand(Op):
    """NumPy broadcasting of x to exactly ``shape``."""

    narrowing = FOLLOWS
    symbolic = True
    shape: tuple[Index, ...]
    samples = (
        sample(tensor(3, 1), shape=(2, 3, 4)),
        sample(tensor("n"), shape=(2, Sym("n"))),
        sample(tensor(), shape=(2, 2)),
        sample(tensor(2, 1, dtype=BOOL), shape=(2, 1)),
        sample(tensor(), shape=()),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        wide = broadcast_shapes(x.shape, self.shape)
        require(
            wide == self.shape
            or (len(wide) == len(self.shape) and not TensorType(wide, x.dtype).is_static),
            f"{x} does not broadcast to {shape_text(self.shape)}",
        )
        return (TensorType(self.shape, x.dtype),)

    def shape_constraints(self, *xs: TensorType | None) -> Constraints:
        """Each extent is 1 or that of the result."""
        (shape,) = (x.shape for x in xs if x is not None)
        pairs = zip(shape, self.shape[len(self.shape) - len(shape) :], strict=True)
        return tuple(
            ((old - 1) * (old - new), "==", 0) for old, new in pairs if old not in (1, new)
        )

    def reference(self, x: Array) -> Array:
        return np.broadcast_to(x, numbers(self.shape)).copy()

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        return at.stage(self.shape, lambda o: self._element(o, x))

    def _element(self, o: Sequence[Index], x: Operand) -> Element:
        """One of x; a named extent may turn out to be 1.

        Along the last axis that is a guard, since vectors are read in rows.
        """
        source = self._source(o, x.shape)
        last = x.shape[-1] if x.shape else 1
        if isinstance(last, int) or last == self.shape[-1]:
            return x[source]
        whole = Condition(last, "==", self.shape[-1])
        return guard([whole], x[(*source[:-1], o[-1])], x[(*source[:-1], 0)])

    def _source(self, o: Sequence[Index], shape: Sequence[Index]) -> tuple[Index, ...]:
        """Where ``o`` is read; a named extent may turn out to be 1."""
        places: list[Index] = []
        lead = len(o) - len(shape)
        for i, old, new in zip(o[lead:], shape, self.shape[lead:], strict=True):
            fits = old == new or isinstance(old, int)
            places.append(0 if old == 1 else i if fits else minimum(i, old - 1))
        return tuple(places)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        return (unbroadcast(build, dys[0], build.type_of(x).shape),)

    def quantize(self) -> QuantizedForm:
        return MOVES


@dataclass(frozen=True)
class Reduction(Op):
    """Base: combines ``term(x[…])`` over ``axes``, then applies ``finish``.

    Reduced axes have extent 1 in the result if ``keepdims``, else they are dropped.  Sums of
    floats narrower than 32 bits are kept in f32.
    """

    axes: tuple[int, ...]
    keepdims: bool = True
    combine: ClassVar[Combine] = "sum"

    def term(self, x: Element) -> Element:
        """What is combined for one element of x."""
        return x

    def finish(self, total: Element, count: Index) -> Element:
        """The result from the combination of ``count`` terms."""
        return total

    def check(self, dtype: DType) -> None:
        """Refuse element types the reduction has no meaning for."""
        require_numeric(dtype, type(self).__name__)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        self.check(x.dtype)
        for axis in self.axes:
            require(
                0 <= axis < x.rank,
                f"{type(self).__name__} over axis {axis} of {x}, which has rank {x.rank}",
            )
        require(len(set(self.axes)) == len(self.axes), f"axes {self.axes} repeat an axis")
        return (TensorType(self.result_shape(x.shape), x.dtype),)

    def result_shape(self, shape: Sequence[Index]) -> tuple[Index, ...]:
        """The result's shape for an operand of ``shape``."""
        if self.keepdims:
            return tuple(1 if a in self.axes else e for a, e in enumerate(shape))
        return tuple(e for a, e in enumerate(shape) if a not in self.axes)

    def kept_shape(self, shape: Sequence[Index]) -> tuple[Index, ...]:
        """The result's shape if reduced axes are kept with extent 1."""
        return tuple(1 if a in self.axes else e for a, e in enumerate(shape))

    def source(self, o: Sequence[Index], r: Sequence[Index], rank: int) -> tuple[Index, ...]:
        """Index into the operand of result element ``o`` and reduction point ``r``."""
        reduced = dict(zip(self.axes, r, strict=True))
        kept = iter(o)
        point: list[Index] = []
        for axis in range(rank):
            if axis not in reduced or self.keepdims:
                place = next(kept)
                point.append(reduced.get(axis, place))
            else:
                point.append(reduced[axis])
        return tuple(point)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        wide = accumulator(x.dtype) if self.combine in ("sum", "prod") else x.dtype
        extents = [x.shape[a] for a in self.axes]
        total = combined(
            at,
            self.result_shape(x.shape),
            extents,
            self.combine,
            lambda o, r: self.term(x[self.source(o, r, x.rank)].cast(wide)),
        )
        if wide == x.dtype and type(self).finish is Reduction.finish:
            return total
        count = product(extents)
        return at.stage(total.shape, lambda o: self.finish(total[o], count).cast(x.dtype))

    def keep(self, build: Builder, y: str, x: str) -> str:
        """``y``, a value of the result's shape, with the reduced axes of ``x`` put back as 1."""
        return (
            y if self.keepdims else build.emit(Reshape(self.kept_shape(build.type_of(x).shape)), y)
        )


def reduction_samples(low: float = -2.0, high: float = 2.0) -> tuple[Sample, ...]:
    """Axes at either end, several, none, all; named extents; extent 1; narrow floats."""

    def one(x: TensorType, axes: tuple[int, ...], keepdims: bool) -> Sample:
        return bounded((low, high), x, axes=axes, keepdims=keepdims)

    return (
        one(tensor(3, 4), (1,), True),
        one(tensor(3, 4), (0,), False),
        one(tensor(2, "n", 3), (1,), False),
        one(tensor(2, "n", 3), (0, 2), True),
        one(tensor(2, 3), (0, 1), False),
        one(tensor(3), (), True),
        one(tensor(), (), False),
        one(tensor(1, 3), (0,), False),
        one(tensor(4, 5, dtype=F16), (1,), False),
        one(tensor(4, 5, dtype=BF16), (0,), True),
    )


@dataclass(frozen=True)
class ReduceSum(Reduction):
    """The sum over ``axes``; 0 if there is nothing to add."""

    samples = (
        *reduction_samples(),
        sample(tensor(3, 4, dtype=I64), axes=(0,), keepdims=False),
        sample(tensor(3, 0), axes=(1,), keepdims=False),
    )
    symbolic = True

    def reference(self, x: Array) -> Array:
        total = np.sum(widen_numbers(x), axis=self.axes, keepdims=self.keepdims)
        return np.asarray(total, x.dtype)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> tuple[str]:
        (x,) = inputs
        kept = self.keep(build, dys[0], x)
        return (build.emit(Expand(build.type_of(x).shape), kept),)


def widen_numbers(x: Array) -> Array:
    """:func:`widen`, leaving object arrays (shape arithmetic) alone."""
    return x if x.dtype == object else widen(x)


def unbroadcast(build: Builder, dy: str, shape: tuple[Index, ...]) -> str:
    """``dy`` summed over the axes that broadcasting from ``shape`` added or stretched."""
    full = build.type_of(dy).shape
    lead = len(full) - len(shape)
    stretched = (lead + a for a, e in enumerate(shape) if e == 1 and full[lead + a] != 1)
    axes = (*range(lead), *stretched)
    total = build.emit(ReduceSum(axes, keepdims=True), dy) if axes else dy
    return build.emit(Reshape(shape), total) if build.type_of(total).shape != shape else total


def reshaped(build: Builder, x: str, shape: tuple[Index, ...]) -> str:
    """``x`` in another shape; itself where that is its shape already."""
    return x if build.type_of(x).shape == shape else build.emit(Reshape(shape), x)


OPS: tuple[type[Op], ...] = (Reshape, Expand)
