"""The program for a board that runs a model once: inputs and outputs are files."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.targets.c.delivery.facts import Tensor
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.mcu.delivery.header import header, macro_of
from modelcc.targets.mcu.delivery.memory import declarations, placed
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.mcu.delivery.source import source

MAIN = "board_main.c"


def board_files(model: EmbeddedModel) -> tuple[File, ...]:
    """The model's C with labels at its steps, which add no instructions, and ``main``."""
    texts = {
        f"{model.name}.h": header(model),
        f"{model.name}.c": source(model, marked=True),
        MAIN: board_main(model),
    }
    return tuple(File(name, text.encode()) for name, text in texts.items())


def board_main(model: EmbeddedModel) -> str:
    """A program that runs the delivered model once, between two marks."""
    lines = [
        f'#include "{model.name}.h"',
        '#include "board.h"',
        "",
        *declarations(model),
        "",
        "int main(void)",
        "{",
        *(f"    {line}" for line in _body(model)),
        "}",
        "",
    ]
    return "\n".join(lines)


def _body(model: EmbeddedModel) -> Iterator[str]:
    facts = model.facts
    for tensor in facts.tensors:
        if tensor.field in model.room:
            yield placed(model, tensor)
    if model.states:
        yield f"{model.name}_reset({', '.join(state.field for state in model.states)});"
    yield from (_moved(model, "read", tensor, "in") for tensor in facts.inputs)
    given = ", ".join(["arena", *(tensor.field for tensor in facts.tensors)])
    yield "measured_begin();"
    yield f"const int32_t status = {model.name}_run({given});"
    yield "measured_end();"
    yield from (_moved(model, "write", tensor, "out") for tensor in facts.outputs)
    yield "return (int)status;"


def _moved(model: EmbeddedModel, verb: str, tensor: Tensor, suffix: str) -> str:
    bytes_ = f"{macro_of(model, tensor)}_BYTES"
    return f'board_{verb}("{tensor.field}.{suffix}", {tensor.field}, {bytes_});'
