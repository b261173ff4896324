"""Running totals along an axis: sums, products, extremes, logarithms of sums of powers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import ml_dtypes
import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, call, convert, number
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.index import Index, Range, Sym, product
from modelcc.ir.loop import Expr, Select
from modelcc.ir.op import Builder, Gradients, Op, Sample, Values, require
from modelcc.ir.types import BF16, I64, Array, DType, TensorType, dtype_of
from modelcc.ops.accumulate import accumulator, require_float, require_numeric, widen
from modelcc.ops.arithmetic import Add, Mul, Value, of
from modelcc.ops.comparison import Equal, Greater, Where
from modelcc.ops.control import Loop
from modelcc.ops.gather_elements import ScatterElements
from modelcc.ops.generate import Full, Indices, Iota, filled
from modelcc.ops.group_scan import RunningTotals, running_totals
from modelcc.ops.padding import Pad
from modelcc.ops.samples import sample, tensor
from modelcc.ops.slicing import At
from modelcc.ops.transcendental import Exp, Log

CHAINS = 2
"""Vectors of rows that are totalled at once where rows lie side by side: none waits for another."""


def _is_sum_of_floats(sample: Sample) -> bool:
    floats = all(isinstance(x, TensorType) and x.dtype.is_float for x in sample.operands)
    return floats and not sample.attributes["exclusive"]


@dataclass(frozen=True)
class _Cumulative(Op):
    """Base: totals of the elements up to each one along ``axis``, in O(1) for an element.

    ``exclusive`` leaves the element itself out, ``reverse`` starts at the end.  Floats narrower
    than 32 bits are accumulated in f32.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False
    combine: ClassVar[str] = ""
    """The scalar function that takes one more element into a total."""
    neutral: ClassVar[float]
    samples = tuple(
        sample(t, axis=axis, exclusive=exclusive, reverse=reverse)
        for exclusive in (False, True)
        for reverse in (False, True)
        for t, axis in (
            (tensor(5), 0),
            (tensor(2, "n", 3), 1),
            (tensor(3, 1), 1),
            (tensor(6, dtype=I64), 0),
            (tensor(2, 3, dtype=BF16), 1),
            (tensor(3, 21, dtype=BF16), 0),
            (tensor(2, 3, 35), 1),
        )
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        name = type(self).__name__
        require_numeric(x.dtype, name)
        require(0 <= self.axis < x.rank, f"{name} along axis {self.axis} of {x}")
        return (TensorType(x.shape, x.dtype),)

    def inclusive(self, build: Builder, inputs: Values, outputs: Values) -> str:
        """The totals with the elements themselves."""
        if not self.exclusive:
            return outputs[0]
        return build.emit(replace(self, exclusive=False), inputs[0])

    def inclusive_dy(self, build: Builder, dy: str) -> str:
        """Gradients of :meth:`inclusive` totals, from those of this op's."""
        if not self.exclusive:
            return dy
        rank, step = build.type_of(dy).rank, 1 if self.reverse else -1
        before = tuple(step if a == self.axis else 0 for a in range(rank))
        return build.emit(Pad(before, tuple(-b for b in before)), dy)

    def start(self, dtype: DType) -> float:
        """The total of nothing."""
        return self.neutral

    def more(self, total: Expr, value: Expr) -> Expr:
        """A total with one more element."""
        return call(self.combine, total, value)

    def totals(self, accumulate: Callable[..., Array], x: Array) -> Array:
        """What ``accumulate``, NumPy's running totals, makes of ``x``."""
        ahead = np.flip(widen(x), self.axis) if self.reverse else widen(x)
        if self.exclusive and x.shape[self.axis]:
            first = np.full_like(np.take(ahead, [0], self.axis), self.start(dtype_of(ahead)))
            rest = np.take(ahead, range(x.shape[self.axis] - 1), self.axis)
            ahead = np.concatenate([first, rest], self.axis)
        found = accumulate(ahead, self.axis, dtype=ahead.dtype)
        return (np.flip(found, self.axis) if self.reverse else found).astype(x.dtype)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (y,) = inputs, outputs
        assert x is not None
        extent = x.shape[self.axis]
        outer = product(x.shape[: self.axis]) if self.axis else 1
        inner = product(x.shape[self.axis + 1 :]) if self.axis + 1 < x.type.rank else 1
        wide = accumulator(x.dtype)
        groups = at.capacity.groups_of(wide)
        if groups is not None:
            start = number(self.start(wide), wide)
            totals = RunningTotals(
                x, y, outer * inner, extent, inner, self.reverse, self.exclusive, start, self.more
            )
            running_totals(at, totals, groups)
            return
        lanes = at.capacity.joined(CHAINS)
        vectors = inner // lanes
        with at.shared_loop(outer, x.type.elements) as plane:
            first = plane * extent * inner
            with at.loop(0, vectors) as vector:
                self._column(at, x, y, first + vector * lanes, inner, lanes)
            with at.loop(vectors * lanes, inner) as lane:
                self._column(at, x, y, first + lane, inner, 1)

    def _column(
        self, at: AlgorithmBuilder, x: Operand, y: Operand, first: Index, stride: Index, lanes: int
    ) -> None:
        """The totals of ``lanes`` neighbouring rows, whose elements are ``stride`` apart."""
        extent, wide = x.shape[self.axis], accumulator(x.dtype)
        total = at.register(number(self.start(wide), wide, lanes))
        with at.loop(0, extent) as k:
            place = first + (extent - 1 - k if self.reverse else k) * stride
            value = convert(at.load(x, place, lanes), wide)
            more = at.let(self.more(total, value))
            at.store(y, place, convert(total if self.exclusive else more, y.dtype))
            at.assign(total, more)


@dataclass(frozen=True)
class CumProd(_Cumulative):
    """Running products along ``axis``; ``exclusive`` leaves the element itself out."""

    combine = "mul"
    neutral = 1

    def reference(self, x: Array) -> Array:
        return self.totals(np.cumprod, x)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        before = replace(self, exclusive=True)
        own = (self.axis, self.exclusive, self.reverse)
        return (product_gradient(build, before, dys[0], inputs[0], *own),)


@dataclass(frozen=True)
class CumSum(_Cumulative):
    """Running sums along ``axis``; ``exclusive`` leaves the element itself out."""

    combine = "add"
    neutral = 0

    def reference(self, x: Array) -> Array:
        return self.totals(np.cumsum, x)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        back = CumSum(self.axis, self.exclusive, not self.reverse)
        return (build.emit(back, dys[0]),)


class _CumulativeExtreme(_Cumulative):
    """Base: NaN from the first one on; ``better``: whether a total stays beside an element."""

    better: ClassVar[str]

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """To the last of the elements that are the extreme."""
        x, result = Value(build, inputs[0]), Value(build, self.inclusive(build, inputs, outputs))
        shape = x.type.shape
        numbers = Value(build, build.emit(Iota(shape, self.axis)))
        end = shape[self.axis] - 1 if self.reverse else 0
        first = Value(build, build.emit(Indices((end,), ())))
        extreme = of(Where(), of(Equal(), x, result), numbers, first)
        latest = CumMin(self.axis, reverse=True) if self.reverse else CumMax(self.axis)
        zeros, places = filled(build, inputs[0]), of(latest, extreme).name
        given = self.inclusive_dy(build, dys[0])
        return (build.emit(ScatterElements(self.axis, "add"), zeros, places, given),)

    def more(self, total: Expr, value: Expr) -> Expr:
        """NaN is looked for apart, since machines drop it from extremes."""
        stays = call(self.better, total, value)
        if total.dtype.is_float:
            stays = call("or", stays, call("isnan", total))
        return Select(stays, total, value)

    def start(self, dtype: DType) -> float:
        if dtype.is_float:
            return self.neutral
        info = ml_dtypes.iinfo(dtype.numpy)
        return int(info.min if self.neutral < 0 else info.max)


@dataclass(frozen=True)
class CumMax(_CumulativeExtreme):
    """The greatest of the elements up to each one along ``axis``."""

    better = "ge"
    neutral = -math.inf

    def reference(self, x: Array) -> Array:
        return self.totals(np.maximum.accumulate, x)


@dataclass(frozen=True)
class CumMin(_CumulativeExtreme):
    """The least of the elements up to each one along ``axis``."""

    better = "le"
    neutral = math.inf

    def reference(self, x: Array) -> Array:
        return self.totals(np.minimum.accumulate, x)


@dataclass(frozen=True)
class CumLogSumExp(_Cumulative):
    """``log(sum(exp(x)))`` of the elements up to each one along ``axis``, without overflow."""

    neutral = -math.inf
    samples = tuple(s for s in _Cumulative.samples if _is_sum_of_floats(s))

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "CumLogSumExp")
        return super().infer(x)

    def more(self, total: Expr, value: Expr) -> Expr:
        """``high + log(1 + exp(low - high))``; ``high`` where that is infinite or NaN."""
        less = call("or", call("lt", total, value), call("isnan", value))
        high, low = Select(less, value, total), Select(less, total, value)
        rest = call("log1p", call("exp", call("sub", low, high)))
        return Select(call("isinf", high), high, call("add", high, rest))

    def reference(self, x: Array) -> Array:
        return self.totals(np.logaddexp.accumulate, x)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """``sum of dy[j] exp(x[k] - y[j])``, in logarithms, for each sign of dy."""
        x, result = Value(build, inputs[0]), Value(build, self.inclusive(build, inputs, outputs))
        given = Value(build, self.inclusive_dy(build, dys[0]))
        back = CumLogSumExp(self.axis, reverse=not self.reverse)
        parts = [of(Exp(), x + of(back, _logarithm(signed) - result)) for signed in (given, -given)]
        return ((parts[0] - parts[1]).name,)


def _logarithm(x: Value) -> Value:
    """Of numbers that are not positive so little that it is as good as none; it is finite, so that
    it has a gradient."""
    limits: Any = cast(Any, ml_dtypes.finfo)(x.type.dtype.numpy)
    positive = of(Greater(), x, x.lift(0.0))
    found = of(Log(), of(Where(), positive, x, x.lift(1.0)))
    return of(Where(), positive, found, x.lift(float(limits.min) / 4))


def product_gradient(
    build: Builder, before: Op, dy: str, x: str, axis: int, exclusive: bool, reverse: bool
) -> str:
    """Gradient of x, whose running products have gradients ``dy``; elements may be 0.

    That of element k is the product of those before it, which the op ``before`` makes, times
    ``r[k] = dy[k] + x[k + 1] r[k + 1]``, or ``dy[k + 1] + x[k + 1] r[k + 1]`` if exclusive.
    """
    type = build.type_of(x)
    part = TensorType((*type.shape[:axis], *type.shape[axis + 1 :]), type.dtype)
    extent, counter = type.shape[axis], "product.step"
    step = Sym(counter)
    body = GraphBuilder("product", {counter: Range(0, None)})
    carried = body.input("carried", part)
    at = At(axis, step if reverse else extent - 1 - step)
    own, slope = (body.emit(at, body.input(name, type)) for name in ("x", "dy"))
    total = body.emit(Add(), slope, body.emit(Mul(), own, carried) if exclusive else carried)
    after = total if exclusive else body.emit(Mul(), own, total)
    graph = body.build([after, carried if exclusive else total])
    first = build.emit(Full(part.shape, 0, part.dtype))
    loop = Loop(graph, counter, extent, 1, axes=(axis,), backwards=(not reverse,))
    _, rest = build.add(loop, first, x, dy)
    return build.emit(Mul(), build.emit(before, x), rest)


OPS: tuple[type[Op], ...] = (CumProd, CumSum, CumMax, CumMin, CumLogSumExp)
