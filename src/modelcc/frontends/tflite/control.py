"""IF, WHILE and CALL, which run subgraphs, and variables, which CALL_ONCE initialises."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.body import Body
from modelcc.frontends.kit.branches import chosen
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.loops import conditional_loop, new_counter, scalar, with_states
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.kept import known_contents
from modelcc.ir.index import Range
from modelcc.ir.types import I64, TensorType


def if_(call: TfliteCall) -> tuple[str, ...]:
    """IF: one of two subgraphs on all operands except the first, the condition."""
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
    """WHILE: a subgraph on its own results, while another subgraph on them yields true."""
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


def var_handle(call: TfliteCall) -> str:
    """VAR_HANDLE: a variable's identity, by its names."""
    names = (call.word("container"), call.word("shared_name"))
    label = "/".join(name for name in names if name) or "variable"
    return call.constant(np.asarray(call.states.handle(label)), I64)


def _variable(call: TfliteCall) -> str:
    if not call.operands or call.operands[0] is None or call.operands[0].type != "RESOURCE":
        call.fail("its first operand is no variable")
    (number,) = call.integers(0, "variable")
    return call.states.named(number)


def read_variable(call: TfliteCall) -> str:
    """READ_VARIABLE: the variable's current value."""
    name = _variable(call)
    first = call.states.initial.get(name)
    tensor = call.results[0]
    if first is None and (tensor.shape is None or -1 in tensor.shape):
        unsupported(f"nothing says the shape of variable {name!r}")
    shape = tuple(tensor.shape or ()) if first is None else first.shape
    return call.states.read(name, TensorType(shape, call.result_dtype), call.emitter)


def assign_variable(call: TfliteCall) -> tuple[str, ...]:
    """ASSIGN_VARIABLE."""
    name = _variable(call)
    if call.once:
        call.states.begin(name, known_contents(call.emitter, call.input(1)))
    else:
        call.states.write(name, call.input(1), call.emitter)
    return ()


def call_once(call: TfliteCall) -> tuple[str, ...]:
    """CALL_ONCE."""
    call.inline(call.integer("init_subgraph_index"), (), once=True)
    return ()


CONTROL: Handlers = {
    "IF": if_,
    "WHILE": while_,
    "CALL": call_,
    "VAR_HANDLE": var_handle,
    "READ_VARIABLE": read_variable,
    "ASSIGN_VARIABLE": assign_variable,
    "CALL_ONCE": call_once,
}
