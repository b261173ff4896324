"""Branches and loops; their bodies capture outer values directly."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.exporters.onnx.bodies import Typed, subgraph
from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.writing import OnnxWriting
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index
from modelcc.ir.types import BOOL, I64, TensorType
from modelcc.ops.control import If, Loop

_COUNT = TensorType((), I64)
_CONDITION = TensorType((), BOOL)


def branch(at: OnnxWriting, op: If) -> tuple[OnnxValue, ...]:
    """The results of one of two bodies."""
    captured = [at.input(n) for n in range(1, len(at.inputs))]

    def results(body: Graph) -> list[Typed]:
        return list(zip(at.bodies.body(body, captured), at.results, strict=True))

    then, other = (
        subgraph(at.build, name, (), lambda _, body=body: results(body))
        for name, body in (("then", op.then), ("else", op.other))
    )
    dtypes = [t.dtype for t in at.results]
    return at.build.node_of("If", [at.input()], dtypes, then_branch=then, else_branch=other)


def loop(at: OnnxWriting, op: Loop) -> tuple[OnnxValue, ...]:
    """A loop with its loop-carried values as state; slices are stacked along axis 0, then
    transposed."""
    operands = [at.input(n) for n in range(len(at.inputs))]
    states, captured = operands[: op.states], operands[op.states :]
    kinds = [at.type(n) for n in range(op.states)]
    parts = [op.body.types[name] for name in op.body.outputs[op.states :]]

    def iteration(given: Sequence[OnnxValue]) -> list[Typed]:
        step, condition, *carried = given
        at.build.symbols[op.counter] = at.node("Unsqueeze", step, at.build.ints(0))
        found = at.bodies.body(op.body, [*carried, *captured])
        goes_on = found[0] if op.conditional else condition
        return [(goes_on, _CONDITION), *zip(found, (*kinds, *parts), strict=True)]

    body = subgraph(at.build, "body", (_COUNT, _CONDITION, *kinds), iteration)
    trips = None if op.trips is None else at.sizes.scalar(op.trips)
    dtypes = [t.dtype for t in (*kinds, *parts)]
    first = [trips, states[0] if op.conditional else None, *states]
    found = at.build.node_of("Loop", first, dtypes, body=body)
    stacks = (_stack(at, op, n, found[op.states + n], t) for n, t in enumerate(parts))
    return (*found[: op.states], *stacks)


def _stack(
    at: OnnxWriting, op: Loop, number: int, stacked: OnnxValue, part: TensorType
) -> OnnxValue:
    """Slices moved from axis 0 to their axis, in order, with zeros for missing ones."""
    assert op.trips is not None
    axis, rank = op.axes[number], part.rank
    if op.conditional:
        stacked = _filled(at, stacked, op.trips, rank)
    if op.backwards[number]:
        line = at.build.ints
        stacked = at.node("Slice", stacked, line(-1), line(-(2**62)), line(0), line(-1))
    return at.transpose(stacked, [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)])


def _filled(at: OnnxWriting, x: OnnxValue, trips: Index, rank: int) -> OnnxValue:
    count = at.node("Shape", x, dtype=I64, start=0, end=1)
    missing = at.node("Sub", at.sizes.one(trips), count)
    zeros = at.build.ints(*(0,) * rank)
    amounts = at.node("Concat", at.build.ints(0), zeros, missing, zeros, axis=0)
    return at.node("Pad", x, amounts, at.build.number(0, x.dtype), mode="constant")
