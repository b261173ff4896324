"""``example.c``: a program that runs the model once, on zeros."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.targets.c.code import folded
from modelcc.targets.mcu.delivery.header import macro_of
from modelcc.targets.mcu.delivery.memory import declarations, placed
from modelcc.targets.mcu.delivery.model import EmbeddedModel


def example(model: EmbeddedModel) -> str:
    """Text of the file."""
    return "\n".join(
        [
            f"/* How to use {model.name}.h: fill inputs, run the model, read outputs. */",
            f'#include "{model.name}.h"',
            "",
            *_memory(model),
            "int main(void)",
            "{",
            *_body(model),
            "}",
            "",
        ]
    )


def _memory(model: EmbeddedModel) -> Iterator[str]:
    yield f"/* {model.macro}_ARENA_BYTES, aligned for {model.macro}_ARENA_ALIGNMENT. */"
    yield from declarations(model)
    yield ""


def _body(model: EmbeddedModel) -> Iterator[str]:
    facts = model.facts
    for tensor in facts.tensors:
        if tensor.field in model.room:
            yield from folded(placed(model, tensor), "    ")
    for tensor in facts.inputs:
        yield f"    for (int32_t i = 0; i < {macro_of(model, tensor)}_ELEMENTS; i++)"
        yield f"        {tensor.field}[i] = 0;"
    if model.states:
        yield f"    {model.name}_reset({', '.join(state.field for state in model.states)});"
    given = ", ".join(tensor.field for tensor in facts.tensors)
    yield from folded(f"return (int){model.name}_run(arena, {given});", "    ")
