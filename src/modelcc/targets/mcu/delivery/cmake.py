"""``CMakeLists.txt``: the model as a library that others find, and its processor's compiler."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.targets.c.delivery.filling import filled
from modelcc.targets.mcu.delivery.model import EmbeddedModel

TOOLCHAIN = "toolchain.cmake"


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
