"""Handlers of gathers."""

from __future__ import annotations

from types import MappingProxyType

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.ir.index import Index
from modelcc.ir.types import I64
from modelcc.ops import gather as ga
from modelcc.ops.elementwise import Cast


def gather(call: Call) -> str:
    return call.emit(ga.Gather(call.axis(0)), *call.inputs)


def gather_elements(call: Call) -> str:
    return call.emit(ga.GatherElements(call.axis(0)), *call.inputs)


def gather_nd(call: Call) -> str:
    return call.emit(ga.GatherND(call.attrs.integer("batch_dims", 0)), *call.inputs)


def one_hot(call: Call) -> str:
    depth: Index = call.index(1, "depth")
    axis = call.axis(-1, call.rank() + 1)
    indices = call.input(0)
    if not call.dtype().is_integer:
        indices = call.emit(Cast(I64), indices)
    return call.emit(ga.OneHot(axis, depth), indices, call.input(2))


GATHER: Handlers = MappingProxyType(
    {
        "Gather": gather,
        "GatherElements": gather_elements,
        "GatherND": gather_nd,
        "OneHot": one_hot,
    }
)
