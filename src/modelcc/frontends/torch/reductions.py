"""Handlers of reductions: sums, products, extrema and their indices, variances, norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.torch.aten import Aten, Handler, Number, Result, overloads
from modelcc.frontends.torch.views import concatenated
from modelcc.ir.index import product
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, F64, I64, U8, U64, DType
from modelcc.ops import comparison as cp
from modelcc.ops import reduce as rd
from modelcc.ops.arithmetic import Sub, Value, of
from modelcc.ops.elementwise import BitCast
from modelcc.ops.generate import Full, Indices
from modelcc.ops.logic import BitwiseXor
from modelcc.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum
from modelcc.ops.transcendental import Pow, Sqrt
from modelcc.ops.views import cast, part, reshaped

Axes = Sequence[int] | int | None
Reduce = Callable[[tuple[int, ...], bool], Op]


def over(call: Aten, op: Reduce, x: Value, dims: Axes, keepdim: bool) -> Value:
    """A reduction in the type of ``x``; a scalar has no axes."""
    axes = call.axes_of(dims, x.type.rank)[: x.type.rank]
    return of(op(axes, keepdim), x)


def reduction(op: Reduce) -> Handler:
    """In the type of the result."""

    def handler(
        call: Aten, x: Value, dims: Axes = None, keepdim: bool = False, dtype: DType | None = None
    ) -> Value:
        return over(call, op, call.as_value(x), dims, keepdim)

    return handler


def of_all(op: Reduce) -> Handler:
    """Over all axes, in the type of the result."""

    def handler(call: Aten, x: Value, *_: object) -> Value:
        return over(call, op, call.as_value(x), None, keepdim=False)

    return handler


def truth(op: Reduce) -> Handler:
    """Whether any or all elements are nonzero."""

    def handler(call: Aten, x: Value, dims: Axes = None, keepdim: bool = False) -> Value:
        return call.as_value(over(call, op, cast(x, BOOL), dims, keepdim))

    return handler


def with_places(op: Reduce, find: Callable[[int, bool], Op]) -> Handler:
    """The extremum along an axis, and its first index."""

    def handler(call: Aten, x: Value, dim: int, keepdim: bool = False) -> Sequence[Value]:
        row = reshaped(x, 1) if not x.type.rank else x
        axis = call.axis(dim, row.type.rank)
        numbers = cast(row, U8) if x.type.dtype == BOOL else row
        results = over(call, op, row, axis, keepdim), of(find(axis, keepdim), numbers)
        return [reshaped(r, *call.extents()) for r in results]

    return handler


def place(find: Callable[[int, bool], Op]) -> Handler:
    """The first index of the extremum: along an axis, or in row-major order."""

    def handler(call: Aten, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        row = reshaped(x, x.type.elements) if dim is None or not x.type.rank else x
        axis = 0 if dim is None else call.axis(dim, row.type.rank)
        return reshaped(of(find(axis, False), row), *call.extents())

    return handler


def both_extremes(
    call: Aten, x: Value, dim: int | None = None, keepdim: bool = False
) -> Sequence[Value]:
    return [over(call, op, x, dim, keepdim) for op in (ReduceMin, ReduceMax)]


def variance(call: Aten, x: Value, dims: Axes, correction: Number, keepdim: bool) -> Value:
    """The sum of squared deviations from the mean, divided by their number less ``correction``."""
    axes = call.axes_of(dims, x.type.rank)[: x.type.rank]
    centred = x - of(ReduceMean(axes), x)
    total = of(rd.ReduceSumSquare(axes, keepdim), centred)
    size = product(x.type.shape[a] for a in axes)
    if isinstance(size, int):
        count = max(size - correction, 0)
        return total / count if count else total / total.lift(0.0)
    count = call.made(Indices((size,), (), x.type.dtype)) - float(correction)
    return total / of(cp.Max(), count, count.lift(0.0))


def spread(root: bool, mean: bool) -> Handler:
    """Variance, or its ``root``, and optionally the mean; with ``correction``."""

    def handler(
        call: Aten, x: Value, dims: Axes = None, correction: Number | None = None,
        keepdim: bool = False,
    ) -> Value | Sequence[Value]:  # fmt: skip
        found = variance(call, x, dims, 1 if correction is None else correction, keepdim)
        found = of(Sqrt(), found) if root else found
        return [found, over(call, ReduceMean, x, dims, keepdim)] if mean else found

    return handler


def unbiased(handler: Handler) -> Handler:
    """An overload of :func:`spread` whose flag selects a correction of 1."""

    def corrected(
        call: Aten, x: Value, dims: Axes, yes: bool = True, keepdim: bool = False
    ) -> Result:
        return handler(call, x, dims, int(yes), keepdim)

    return corrected


def unbiased_of_all(handler: Handler) -> Handler:
    def corrected(call: Aten, x: Value, yes: bool = True) -> Result:
        return handler(call, x, None, int(yes), False)

    return corrected


_WHOLE: Mapping[Number, Reduce] = MappingProxyType({2: rd.ReduceL2, 1: rd.ReduceL1})


def vector_norm(
    call: Aten, x: Value, order: Number = 2, dims: Axes = None, keepdim: bool = False,
    dtype: DType | None = None,
) -> Value:  # fmt: skip
    """``(sum of |x| ** order) ** (1 / order)``, its limits, or the number of nonzeros."""
    value = call.as_value(x)
    whole = _WHOLE.get(order)
    if whole is not None:
        return over(call, whole, value, dims, keepdim)
    if order == 0:
        nonzero = cast(cast(value, BOOL), value.type.dtype)
        return over(call, ReduceSum, nonzero, dims, keepdim)
    size = of(cp.Abs(), value)
    if math.isinf(order):
        return over(call, ReduceMax if order > 0 else ReduceMin, size, dims, keepdim)
    total = over(call, ReduceSum, of(Pow(), size, size.lift(float(order))), dims, keepdim)
    return of(Pow(), total, total.lift(1 / order))


def count_nonzero(call: Aten, x: Value, dims: Axes = None) -> Value:
    return over(call, ReduceSum, cast(cast(x, BOOL), I64), dims, keepdim=False)


def sum_of_numbers(
    call: Aten, x: Value, dims: Axes = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    """NaN counts as 0."""
    kept = cp.where(of(cp.IsNaN(), x), x.lift(0.0), x) if x.type.dtype.is_float else x
    return over(call, ReduceSum, call.as_value(kept), dims, keepdim)


def distance(call: Aten, x: Value, y: Value, order: Number = 2) -> Value:
    return vector_norm(call, of(Sub(), call.as_value(x), call.as_value(y)), order)


def hashed(call: Aten, x: Value, dims: Axes = None, keepdim: bool = False, mode: int = 0) -> Value:
    """The xor of the elements as 64 bits, computed on halves."""
    wide = of(BitCast(U64), cast(x, F64 if x.type.dtype.is_float else I64))
    for axis in call.axes_of(dims, x.type.rank)[: x.type.rank]:
        while (extent := number_of(wide.type.shape[axis], "extent")) > 1:
            half = extent // 2
            pair = (part(wide, axis, start, half) for start in (0, half))
            both = of(BitwiseXor(), *pair)
            rest = part(wide, axis, 2 * half, extent - 2 * half)
            wide = both if extent == 2 * half else concatenated(call, axis, both, rest)
        if not extent:
            shape = tuple(1 if a == axis else e for a, e in enumerate(wide.type.shape))
            wide = call.made(Full(shape, 0, U64))
    return reshaped(wide, *call.extents())


def least(call: Aten, x: Value, y: Value) -> Value:
    return call.op(cp.Min(), x, y)


def greatest(call: Aten, x: Value, y: Value) -> Value:
    return call.op(cp.Max(), x, y)


_SPREADS = {
    "var": spread(root=False, mean=False),
    "std": spread(root=True, mean=False),
    "var_mean": spread(root=False, mean=True),
    "std_mean": spread(root=True, mean=True),
}

REDUCTIONS = overloads(
    {
        "sum": of_all(ReduceSum),
        "sum.dim_IntList": reduction(ReduceSum),
        "mean": of_all(ReduceMean),
        "mean.dim": reduction(ReduceMean),
        "prod": of_all(rd.ReduceProd),
        "prod.dim_int": reduction(rd.ReduceProd),
        "amax": reduction(ReduceMax),
        "amin": reduction(ReduceMin),
        "max": of_all(ReduceMax),
        "min": of_all(ReduceMin),
        "max.dim": with_places(ReduceMax, rd.ArgMax),
        "min.dim": with_places(ReduceMin, rd.ArgMin),
        "max.other": greatest,
        "min.other": least,
        "argmax": place(rd.ArgMax),
        "argmin": place(rd.ArgMin),
        "aminmax": both_extremes,
        "any": truth(ReduceMax),
        "all": truth(ReduceMin),
        "_is_any_true": truth(ReduceMax),
        "_is_all_true": truth(ReduceMin),
        "logsumexp": reduction(rd.ReduceLogSumExp),
        "linalg_vector_norm": vector_norm,
        "count_nonzero": count_nonzero,
        "nansum": sum_of_numbers,
        "dist": distance,
        "hash_tensor": hashed,
        **{f"{name}.correction": handler for name, handler in _SPREADS.items()},
        **{f"{name}.dim": unbiased(handler) for name, handler in _SPREADS.items()},
        **{f"{name}.default": unbiased_of_all(handler) for name, handler in _SPREADS.items()},
    }
)
