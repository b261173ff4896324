"""Branches and loops; their bodies capture outer values directly."""

from __future__ import annotations

from modelcc.exporters.stablehlo.builder import Hlo
from modelcc.exporters.stablehlo.writing import Names, Types, Writing
from modelcc.ir.types import I64
from modelcc.ops.control import If, Loop


def branch(at: Writing, op: If, inputs: Names, types: Types) -> tuple[Hlo, ...]:
    """The results of one of two bodies."""
    condition, *captured = (at.values[n] for n in inputs)
    then = at.hlo.block((), lambda _: at.body(op.then, captured))
    other = at.hlo.block((), lambda _: at.body(op.other, captured))
    return at.hlo.generic("if", (condition,), types, {}, then, other)


def loop(at: Writing, op: Loop, inputs: Names, types: Types) -> tuple[Hlo, ...]:
    """A loop with the counter, loop-carried values and stacked results as state."""
    hlo, domain = at.hlo, at.domain()
    operands = [at.values[n] for n in inputs]
    states, captured = operands[: op.states], operands[op.states :]
    stacks = [domain.broadcast(hlo.scalar(0, t.dtype), (), t) for t in types[op.states :]]
    if op.trips == 0:  # operands of its body may be empty
        return (*states, *stacks)
    first = (hlo.scalar(0, I64), *states, *stacks)
    trips = None if op.trips is None else domain.along(domain.index(op.trips)).hlo

    def goes_on(state: tuple[Hlo, ...]) -> tuple[Hlo]:
        step, *carried = state
        found = [carried[0]] if op.conditional else []
        if trips is not None:
            found.append(hlo.compare("LT", step, trips))
        return (found[0] if len(found) == 1 else hlo.elementwise("and", *found),)

    def iteration(state: tuple[Hlo, ...]) -> tuple[Hlo, ...]:
        step, *carried = state
        outer = hlo.symbols
        hlo.symbols = {**outer, op.counter: step}
        results = at.body(op.body, (*carried[: op.states], *captured))
        parts = zip(carried[op.states :], results[op.states :], strict=True)
        filled = [_filled(at, op, n, whole, part) for n, (whole, part) in enumerate(parts)]
        hlo.symbols = outer
        after = hlo.elementwise("add", step, hlo.scalar(1, I64))
        return (after, *results[: op.states], *filled)

    kinds = [value.type for value in first]
    regions = hlo.block(kinds, goes_on), hlo.block(kinds, iteration)
    return hlo.generic("while", first, kinds, {}, *regions)[1:]


def _filled(at: Writing, op: Loop, number: int, whole: Hlo, part: Hlo) -> Hlo:
    """``whole`` with a slice replaced."""
    domain, axis = at.domain(), op.axes[number]
    place = domain.along(domain.index(op.place(number))).hlo
    slice = domain.reshape(part, (*part.shape[:axis], 1, *part.shape[axis:]))
    zero = domain.along(0).hlo
    starts = [place if a == axis else zero for a in range(len(whole.shape))]
    names = ", ".join(v.name for v in (whole, slice, *starts))
    return at.hlo.convert_by(f"dynamic_update_slice {names}", whole.type, whole, slice, *starts)
