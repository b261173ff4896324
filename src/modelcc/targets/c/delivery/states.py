"""States of a delivered model, kept between calls: memory of the caller, which the model
initialises."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.targets.c.code import folded
from modelcc.targets.c.delivery.facts import DeliveredModel, DeliveredState
from modelcc.targets.c.delivery.filling import filled, indented, inner_lines


def states_declared(facts: DeliveredModel, fields: list[str]) -> str:
    """The structure of pointers, memory for all of them as variables, and the reset function."""
    if not facts.states:
        return ""
    return filled(
        "states.h",
        name=facts.name,
        NAME=facts.macro,
        fields=indented(fields),
        memory="\n".join(_memory(facts)),
        reset=reset_signature(facts, ";"),
    )


def _memory(facts: DeliveredModel) -> Iterator[str]:
    for state in facts.states:
        count = max(1, _elements(state))
        yield f"    static {state.tensor.element} name##_{state.tensor.field}[{count}] \\"
        yield "        __attribute__((aligned(64))); \\"
    *first, last = (f"name##_{state.tensor.field}" for state in facts.states)
    yield f"    static {facts.name}_states name = {{ \\"
    yield from (f"        {field}, \\" for field in first)
    yield f"        {last}}}"


def reset_signature(facts: DeliveredModel, end: str = "") -> str:
    """Head of the function that resets states to their initial values, followed by ``end``."""
    weights = ", const void *weights" if facts.starts_from_weights else ""
    head = f"{facts.name}_status {facts.name}_states_reset(const {facts.name}_states *states"
    return "\n".join(folded(f"{head}{weights}){end}", ""))


def reset_arguments(facts: DeliveredModel) -> str:
    """Arguments of a call to it, as the example names them."""
    return "&states, weights" if facts.starts_from_weights else "&states"


def states_reset(facts: DeliveredModel) -> Iterator[str]:
    """The definition of this function, if there are states."""
    if not facts.states:
        return
    macro = facts.macro
    given = ["states", *(f"states->{state.tensor.field}" for state in facts.states)]
    given += ["weights"] if facts.starts_from_weights else []
    lines = [f"if ({pointer} == NULL) return {macro}_NULL_POINTER;" for pointer in given]
    for state in facts.states:
        lines += inner_lines(_set(state))
    lines.append(f"return {macro}_OK;")
    yield "\n".join([reset_signature(facts), "{", indented(lines), "}"])


def _set(state: DeliveredState) -> str:
    size = _elements(state) * state.tensor.type.dtype.bytes
    target = f"states->{state.tensor.field}"
    if state.offset is None:
        return f"memset({target}, 0, {size});"
    return f"memcpy({target}, (const uint8_t *)weights + {state.offset}, {size});"


def _elements(state: DeliveredState) -> int:
    count = state.tensor.type.elements
    assert isinstance(count, int), "states have fixed sizes"
    return count
