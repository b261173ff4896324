"""All files of a model for a microcontroller."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.program import libraries
from modelcc.targets.c.code import folded
from modelcc.targets.c.delivery.filling import filled
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.mcu.delivery.header import header, macro_of
from modelcc.targets.mcu.delivery.memory import declarations, placed
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.mcu.delivery.source import source

TOOLCHAIN = "toolchain.cmake"


def embedded_files(model: EmbeddedModel) -> tuple[File, ...]:
    """The files, each with its name."""
    texts = {
        f"{model.name}.h": header(model),
        f"{model.name}.c": source(model),
        "example.c": _example(model),
        **dict(_cmake_files(model)),
    }
    return tuple(File(name, text.encode()) for name, text in texts.items())


def _library(name: str, model: str) -> str:
    """CMake code that finds a vendor's library, in its own project or in the enclosing one."""
    macro = name.upper().replace("-", "_")
    return filled("vendor_library.cmake", name=model, library=name, LIBRARY=macro)


def _cmake_files(model: EmbeddedModel) -> Iterator[tuple[str, str]]:
    machine = model.machine
    option = f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN} " if machine.compiler else ""
    yield (
        "CMakeLists.txt",
        filled(
            "embedded_CMakeLists.txt",
            name=model.name,
            processor=machine.words,
            toolchain_option=option,
            libraries="".join(_library(name, model.name) for name in libraries(model.program)),
        ),
    )
    if machine.compiler:
        yield (
            TOOLCHAIN,
            filled(
                TOOLCHAIN,
                processor=machine.words,
                architecture=machine.architecture,
                compiler=machine.compiler,
                flags=" ".join(machine.flags),
            ),
        )


def _example(model: EmbeddedModel) -> str:
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
