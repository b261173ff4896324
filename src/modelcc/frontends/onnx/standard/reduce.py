"""Handlers of reductions, arg-reductions, softmaxes and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable

from modelcc.frontends.kit.vectors import axes_at
from modelcc.frontends.onnx.call import Call, Handler, table
from modelcc.frontends.onnx.standard import runtime_shape
from modelcc.frontends.onnx.standard.conversion import computed_in, floats
from modelcc.ir.index import product
from modelcc.ir.op import Op
from modelcc.ops import attention, hardmax, reduce
from modelcc.ops.arithmetic import of
from modelcc.ops.broadcast import reshaped
from modelcc.ops.comparison import Abs
from modelcc.ops.cumulative import CumProd, CumSum
from modelcc.ops.lp_pool import inverse
from modelcc.ops.transcendental import Pow

_AXES_SINCE_18 = 18
_AXES_SINCE_13 = 13


def reduction(op: Callable[[tuple[int, ...], bool], Op], since: int = _AXES_SINCE_18) -> Handler:
    """Reduction over ``axes``: an attribute before opset ``since``, then an operand."""

    def handler(call: Call) -> str:
        if call.opset >= since and call.has(1) and call.known(1) is None:
            return _over_axes(call, op)
        axes = call.axes(1, since, repeated=True)
        if not axes:
            # Without axes nothing is reduced, but logarithms, squares and so on still apply.
            empty = call.attrs.flag("noop_with_empty_axes")
            axes = () if empty else tuple(range(call.rank()))
        return call.emit(op(tuple(sorted(axes)), call.attrs.flag("keepdims", True)), call.input(0))

    return handler


def _over_axes(call: Call, op: Callable[[tuple[int, ...], bool], Op]) -> str:
    """A reduction over axes computed at run time."""
    axes, keepdims = axes_at(call, 1, call.rank()), call.attrs.flag("keepdims", True)
    if axes.length == 0 and call.attrs.flag("noop_with_empty_axes"):
        return call.emit(op((), keepdims), call.input(0))

    def apply(x: str, over: tuple[int, ...]) -> str:
        return call.emit(op(over, False), x)

    return runtime_shape.over_axes(call, axes, keepdims, apply)


def arg_reduction(op: Callable[[int, bool, bool], Op]) -> Handler:
    def handler(call: Call) -> str:
        attrs = call.attrs
        last = attrs.flag("select_last_index")
        return call.emit(op(call.axis(0), attrs.flag("keepdims", True), last), call.input(0))

    return handler


def softmax(op: Callable[[int], Op], of_rows: Callable[[int], Op] | None = None) -> Handler:
    """Along one axis; before opset 13 over all axes from ``axis`` on, flattened.

    ``of_rows``, if given, is the operator along the last axis.
    """

    def along(axis: int, rank: int) -> Op:
        return of_rows(axis) if of_rows and axis == rank - 1 else op(axis)

    def handler(call: Call) -> str:
        rank = call.rank()
        if rank == 0:
            call.fail("softmax of a scalar")
        if call.opset >= 13:
            return call.emit(along(call.axis(-1), rank), call.input(0))
        extents = call.shape()
        axis = call.axis(1 if rank > 1 else 0)
        if all(d == 1 for d in extents[axis + 1 :]):
            return call.emit(along(axis, rank), call.input(0))
        flat = (product(extents[:axis]), product(extents[axis:]))
        result = call.emit(along(1, 2), reshaped(call, call.input(0), flat))
        return reshaped(call, result, extents)

    return handler


def cumulative(op: Callable[[int, bool, bool], Op]) -> Handler:
    """Prefix sums or products along an axis given by an operand."""

    def handler(call: Call) -> str:
        exclusive, reverse = call.attrs.flag("exclusive"), call.attrs.flag("reverse")
        if call.known(1) is None:
            inner = op(1, exclusive, reverse)
            return runtime_shape.along_axis(call, 1, lambda x: call.emit(inner, x))
        (axis,) = call.integers(1, "axis")
        return call.emit(op(call.normal(axis, call.rank()), exclusive, reverse), call.input(0))

    return handler


def global_pool(op: Callable[[tuple[int, ...], bool], Op]) -> Handler:
    """A reduction over the spatial axes that keeps them with extent 1."""

    def handler(call: Call) -> str:
        if call.rank() < 3:
            call.fail(f"expected batch, channels and spatial axes, not {call.type()}")
        return call.emit(op(tuple(range(2, call.rank())), True), call.input(0))

    return handler


def global_lp_pool(call: Call) -> str:
    power = call.attrs.integer("p", 2)
    if power not in (1, 2):
        x = of(Abs(), call.value(0))
        powers = of(Pow(), x, x.lift(float(power)))
        total = of(reduce.ReduceSum(tuple(range(2, call.rank())), True), powers)
        return of(Pow(), total, total.lift(inverse(power))).name
    return _called(global_pool(reduce.ReduceL1 if power == 1 else reduce.ReduceL2), call)


def _called(handler: Handler, call: Call) -> str:
    result = handler(call)
    return result if isinstance(result, str) else result[0]


REDUCE = table(
    ReduceSum=reduction(reduce.ReduceSum, _AXES_SINCE_13),
    ReduceMean=reduction(reduce.ReduceMean),
    ReduceMax=reduction(reduce.ReduceMax),
    ReduceMin=reduction(reduce.ReduceMin),
    ReduceProd=reduction(reduce.ReduceProd),
    ReduceL1=reduction(reduce.ReduceL1),
    ReduceL2=computed_in(floats, reduction(reduce.ReduceL2)),
    ReduceLogSum=computed_in(floats, reduction(reduce.ReduceLogSum)),
    ReduceLogSumExp=computed_in(floats, reduction(reduce.ReduceLogSumExp)),
    ReduceSumSquare=reduction(reduce.ReduceSumSquare),
    ArgMax=arg_reduction(reduce.ArgMax),
    ArgMin=arg_reduction(reduce.ArgMin),
    CumProd=cumulative(CumProd),
    CumSum=cumulative(CumSum),
    Softmax=softmax(attention.Softmax),
    LogSoftmax=softmax(attention.LogSoftmax),
    Hardmax=softmax(hardmax.Hardmax, hardmax.RowHardmax),
    GlobalAveragePool=global_pool(reduce.ReduceMean),
    GlobalMaxPool=global_pool(reduce.ReduceMax),
    GlobalLpPool=global_lp_pool,
)
