"""The program for a board that runs a model's bytecode once: inputs and outputs are files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from modelcc.ir.program import Program
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.mcu.emulation.program import MAIN
from modelcc.targets.vm.encode import Encoded
from modelcc.targets.vm.library import interpreter_files

Measured = Literal["run", "open"]
"""The region between the marks."""

_PER_LINE = 16


def bytecode_board_files(
    model: EmbeddedModel, encoded: Encoded, measured: Measured = "run"
) -> tuple[File, ...]:
    """The interpreter with the model's kernels, the bytecode, and ``main``."""
    texts = {"bytecode.c": _array(encoded.data), MAIN: _main(model, encoded, measured)}
    made = (File(name, text.encode()) for name, text in texts.items())
    return (*interpreter_files(encoded.kernels, model.name), *made)


def tensors_of(program: Program) -> tuple[str, ...]:
    """Inputs and outputs in the order of the file."""
    return (*program.inputs, *(n for n in program.outputs if n not in program.states))


def _array(data: bytes) -> str:
    rows = (data[at : at + _PER_LINE] for at in range(0, len(data), _PER_LINE))
    lines = [f"    {', '.join(map(str, row))}," for row in rows]
    head = (
        "#include <stdint.h>\n\nextern const uint8_t bytecode[];\n"
        f"const uint8_t bytecode[{len(data)}] __attribute__((aligned(8))) = {{"
    )
    return "\n".join([head, *lines, "};\n"])


def _main(model: EmbeddedModel, encoded: Encoded, measured: Measured) -> str:
    names = tensors_of(model.program)
    fields = [model.spelled[name] for name in names]
    sizes = [model.program.types[name].bytes for name in names]
    beside = [n for n, field in enumerate(fields) if field not in model.room]
    lines = [
        '#include "mcc.h"',
        '#include "board.h"',
        "",
        f"extern const uint8_t bytecode[{len(encoded.data)}];",
        f"static uint64_t arena[{max(1, (encoded.arena + 7) // 8)}];",
        *(f"static uint64_t memory{n}[{(int(str(sizes[n])) + 7) // 8}];" for n in beside),
        "static mcc_model model;",
        "",
        "int main(void)",
        "{",
        *(f"    {line}" for line in _body(model, fields, beside, measured)),
        "}",
        "",
    ]
    return "\n".join(lines)


def _body(
    model: EmbeddedModel, fields: list[str], beside: list[int], measured: Measured
) -> Iterator[str]:
    given = (f"memory{n}" if n in beside else "0" for n in range(len(fields)))
    yield f"void *const tensors[] = {{{', '.join(given)}}};"
    marked = measured == "open"
    yield from ["measured_begin();"] if marked else []
    yield "int32_t status = mcc_open(&model, bytecode, sizeof bytecode);"
    yield from ["measured_end();"] if marked else []
    yield "if (status != 0) return (int)status;"
    yield "mcc_reset(&model, tensors);"
    inputs = len(model.program.inputs)
    for n, field in enumerate(fields[:inputs]):
        if field in [tensor.field for tensor in model.facts.inputs]:
            yield _moved(model, "read", n, field, "in", n in beside)
    yield from [] if marked else ["measured_begin();"]
    yield "status = mcc_run(&model, arena, tensors);"
    yield from [] if marked else ["measured_end();"]
    for n, field in enumerate(fields[inputs:], inputs):
        yield _moved(model, "write", n, field, "out", n in beside)
    yield "return (int)status;"


def _moved(model: EmbeddedModel, verb: str, n: int, field: str, suffix: str, beside: bool) -> str:
    place = f"memory{n}" if beside else f"(uint8_t *)arena + {model.room[field]}"
    return f'board_{verb}("{field}.{suffix}", {place}, mcc_tensor_of(&model, {n}).bytes);'
