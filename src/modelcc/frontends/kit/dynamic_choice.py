"""Two implementations of the same result; each run takes the faster one for its sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.vectors import Vector, vector_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Expr, symbols
from modelcc.ir.op import Op
from modelcc.ops.broadcast import Reshape
from modelcc.ops.control import If
from modelcc.ops.slicing import Slice

Way = Callable[[GraphBuilder, str], str]
"""Emits one implementation in a graph of its own, from its input."""


def by(call: Conversion, op: Op) -> Way:
    """The implementation by a single ``op``."""
    return lambda build, x: build.emit(op, x, source=call.source)


def either(
    call: Conversion, holds: Vector, x: str, ways: tuple[Way, Way], names: Iterable[str]
) -> str:
    """The first implementation of ``x`` if the only element of ``holds`` is true, else the second.

    ``names`` are the symbols that implementations mention besides those of ``x``.
    """
    type = call.type_of(x)
    condition = call.emit(Reshape(()), holds.name)
    known = {*names, *(n for extent in type.shape for n in symbols(extent))}
    dims = {name: call.bounds[name] for name in sorted(known)}

    def branch(way: Way) -> Graph:
        build = GraphBuilder("branch", dims)
        return build.build([way(build, build.input("x", type))])

    return call.emit(If(*map(branch, ways)), condition, x)


def sliced_by(call: Conversion, op: Slice) -> str:
    """The operand sliced by ``op``; if the step of the last axis is 1 at run time, by an op with
    that step as a constant: only then are elements contiguous."""
    if not op.steps or not isinstance(op.steps[-1], Expr):
        return call.emit(op, call.input(0))
    side_by_side = replace(op, steps=(*op.steps[:-1], 1))
    call.emitter.require(op.shape_constraints(call.type()), call.source, always=True)
    ways = by(call, side_by_side), by(call, op)
    return either(call, vector_of(call, op.steps[-1:]).equals(1), call.input(0), ways, op.symbols())
