"""Slices by steps that come at run time: mostly 1, and then rows of neighbours."""

from __future__ import annotations

from dataclasses import replace

from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.vectors import vector_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Expr, symbols
from modelcc.ir.types import TensorType
from modelcc.ops.broadcast import Reshape
from modelcc.ops.control import If
from modelcc.ops.slicing import Slice


def sliced_by(call: Call, op: Slice) -> str:
    """The operand by ``op``; if a run finds the step of the last axis to be 1, by an op that knows
    it, for only then do elements lie side by side."""
    x, type = call.input(0), call.type()
    if not op.steps or not isinstance(op.steps[-1], Expr):
        return call.emit(op, x)
    condition = call.emit(Reshape(()), vector_of(call, op.steps[-1:]).equals(1).name)
    side_by_side = replace(op, steps=(*op.steps[:-1], 1))
    call.emitter.demand(op.agreements(type), call.source, always=True)
    return call.emit(If(*(_branch(call, o, type) for o in (side_by_side, op))), condition, x)


def _branch(call: Call, op: Slice, type: TensorType) -> Graph:
    """``op`` of a tensor of ``type`` as a graph."""
    names = {*op.symbols(), *(n for extent in type.shape for n in symbols(extent))}
    build = GraphBuilder("branch", {name: call.bounds[name] for name in sorted(names)})
    return build.build([build.emit(op, build.input("x", type), source=call.source)])
