"""``CMakeLists.txt``: the model as a library that others find, and its processor's compiler."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.program import libraries
from modelcc.targets.c.delivery.filling import filled
from modelcc.targets.mcu.delivery.model import EmbeddedModel

TOOLCHAIN = "toolchain.cmake"


def _library(name: str, model: str) -> str:
    """What finds a vendor's library, in its own project or in the one that this is part of."""
    macro = name.upper().replace("-", "_")
    return filled("vendor_library.cmake", name=model, library=name, LIBRARY=macro)


def cmake_files(model: EmbeddedModel) -> Iterator[tuple[str, str]]:
    """The files, each with its name."""
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
