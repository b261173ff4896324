"""Control flow: branches, and loops, of which those that count are known to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from modelcc.frontends.kit.body import Body
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.stablehlo.call import HloCall, index_scalar, table
from modelcc.frontends.stablehlo.module import Attribute, HloBlock, Operation, ValueType
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import Bounds, Index, Range, Sym, ceildiv, compare, maximum, symbols
from modelcc.ir.types import BOOL, TensorType
from modelcc.ops import elementwise as ew
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.control import If, Loop


def if_(call: HloCall) -> Sequence[str]:
    known = call.known(0)
    if known is not None and not is_symbolic(known):
        taken = call.op.regions[0 if bool(known) else 1]
        return call.inline(taken, ())
    return _chosen(call, call.input(0), *call.op.regions)


def case(call: HloCall) -> Sequence[str]:
    """The last branch where the index is none; of more than two each is taken or passed by."""
    known = call.known(0)
    *branches, last = call.op.regions
    if known is not None and not is_symbolic(known):
        place = int(known)
        return call.inline(branches[place] if 0 <= place < len(branches) else last, ())
    results: Sequence[str] | None = None
    for number, branch in enumerate(branches):
        place = call.value(0)
        taken = call.emit(ew.Equal(), place.name, place.lift(number).name)
        if results is None:
            results = _chosen(call, taken, branch, last)
        else:
            results = _joined(call, taken, [_body(call, branch), _passing(call, results)])
    return call.inline(last, ()) if results is None else results


def _body(call: HloCall, block: HloBlock) -> Body:
    return call.body(block, call.bounds, lambda _: ())


def _passing(call: HloCall, values: Sequence[str]) -> Body:
    """A branch that results in ``values`` of around it."""
    made = Body(call.emitter, Emitter(GraphBuilder("body", call.bounds), call.bounds, inner=True))
    return replace(made, outputs=tuple(map(made.capture, values)))


def _chosen(call: HloCall, condition: str, then: HloBlock, other: HloBlock) -> Sequence[str]:
    return _joined(call, condition, [_body(call, then), _body(call, other)])


def _joined(call: HloCall, condition: str, bodies: Sequence[Body]) -> Sequence[str]:
    captured = list(dict.fromkeys(value for body in bodies for value in body.captured))
    for body in bodies:
        for value in captured:
            body.capture(value)
    graphs = [body.graph(flattened(body.emitter, body.outputs), captured) for body in bodies]
    results = call.add(If(*graphs), condition, *captured)
    return regrouped(bodies[0].emitter, bodies[0].outputs, call.emitter, results)


@dataclass(frozen=True)
class _Count:
    """A state that goes from ``start`` by ``step`` while it is less than ``limit``."""

    state: int
    start: Index
    limit: Index
    step: int

    @property
    def trips(self) -> Index:
        return maximum(0, ceildiv(self.limit - self.start, self.step))


def while_(call: HloCall) -> Sequence[str]:
    count = _count(call)
    return _conditional(call) if count is None else _counted(call, count)


def _count(call: HloCall) -> _Count | None:
    """What counts the iterations of the loop, if one of its states does."""
    condition, body = call.op.regions
    test = _made(condition, condition.results[0])
    if test is None or str(test.attributes.get("comparison_direction")) != "LT":
        return None
    if test.operands[0] not in condition.arguments or len(condition.operations) > 2:
        return None
    state = condition.arguments.index(test.operands[0])
    limit, start = _outside(call, condition, test.operands[1]), _index(call, call.input(state))
    step = _step(call, body, state)
    if limit is None or start is None or step is None:
        return None
    return _Count(state, start, limit, step)


def _made(block: HloBlock, number: int) -> Operation | None:
    return next((op for op in block.operations if number in op.results), None)


def _outside(call: HloCall, block: HloBlock, number: int) -> Index | None:
    """A value of around the loop, or a constant in it, as an index."""
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


def _step(call: HloCall, body: HloBlock, state: int) -> int | None:
    """By how much each iteration adds to a state."""
    op = _made(body, body.results[state])
    if op is None or op.name != "stablehlo.add" or body.arguments[state] not in op.operands:
        return None
    other = op.operands[1 - op.operands.index(body.arguments[state])]
    found = _outside(call, body, other)
    return found if isinstance(found, int) and found > 0 else None


def _counted(call: HloCall, count: _Count) -> Sequence[str]:
    """A loop whose counter is an index in its body."""
    counter = _fresh(call.bounds)
    trips = count.trips
    bounds: Bounds = {**call.bounds, counter: Range(0, trips - 1)}
    states = [name for n, name in enumerate(call.inputs) if n != count.state]
    dtype = call.type_of(call.inputs[count.state]).dtype

    def inputs(body: Body) -> list[str]:
        found = _as_inputs(call, body, states)
        place = count.start + Sym(counter) * count.step
        found.insert(count.state, index_scalar(body.emitter, place, dtype))
        return found

    body = call.body(call.op.regions[1], bounds, inputs)
    following = [name for n, name in enumerate(body.outputs) if n != count.state]
    flat = flattened(call.emitter, states)
    op = Loop(body.graph(_following(call, body, flat, following, counter)), counter, trips,
              len(flat), False)  # fmt: skip
    results = call.add(op, *flat, *body.captured)
    found = regrouped(call.emitter, states, call.emitter, results)
    found.insert(count.state, index_scalar(call.emitter, count.start + trips * count.step, dtype))
    return found


def _as_inputs(call: HloCall, body: Body, states: Sequence[str]) -> list[str]:
    """Inputs of a body for the states of a loop."""
    flat = flattened(call.emitter, states)
    own = [body.input(f"state{n}", call.type_of(name)) for n, name in enumerate(flat)]
    return regrouped(call.emitter, states, body.emitter, own)


def _following(
    call: HloCall, body: Body, first: Sequence[str], outputs: Sequence[str], counter: str
) -> list[str]:
    """The next states, of the types of the first ones; names that may differ are compared."""
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


def flattened(emitter: Emitter, names: Sequence[str]) -> list[str]:
    """The tensors that values consist of."""
    groups = [(name, emitter.find_group(name)) for name in names]
    return [part for name, group in groups for part in (group.parts if group else (name,))]


def regrouped(
    emitter: Emitter, like: Sequence[str], own: Emitter, flat: Sequence[str]
) -> list[str]:
    """Values of ``own`` made of ``flat`` tensors as the values ``like`` of ``emitter`` are."""
    parts, found = iter(flat), list[str]()
    for name in like:
        group = emitter.find_group(name)
        if group is None:
            found.append(next(parts))
        else:
            found.append(own.group(group.of([next(parts) for _ in group.parts])))
    return found


def _conditional(call: HloCall) -> Sequence[str]:
    """A loop that goes on while its first region says so."""
    condition, block = call.op.regions
    counter = _fresh(call.bounds)
    bounds: Bounds = {**call.bounds, counter: Range(0, None)}
    (first,) = call.inline(condition, call.inputs)
    flat = flattened(call.emitter, call.inputs)

    def inputs(body: Body) -> list[str]:
        body.input("going", TensorType((), BOOL))
        return _as_inputs(call, body, call.inputs)

    body = call.body(_followed(block, condition), bounds, inputs)
    going, *following = body.outputs
    states = _following(call, body, flat, following, counter)
    op = Loop(body.graph([going, *states]), counter, None, 1 + len(states), True)
    results = call.add(op, first, *flat, *body.captured)[1:]
    return regrouped(call.emitter, call.inputs, call.emitter, results)


def _followed(block: HloBlock, condition: HloBlock) -> HloBlock:
    """A block that results in the condition after it, too."""
    test = Operation(
        INLINED, block.results, condition.results, (), (ValueType((), BOOL),), {}, (condition,), "",
    )  # fmt: skip
    return replace(
        block,
        operations=(*block.operations, test),
        results=(*condition.results, *block.results),
    )


INLINED = "modelcc.inline"
"""An operation of our own: its region, of its operands."""


def inlined(call: HloCall) -> Sequence[str]:
    """The region of the operation, of its operands."""
    return call.inline(call.op.regions[0], call.inputs)


def _fresh(bounds: Bounds) -> str:
    """A symbol that is not in use."""
    number = 0
    while f"while.step{number}" in bounds:
        number += 1
    return f"while.step{number}"


def called(call: HloCall) -> Sequence[str]:
    return call.call(str(call.attribute("callee")), call.inputs)


def composite(call: HloCall) -> Sequence[str]:
    """By the function that a composite is made of."""
    return call.call(str(call.attribute("decomposition")), call.inputs)


def mapped(call: HloCall) -> Sequence[str]:
    """A region that is written for one element, of all of them."""
    results = call.inline(call.op.regions[0], call.inputs, lifted=True)
    return [_whole(call, name) for name in results]


def _whole(call: HloCall, name: str) -> str:
    missing = call.type_of(name).shape != call.shape()
    return call.emit(Expand(call.shape()), name) if missing else name


def same(call: HloCall) -> Sequence[str]:
    return call.inputs


CONTROL = table(
    if_=if_, case=case, while_=while_, composite=composite, map=mapped, optimization_barrier=same
)
CALLS = table("func", call=called)
SHARDING = table("sdy", sharding_constraint=same)
INLINE = table("modelcc", inline=inlined)
