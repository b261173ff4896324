"""IF, WHILE and CALL: operators that run subgraphs."""

from __future__ import annotations

from modelcc.frontends.kit.body import Body
from modelcc.frontends.kit.branches import chosen
from modelcc.frontends.kit.loops import conditional_loop, new_counter, scalar, with_states
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.ir.index import Range


def if_(call: TfliteCall) -> tuple[str, ...]:
    """IF: one of two subgraphs on all operands but the first, the condition."""
    then, other = (call.integer(f"{side}_subgraph_index", -1) for side in ("then", "else"))
    condition, operands = call.known(0), call.inputs[1:]
    if condition is not None and not is_symbolic(condition):
        return call.inline(then if condition.reshape(-1)[0] else other, operands)

    def captured(body: Body) -> list[str]:
        return [body.capture(name) for name in operands]

    sides = [call.body(number, call.bounds, captured) for number in (then, other)]
    names = [tensor.name for tensor in call.results]
    return chosen(call, scalar(call.emitter, call.inputs[0]), sides[0], sides[1], names)


def while_(call: TfliteCall) -> tuple[str, ...]:
    """WHILE: a subgraph on its own results, as long as another one on them says so."""
    condition, body = (call.integer(f"{part}_subgraph_index", -1) for part in ("cond", "body"))
    counter = new_counter(call.bounds, "while")
    (first,) = call.inline(condition, call.inputs)

    def states(own: Body) -> list[str]:
        return [own.input(f"state{n}", call.type_of(name)) for n, name in enumerate(call.inputs)]

    made = call.body(body, {**call.bounds, counter: Range(0, None)}, states, condition)
    made = with_states(call, made, 1, call.inputs, counter)
    going = scalar(call.emitter, first)
    return conditional_loop(call, made, counter, None, None, going, call.inputs)


def call_(call: TfliteCall) -> tuple[str, ...]:
    """CALL: a subgraph on the operands."""
    return call.inline(call.integer("subgraph", -1), call.inputs)


CONTROL: Handlers = {"IF": if_, "WHILE": while_, "CALL": call_}
