"""Reductions over axes, argmax and argmin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.call import Handler, Handlers, TfliteCall
from modelcc.frontends.tflite.requantization import multiplier_and_shift, rescaled_by, saturated
from modelcc.ir.index import product
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, I32
from modelcc.ops import elementwise as ew
from modelcc.ops import reduce as rd
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.quant import limits

Reducing = Callable[[tuple[int, ...], bool], Op]


def _axes(call: TfliteCall) -> tuple[int, ...]:
    given = call.integers(1, "axes")
    return tuple(sorted({call.normal(axis, call.rank()) for axis in given}))


def reduction(op: Reducing) -> Handler:
    """A reduction whose result has the scale of its operand."""

    def handler(call: TfliteCall) -> str:
        if call.is_quantized and call.single(0) and call.result():
            x, y = call.single(0), call.result()
            if (x.scale, x.zero) != (y.scale, y.zero):
                unsupported("its result has another scale than its operand")
        axes = _axes(call)
        return call.emit(op(axes, call.flag("keep_dims")), call.input(0))

    return handler


def mean_or_sum(op: Reducing, mean: bool) -> Handler:
    """MEAN or SUM; of quantized numbers the sum is requantized."""

    def handler(call: TfliteCall) -> str:
        axes, keep = _axes(call), call.flag("keep_dims")
        if not call.is_quantized:
            return call.emit(op(axes, keep), call.input(0))
        count = number_of(product(call.shape()[axis] for axis in axes), "number of elements")
        sums = of(ReduceSum(axes, keep), of(ew.Cast(I32), call.value(0)))
        return _requantized(call, sums, count, mean).name

    return handler


def _requantized(call: TfliteCall, sums: Value, count: int, mean: bool) -> Value:
    """``count`` is folded into the multiplier, as far as its range allows."""
    x, y = call.single(0), call.result()
    multiplier, shift = multiplier_and_shift(float(x.scale) / float(y.scale))
    if mean and count > 0:
        places = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << places) // count, shift - places
    wide = sums + -x.zero * count if x.zero else sums
    bounds = tuple(int(limit) for limit in limits(call.result_dtype))
    moved = rescaled_by(wide, np.asarray(multiplier), np.asarray(shift))
    return saturated(moved, y.zero, (bounds[0], bounds[1]), call.result_dtype)


def any_or_all(op: Reducing) -> Handler:
    """REDUCE_ANY or REDUCE_ALL: the maximum or minimum of bools as numbers."""

    def handler(call: TfliteCall) -> str:
        wide = of(ew.Cast(I32), call.value(0))
        return of(ew.Cast(BOOL), of(op(_axes(call), call.flag("keep_dims")), wide)).name

    return handler


def arg_extreme(op: type[rd.ArgMax] | type[rd.ArgMin]) -> Handler:
    """ARG_MAX or ARG_MIN: the first one along an axis."""

    def handler(call: TfliteCall) -> str:
        (axis,) = call.integers(1, "axis")
        found = of(op(call.normal(axis, call.rank()), False), call.value(0))
        return of(ew.Cast(call.result_dtype), found).name

    return handler


REDUCTION: Handlers = {
    "MEAN": mean_or_sum(rd.ReduceMean, True),
    "SUM": mean_or_sum(ReduceSum, False),
    "REDUCE_MAX": reduction(rd.ReduceMax),
    "REDUCE_MIN": reduction(rd.ReduceMin),
    "REDUCE_PROD": reduction(rd.ReduceProd),
    "REDUCE_ANY": any_or_all(rd.ReduceMax),
    "REDUCE_ALL": any_or_all(rd.ReduceMin),
    "ARG_MAX": arg_extreme(rd.ArgMax),
    "ARG_MIN": arg_extreme(rd.ArgMin),
}
