"""Loops; the counter of counted loops is an index in the body, by which it slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from modelcc.frontends.kit.body import Body
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.stablehlo.call import HloCall, index_scalar
from modelcc.frontends.stablehlo.module import Attribute, HloBlock, Operation, ValueType
from modelcc.frontends.stablehlo.states import flattened, regrouped, stacked, with_slices
from modelcc.ir.graph import Graph
from modelcc.ir.index import Bounds, Index, Range, Sym, ceildiv, compare, maximum, symbols
from modelcc.ir.types import BOOL, TensorType
from modelcc.ops.broadcast import Reshape
from modelcc.ops.control import Loop

INLINED = "modelcc.inline"
"""An internal operation: its region, inlined on its operands."""


@dataclass(frozen=True)
class _Count:
    """Induction variables: states to which each iteration adds a constant, by position, with start
    and step.

    The loop continues while the one in ``state`` is less than ``limit``.
    """

    state: int
    limit: Index
    steps: Mapping[int, tuple[Index, int]]

    @property
    def trips(self) -> Index:
        start, step = self.steps[self.state]
        return maximum(0, ceildiv(self.limit - start, step))

    def after(self, state: int, iterations: Index) -> Index:
        """The value of a state after ``iterations``."""
        start, step = self.steps[state]
        return start + iterations * step


def while_(call: HloCall) -> Sequence[str]:
    count = _count(call)
    return _conditional(call) if count is None else _counted(call, count)


def _count(call: HloCall) -> _Count | None:
    """The induction variables of the loop, if there is one in its condition."""
    condition, body = call.op.regions
    test = _made(condition, condition.results[0])
    if test is None or str(test.attributes.get("comparison_direction")) != "LT":
        return None
    if test.operands[0] not in condition.arguments or len(condition.operations) > 2:
        return None
    state = condition.arguments.index(test.operands[0])
    limit = _outside(call, condition, test.operands[1])
    found: dict[int, tuple[Index, int]] = {}
    for n, (argument, result) in enumerate(zip(body.arguments, body.results, strict=True)):
        start, step = _index(call, call.input(n)), _step(call, body, result, argument)
        if start is not None and step is not None:
            found[n] = start, step
    if limit is None or state not in found or found[state][1] <= 0:
        return None
    return _Count(state, limit, found)


def _made(block: HloBlock, number: int) -> Operation | None:
    return next((op for op in block.operations if number in op.results), None)


def _outside(call: HloCall, block: HloBlock, number: int) -> Index | None:
    """A value from outside the loop, or a constant in it, as an index."""
    op = _made(block, number)
    if op is not None:
        value: Attribute = op.attributes.get("value")
        return int(value) if op.name == "stablehlo.constant" and np.size(value) == 1 else None
    found = None if number in block.arguments else call.find(number)
    return None if found is None else _index(call, found)


def _index(call: HloCall, value: str) -> Index | None:
    contents = call.emitter.contents(value)
    if contents is None or contents.ndim or not call.type_of(value).dtype.is_integer:
        return None
    return contents.reshape(-1).tolist()[0]


def _step(call: HloCall, block: HloBlock, result: int, argument: int) -> int | None:
    """The constant increment of a block's result over an argument, also through calls."""
    op = _made(block, result)
    if op is None or argument not in op.operands:
        return None
    place = op.operands.index(argument)
    callee = call.functions.get(str(op.attributes.get("callee")))
    if op.name == "func.call" and callee is not None:
        inner = callee.body
        own = inner.results[op.results.index(result)]
        return _step(call, inner, own, inner.arguments[place])
    if op.name != "stablehlo.add":
        return None
    found = _outside(call, block, op.operands[1 - place])
    return found if isinstance(found, int) else None


def _counted(call: HloCall, count: _Count) -> Sequence[str]:
    """A loop with its counter as an index in its body; states that are written slice by slice
    become stacked slices."""
    block, counter, trips = call.op.regions[1], fresh_counter(call.bounds), count.trips
    bounds: Bounds = {**call.bounds, counter: Range(0, trips - 1)}
    moving = [n for n in _changing(block) if n not in count.steps]
    states = [call.inputs[n] for n in moving]

    def counted(emitter: Emitter, iterations: Index) -> dict[int, str]:
        return {n: index_scalar(emitter, count.after(n, iterations), call.dtype(n))
                for n in count.steps}  # fmt: skip

    def inputs(body: Body) -> list[str]:
        return _arguments(call, body, moving, counted(body.emitter, Sym(counter)))

    body = call.body(block, bounds, inputs)
    flat = flattened(call.emitter, states)
    following = _following(call, body, flat, [body.outputs[n] for n in moving], counter)
    results = _looped(call, body.graph(following), flat, tuple(body.captured), counter, trips)
    found = dict(enumerate(call.inputs)) | counted(call.emitter, trips)
    found |= zip(moving, regrouped(call.emitter, states, call.emitter, results), strict=True)
    return [found[n] for n in range(len(call.inputs))]


def _changing(block: HloBlock) -> list[int]:
    """The states that an iteration may change; others are loop-invariant."""
    pairs = zip(block.arguments, block.results, strict=True)
    return [n for n, (before, after) in enumerate(pairs) if before != after]


def _arguments(
    call: HloCall, body: Body, moving: Sequence[int], known: Mapping[int, str]
) -> list[str]:
    """Values for the arguments of a loop's body: inputs for the states that change."""
    states = [call.inputs[n] for n in moving]
    flat = flattened(call.emitter, states)
    own = [body.input(f"state{n}", call.type_of(name)) for n, name in enumerate(flat)]
    found = dict(known)
    found |= zip(moving, regrouped(call.emitter, states, body.emitter, own), strict=True)
    return [found[n] if n in found else body.capture(v) for n, v in enumerate(call.inputs)]


def _looped(
    call: HloCall,
    graph: Graph,
    flat: Sequence[str],
    captured: Sequence[str],
    counter: str,
    trips: Index,
) -> list[str]:
    """The last states of a loop with a fixed trip count, in order."""
    if not flat:
        return []
    stacks = stacked(graph, len(flat), counter, trips)
    kept = [n for n in range(len(flat)) if n not in stacks]
    axes = tuple(stack.axis for stack in stacks.values())
    backwards = tuple(stack.backwards for stack in stacks.values())
    body = with_slices(graph, stacks, kept)
    op = Loop(body, counter, trips, len(kept), False, axes, backwards)
    results = call.add(op, *(flat[n] for n in kept), *captured)
    by_state = dict(zip((*kept, *stacks), results, strict=True))
    return [by_state[n] for n in range(len(flat))]


def _following(
    call: HloCall, body: Body, first: Sequence[str], outputs: Sequence[str], counter: str
) -> list[str]:
    """The next states, converted to the types of the first ones; extents that may differ are
    compared."""
    found: list[str] = []
    for before, name in zip(first, flattened(body.emitter, outputs), strict=True):
        wanted, type = call.type_of(before), body.emitter.type_of(name)
        if wanted.shape != type.shape:
            pairs = list(zip(type.shape, wanted.shape, strict=True))
            if any(counter in symbols(e) for e in type.shape) or any(
                compare(a, "!=", b, body.emitter.bounds) for a, b in pairs
            ):
                unsupported(f"a state is {wanted} at first and {type} after an iteration")
            body.emitter.require([(a, "==", b) for a, b in pairs], call.source, True)
            name = body.emitter.emit(Reshape(wanted.shape), name)
        found.append(name)
    return found


def _conditional(call: HloCall) -> Sequence[str]:
    """A loop that runs while its first region yields true."""
    condition, block = call.op.regions
    counter = fresh_counter(call.bounds)
    bounds: Bounds = {**call.bounds, counter: Range(0, None)}
    (first,) = call.inline(condition, call.inputs)
    moving = _changing(block)
    states = [call.inputs[n] for n in moving]
    flat = flattened(call.emitter, states)

    def inputs(body: Body) -> list[str]:
        body.input("going", TensorType((), BOOL))
        return _arguments(call, body, moving, {})

    body = call.body(_followed(block, condition), bounds, inputs)
    going, *outputs = body.outputs
    following = _following(call, body, flat, [outputs[n] for n in moving], counter)
    op = Loop(body.graph([going, *following]), counter, None, 1 + len(flat), True)
    results = call.add(op, first, *flat, *body.captured)[1:]
    found = dict(enumerate(call.inputs))
    found |= zip(moving, regrouped(call.emitter, states, call.emitter, results), strict=True)
    return [found[n] for n in range(len(call.inputs))]


def _followed(block: HloBlock, condition: HloBlock) -> HloBlock:
    """A block that also yields the loop condition after it."""
    test = Operation(
        INLINED, block.results, condition.results, (), (ValueType((), BOOL),), {}, (condition,), "",
    )  # fmt: skip
    return replace(
        block, operations=(*block.operations, test), results=(*condition.results, *block.results)
    )


def fresh_counter(bounds: Bounds) -> str:
    """An unused symbol."""
    number = 0
    while f"while.step{number}" in bounds:
        number += 1
    return f"while.step{number}"
