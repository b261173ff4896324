"""Reductions over axes, and arg-max."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import ml_dtypes
import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, select
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Index, minimum, product
from modelcc.ir.narrowing import FOLLOWS
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.quantized_form import MOVES, ROUNDED, QuantizedForm
from modelcc.ir.types import BOOL, F16, I32, I64, Array, DType, NumpyType, TensorType, dtype_of
from modelcc.ops.accumulate import accumulator, combined, require_float, require_numeric, widen
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand, Reduction, Reshape, reduction_samples
from modelcc.ops.broadcast import ReduceSum as ReduceSum
from modelcc.ops.comparison import Equal, Sign, where
from modelcc.ops.cumulative import CumProd
from modelcc.ops.generate import Indices
from modelcc.ops.samples import sample, tensor
from modelcc.ops.shape import Transpose
from modelcc.ops.transcendental import Exp

_INTEGERS = (
    sample(tensor(3, 4, dtype=I64), axes=(0,), keepdims=False),
    sample(tensor(2, "n", dtype=I32), axes=(0, 1), keepdims=True),
)


class _Smooth(Reduction):
    """Base of reductions whose gradient is a formula of x and the result."""

    def slope(self, x: Value, y: Value, dy: Value) -> Value:
        """Gradient of x, up to broadcasting; y and dy have the reduced axes as extent 1."""
        raise NotImplementedError(self.mnemonic())

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        dy = Value(build, self.keep(build, dys[0], x))
        value = Value(build, x)
        kept = Value(build, self.keep(build, outputs[0], x))
        return (of(Expand(value.type.shape), self.slope(value, kept, dy)).name,)


@dataclass(frozen=True)
class ReduceMean(Reduction):
    """The mean over ``axes``; of integers rounded towards zero."""

    narrowing = FOLLOWS
    samples = (*reduction_samples(), *_INTEGERS)

    def finish(self, total: Element, count: Index) -> Element:
        return total / index_value(count, total.dtype)

    def reference(self, x: Array) -> Array:
        count = np.prod([x.shape[a] for a in self.axes], dtype=np.int64)
        with np.errstate(all="ignore"):
            mean: Array = np.sum(widen(x), axis=self.axes, keepdims=self.keepdims) / count
        return np.asarray(np.trunc(mean) if dtype_of(x).is_integer else mean, x.dtype)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        (dx,) = ReduceSum(self.axes, self.keepdims).grad(build, dys, inputs, ())
        shape, dtype = build.type_of(x).shape, build.type_of(x).dtype
        count = build.emit(Indices((product(shape[a] for a in self.axes),), (), dtype))
        return ((Value(build, dx) / Value(build, count)).name,)

    def quantize(self) -> QuantizedForm:
        return ROUNDED


class _Extreme(_Smooth):
    """Base of ReduceMax and ReduceMin; ties share the gradient equally."""

    def check(self, dtype: DType) -> None:
        if dtype != BOOL:
            require_numeric(dtype, type(self).__name__)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        """NaN is looked for apart, since machines drop it from extremes."""
        best = super().compute(at, x)
        if not x.dtype.is_float:
            return best
        odd = combined(
            at,
            best.shape,
            [x.shape[a] for a in self.axes],
            "or",
            lambda o, r: apply("isnan", x[self.source(o, r, x.rank)]),
        )
        return at.stage(best.shape, lambda o: select(odd[o], float("nan"), best[o]))

    def slope(self, x: Value, y: Value, dy: Value) -> Value:
        chosen = where(of(Equal(), x, y), dy.lift(1.0), 0.0)
        return chosen * (dy / of(ReduceSum(self.axes, keepdims=True), chosen))

    def quantize(self) -> QuantizedForm:
        return MOVES


_EXTREMES = (
    *reduction_samples(),
    *_INTEGERS,
    sample(tensor(3, 4, dtype=BOOL), axes=(1,), keepdims=True),
    sample(tensor(2, 0), axes=(1,), keepdims=False),
    sample(np.array([[1, np.nan], [np.inf, 2]], np.float32), axes=(1,), keepdims=False),
    sample(np.array([[np.nan, 1, 2], [3, 2, 1]], np.float32), axes=(1,), keepdims=True),
)


@dataclass(frozen=True)
class ReduceMax(_Extreme):
    """The greatest element over ``axes``, NaN if there is one; the least value of none."""

    combine = "max"
    samples = _EXTREMES

    def reference(self, x: Array) -> Array:
        low = _limit(x.dtype, greatest=False)
        return np.asarray(np.max(x, self.axes, keepdims=self.keepdims, initial=low), x.dtype)


@dataclass(frozen=True)
class ReduceMin(_Extreme):
    """The least element over ``axes``, NaN if there is one; the greatest value of none."""

    combine = "min"
    samples = _EXTREMES

    def reference(self, x: Array) -> Array:
        high = _limit(x.dtype, greatest=True)
        return np.asarray(np.min(x, self.axes, keepdims=self.keepdims, initial=high), x.dtype)


def _limit(dtype: NumpyType, greatest: bool) -> Any:
    """The greatest, or the least, value there is."""
    if dtype == np.bool_:
        return greatest
    if dtype_of(dtype).is_integer:
        info = ml_dtypes.iinfo(dtype)
        return info.max if greatest else info.min
    return np.array(np.inf if greatest else -np.inf, dtype)


@dataclass(frozen=True)
class ReduceProd(_Smooth):
    """The product over ``axes``; 1 of none."""

    combine = "prod"
    symbolic = True
    samples = (*reduction_samples(0.5, 1.5), *_INTEGERS)

    def reference(self, x: Array) -> Array:
        wide = x if x.dtype == object else widen(x)
        return np.asarray(np.prod(wide, self.axes, keepdims=self.keepdims), x.dtype)

    def slope(self, x: Value, y: Value, dy: Value) -> Value:
        """The product of the others: of those before an element and of those after it."""
        rank = x.type.rank
        kept = [a for a in range(rank) if a not in self.axes]
        order = (*kept, *self.axes)
        turned = of(Transpose(order), x)
        lead = tuple(turned.type.shape[: len(kept)])
        line = of(Reshape((*lead, product(turned.type.shape[len(kept) :]))), turned)
        before, after = (of(CumProd(len(kept), True, reverse), line) for reverse in (False, True))
        others = of(Reshape(turned.type.shape), before * after)
        back = tuple(order.index(a) for a in range(rank))
        return dy * of(Transpose(back), others)


@dataclass(frozen=True)
class ReduceL1(_Smooth):
    """The sum of magnitudes over ``axes``."""

    samples = (*reduction_samples(), *_INTEGERS)

    def term(self, x: Element) -> Element:
        return apply("abs", x)

    def reference(self, x: Array) -> Array:
        total = np.sum(np.abs(widen(x)), self.axes, keepdims=self.keepdims)
        return np.asarray(total, x.dtype)

    def slope(self, x: Value, y: Value, dy: Value) -> Value:
        return dy * of(Sign(), x)


@dataclass(frozen=True)
class ReduceSumSquare(_Smooth):
    """The sum of squares over ``axes``."""

    samples = (*reduction_samples(), *_INTEGERS)

    def term(self, x: Element) -> Element:
        return x * x

    def reference(self, x: Array) -> Array:
        total = np.sum(np.square(widen(x)), self.axes, keepdims=self.keepdims)
        return np.asarray(total, x.dtype)

    def slope(self, x: Value, y: Value, dy: Value) -> Value:
        return dy * x * 2.0


class _FloatReduction(_Smooth):
    """Base of reductions of floats only."""

    def check(self, dtype: DType) -> None:
        require_float(dtype, type(self).__name__)


@dataclass(frozen=True)
class ReduceL2(_FloatReduction):
    """The Euclidean norm over ``axes``."""

    samples = reduction_samples()

    def term(self, x: Element) -> Element:
        return x * x

    def finish(self, total: Element, count: Index) -> Element:
        return apply("sqrt", total)

    def reference(self, x: Array) -> Array:
        total = np.sum(np.square(widen(x)), self.axes, keepdims=self.keepdims)
        return np.asarray(np.sqrt(total), x.dtype)

    def slope(self, x: Value, y: Value, dy: Value) -> Value:
        """0 where all are 0: the least of the directions there."""
        return dy * x / where(of(Equal(), y, y.lift(0.0)), 1.0, y)


@dataclass(frozen=True)
class ReduceLogSum(_FloatReduction):
    """The logarithm of the sum over ``axes``."""

    samples = reduction_samples(0.25, 2.0)

    def finish(self, total: Element, count: Index) -> Element:
        return apply("log", total)

    def reference(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(np.log(np.sum(widen(x), self.axes, keepdims=self.keepdims)), x.dtype)

    def slope(self, x: Value, y: Value, dy: Value) -> Value:
        return dy / of(Exp(), y)


@dataclass(frozen=True)
class ReduceLogSumExp(_FloatReduction):
    """``log(sum(exp(x)))`` over ``axes``, shifted by the maximum so as not to overflow."""

    samples = (
        *reduction_samples(),
        sample(np.array([[800, 801], [-np.inf, -np.inf]], np.float32), axes=(1,)),
    )

    def reference(self, x: Array) -> Array:
        total = widen(x)
        for axis in self.axes:
            total = np.logaddexp.reduce(total, axis, keepdims=True)
        return total.astype(x.dtype).reshape(self._concrete(x.shape))

    def _concrete(self, shape: tuple[int, ...]) -> list[int]:
        return [e for e in self.result_shape(shape) if isinstance(e, int)]

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        wide = accumulator(x.dtype)
        peak = ReduceMax(self.axes, keepdims=True).compute(at, x)

        def shift(point: Sequence[Index]) -> Element:
            top = peak.broadcast(point).cast(wide)
            return select(apply("isinf", top), 0.0, top)

        def term(point: tuple[Index, ...]) -> Element:
            return apply("exp", x[point].cast(wide) - shift(point))

        shifted = at.stage(x.shape, term)
        total = ReduceSum(self.axes, self.keepdims).compute(at, shifted)

        def result(o: tuple[Index, ...]) -> Element:
            kept = self.source(o, (0,) * len(self.axes), x.rank)
            return (apply("log", total[o]) + shift(kept)).cast(x.dtype)

        return at.stage(total.shape, result)

    def slope(self, x: Value, y: Value, dy: Value) -> Value:
        return dy * of(Exp(), x - y)


@dataclass(frozen=True)
class _Arg(Op):
    """Base: the index along ``axis`` of an extreme element: the first or the last such.

    NaN is more extreme than any number.
    """

    differentiable = False
    axis: int
    keepdims: bool = True
    select_last_index: bool = False
    extreme: ClassVar[type[_Extreme]] = ReduceMax
    worse: ClassVar[Literal["lt", "gt"]] = "lt"
    samples = tuple(
        sample(t, axis=axis, keepdims=keep, select_last_index=last)
        for last in (False, True)
        for t, axis, keep in (
            (tensor(3, 4), 1, True),
            (tensor(3, "n", 2), 1, False),
            (tensor(5, dtype=F16), 0, False),
            (tensor(3, 1), 1, True),
            (np.array([[1, 3, 3], [2, 2, 1]], np.int32), 1, False),
            (np.array([[1, np.nan, 3, np.nan], [2, 2, 1, 0]], np.float32), 1, False),
        )
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        (kept,) = self.extreme((self.axis,), self.keepdims).infer(x)
        found = 0 in kept.shape or x.shape[self.axis] != 0
        require(found, f"{type(self).__name__} over the empty axis of {x}")
        return (TensorType(kept.shape, I64),)

    def shape_constraints(self, x: TensorType) -> Constraints:
        (kept,) = self.infer(x)
        return ((x.shape[self.axis], ">=", minimum(1, kept.elements)),)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        reduction = self.extreme((self.axis,), self.keepdims)
        best, extent = reduction.compute(at, x), x.shape[self.axis]
        last = self.select_last_index
        # Where it loses to every index: what is found is one, and known to be.
        never = index_value(0 if last else extent - 1, I64)

        def candidate(o: tuple[Index, ...], r: tuple[Index, ...]) -> Element:
            own = x[reduction.source(o, r, x.rank)]
            loses = apply(self.worse, own, best[o])
            if x.dtype.is_float:
                real = apply("not", apply("isnan", own))
                loses = apply("or", loses, apply("and", apply("isnan", best[o]), real))
            return select(loses, never, index_value(r[0], I64))

        return at.reduce(best.shape, (extent,), "max" if last else "min", candidate)

    def locate(self, find: Callable[..., Array], x: Array) -> Array:
        """NumPy's arg-function, from the end if the last index is wanted."""
        if not x.shape[self.axis]:
            sums = np.asarray(np.sum(x, self.axis, keepdims=self.keepdims))
            return np.zeros(sums.shape, np.int64)
        if not self.select_last_index:
            return np.asarray(find(x, self.axis, keepdims=self.keepdims), np.int64)
        place = find(np.flip(x, self.axis), self.axis, keepdims=self.keepdims)
        return np.asarray(x.shape[self.axis] - 1 - place, np.int64)


@dataclass(frozen=True)
class ArgMax(_Arg):
    """The index along ``axis`` of the greatest element."""

    def reference(self, x: Array) -> Array:
        return self.locate(np.argmax, x)


@dataclass(frozen=True)
class ArgMin(_Arg):
    """The index along ``axis`` of the least element."""

    extreme, worse = ReduceMin, "gt"

    def reference(self, x: Array) -> Array:
        return self.locate(np.argmin, x)


OPS: tuple[type[Op], ...] = (
    *(ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2),
    *(ReduceLogSum, ReduceLogSumExp, ReduceSumSquare, ArgMax, ArgMin),
)
