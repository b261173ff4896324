"""All files of a delivered model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.targets.c.delivery.cmake import cmake
from modelcc.targets.c.delivery.example import example
from modelcc.targets.c.delivery.facts import DeliveredModel
from modelcc.targets.c.delivery.header import header
from modelcc.targets.c.delivery.pool import pool_files
from modelcc.targets.c.delivery.source import source
from modelcc.targets.c.delivery.weights import weights_source


@dataclass(frozen=True)
class File:
    """A file of the folder."""

    name: str
    contents: bytes | memoryview


def folder_files(facts: DeliveredModel) -> tuple[File, ...]:
    """The files, each with its name.

    :class:`~modelcc.ir.errors.ModelError` for element types that C has no form for.
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
