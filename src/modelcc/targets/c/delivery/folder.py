"""All files of a delivered model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from modelcc.ir.program import libraries
from modelcc.targets.c.delivery.example import example
from modelcc.targets.c.delivery.facts import DeliveredModel
from modelcc.targets.c.delivery.filling import filled
from modelcc.targets.c.delivery.header import LANGUAGE, flags, header
from modelcc.targets.c.delivery.source import source
from modelcc.targets.c.delivery.weights import weights_source
from modelcc.targets.c.toolchain import FUSED

_WARNINGS = "-Wno-psabi"


@dataclass(frozen=True)
class File:
    """A file of the folder."""

    name: str
    contents: bytes | memoryview


def folder_files(facts: DeliveredModel) -> tuple[File, ...]:
    """The files, each with its name.

    :class:`~modelcc.ir.errors.ModelError` for element types that C lacks.
    """
    binary = _binary(facts)
    return (*(File(name, text.encode()) for name, text in _texts(facts)), *binary)


def _texts(facts: DeliveredModel) -> Iterator[tuple[str, str]]:
    name = facts.name
    yield f"{name}.h", header(facts)
    yield f"{name}.c", source(facts)
    if facts.weights is not None:
        yield f"{name}_weights.c", weights_source(facts, facts.weights)
    if facts.has_pool:
        yield from pool_files(name).items()
    yield "main.c", example(facts)
    yield "CMakeLists.txt", cmake(facts)


def _binary(facts: DeliveredModel) -> tuple[File, ...]:
    if facts.weights is None or facts.request.weights == "array":
        return ()
    return (File(f"{facts.name}_weights.bin", facts.weights.data),)


def cmake(facts: DeliveredModel) -> str:
    """Text of the file."""
    name, macro = facts.name, facts.macro
    sources = [f"{name}.c"]
    sources += [f"{name}_weights.c"] if facts.weights else []
    sources += [f"{name}_pool.c"] if facts.has_pool else []
    form = facts.request.weights if facts.weights else ""
    return filled(
        "CMakeLists.txt",
        name=name,
        language=LANGUAGE,
        sources=" ".join(sources),
        options=f"{' '.join(flags(facts))}\n    {' '.join((*FUSED, _WARNINGS))}",
        libraries=" ".join(("m", *libraries(facts.program))),
        threads=filled("threads.cmake", name=name).rstrip() if facts.has_pool else "",
        incbin=filled("incbin.cmake", name=name, NAME=macro) if form == "incbin" else "",
        weights=filled("weights.cmake", name=name, NAME=macro).rstrip() if form == "bin" else "",
    )


def pool_files(name: str) -> dict[str, str]:
    """Texts by file name."""
    return {f"{name}_pool.{kind}": _renamed(_text(kind), name) for kind in ("h", "c")}


def _text(kind: str) -> str:
    return files("modelcc.runtime").joinpath(f"pool.{kind}").read_text("utf-8")


def _renamed(text: str, name: str) -> str:
    text = text.replace("pool.h", f"{name}_pool.h").replace("mcc_", f"{name}_")
    return text.replace("MCC_", f"{name.upper()}_")
