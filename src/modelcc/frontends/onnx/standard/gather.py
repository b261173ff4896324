"""Handlers of gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from modelcc.frontends.kit.vectors import operand
from modelcc.frontends.onnx.call import Call, Handler, table
from modelcc.ir.index import Index, Range
from modelcc.ir.op import Op
from modelcc.ir.types import I64
from modelcc.ops import gather as ga
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.elementwise import Cast
from modelcc.ops.runtime_index import Combination
from modelcc.ops.time_axis import CacheUpdate, ReverseSequence

COMBINATIONS: tuple[Combination, ...] = get_args(Combination)


def gather_nd(call: Call) -> str:
    batches = call.attrs.integer("batch_dims", 0)
    *places, depth = call.shape(1)
    if depth != 0 or not 0 <= batches <= min(len(places), call.rank()):
        return call.emit(ga.GatherND(batches), *call.inputs)
    # Scalar indices: all of x (of its batch element) for each of them.
    rest = call.shape()[batches:]
    ones = (1,) * (len(places) - batches)
    x = call.emit(Reshape((*call.shape()[:batches], *ones, *rest)), call.input(0))
    return call.emit(Expand((*places, *rest)), x)


def one_hot(call: Call) -> str:
    depth: Index
    if call.known(1) is None:
        (depth,) = operand(call, 1).read(call.labels[1], Range(0, None))
    else:
        depth = call.index(1, "depth")
    axis = call.axis(-1, call.rank() + 1)
    indices = call.input(0)
    if not call.dtype().is_integer:
        indices = call.emit(Cast(I64), indices)
    return call.emit(ga.OneHot(axis, depth), indices, call.input(2))


def scatter_elements(call: Call) -> str:
    op = ga.ScatterElements(call.axis(0), _reduction(call))
    return call.emit(op, *call.inputs)


def scatter_nd(call: Call) -> str:
    return call.emit(ga.ScatterND(_reduction(call)), *call.inputs)


def _reduction(call: Call) -> Combination:
    return call.option("reduction", COMBINATIONS, "none")


def reverse_sequence(call: Call) -> str:
    op = ReverseSequence(call.axis(1, name="batch_axis"), call.axis(0, name="time_axis"))
    return call.emit(op, *call.inputs)


def tensor_scatter(call: Call) -> str:
    mode = call.attrs.text("mode", "linear")
    if mode not in ("linear", "circular"):
        call.fail(f"unknown mode {mode!r}")
    return call.emit(CacheUpdate(call.axis(-2), mode == "circular"), *call.inputs)


def _along(op: Callable[[int], Op]) -> Handler:
    """``op`` of all operands along attribute ``axis``, the first one by default."""
    return lambda call: call.emit(op(call.axis(0)), *call.inputs)


GATHER = table(
    Gather=_along(ga.Gather),
    GatherElements=_along(ga.GatherElements),
    GatherND=gather_nd,
    OneHot=one_hot,
    Scatter=scatter_elements,
    ScatterElements=scatter_elements,
    ScatterND=scatter_nd,
    ReverseSequence=reverse_sequence,
    TensorScatter=tensor_scatter,
)
