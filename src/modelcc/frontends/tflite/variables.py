"""Variables by name, and subgraphs that are run once to give them their first values."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.kept import known_contents
from modelcc.ir.types import I64, TensorType


def var_handle(call: TfliteCall) -> str:
    """VAR_HANDLE: which variable this is, by its names."""
    names = (call.word("container"), call.word("shared_name"))
    label = "/".join(name for name in names if name) or "variable"
    return call.constant(np.asarray(call.states.handle(label)), I64)


def _variable(call: TfliteCall) -> str:
    if not call.operands or call.operands[0] is None or call.operands[0].type != "RESOURCE":
        call.fail("its first operand is no variable")
    (number,) = call.integers(0, "variable")
    return call.states.named(number)


def read_variable(call: TfliteCall) -> str:
    """READ_VARIABLE: what the variable is now."""
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


VARIABLES: Handlers = {
    "VAR_HANDLE": var_handle,
    "READ_VARIABLE": read_variable,
    "ASSIGN_VARIABLE": assign_variable,
    "CALL_ONCE": call_once,
}
