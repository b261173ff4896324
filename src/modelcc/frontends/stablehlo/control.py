"""Control flow: branches, and regions and functions inlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.frontends.kit.body import Body
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.frontends.stablehlo.loops import while_
from modelcc.frontends.stablehlo.module import HloBlock
from modelcc.frontends.stablehlo.states import flattened, regrouped
from modelcc.ir.builder import GraphBuilder
from modelcc.ops import elementwise as ew
from modelcc.ops.broadcast import Expand
from modelcc.ops.control import If


def if_(call: HloCall) -> Sequence[str]:
    known = call.known(0)
    if known is not None and not is_symbolic(known):
        taken = call.op.regions[0 if bool(known) else 1]
        return call.inline(taken, ())
    return _chosen(call, call.input(0), *call.op.regions)


def case(call: HloCall) -> Sequence[str]:
    """The last branch if the index is out of range; more than two become nested branches."""
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
    """A branch that yields ``values`` of the enclosing graph."""
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


def inlined(call: HloCall) -> Sequence[str]:
    """The operation's region, inlined on its operands."""
    return call.inline(call.op.regions[0], call.inputs)


def called(call: HloCall) -> Sequence[str]:
    return call.call(str(call.attribute("callee")), call.inputs)


def composite(call: HloCall) -> Sequence[str]:
    """By the function that a composite decomposes to."""
    return call.call(str(call.attribute("decomposition")), call.inputs)


def mapped(call: HloCall) -> Sequence[str]:
    """A region written for one element, applied to whole tensors."""
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
