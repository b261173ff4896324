"""Slices by steps that come at run time: mostly 1, and then rows of neighbours."""

from __future__ import annotations

from dataclasses import replace

from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.dynamic_choice import by, either
from modelcc.frontends.kit.vectors import vector_of
from modelcc.ir.index import Expr
from modelcc.ops.slicing import Slice


def sliced_by(call: Conversion, op: Slice) -> str:
    """The operand by ``op``; if a run finds the step of the last axis to be 1, by an op that knows
    it, for only then do elements lie side by side."""
    if not op.steps or not isinstance(op.steps[-1], Expr):
        return call.emit(op, call.input(0))
    side_by_side = replace(op, steps=(*op.steps[:-1], 1))
    call.emitter.require(op.shape_constraints(call.type()), call.source, always=True)
    ways = by(call, side_by_side), by(call, op)
    return either(call, vector_of(call, op.steps[-1:]).equals(1), call.input(0), ways, op.symbols())
