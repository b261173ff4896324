"""All files of a model for a microcontroller."""

from __future__ import annotations

from modelcc.targets.c.delivery.folder import File
from modelcc.targets.mcu.delivery.cmake import cmake_files
from modelcc.targets.mcu.delivery.example import example
from modelcc.targets.mcu.delivery.header import header
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.mcu.delivery.source import source


def embedded_files(model: EmbeddedModel) -> tuple[File, ...]:
    """The files, each with its name."""
    texts = {
        f"{model.name}.h": header(model),
        f"{model.name}.c": source(model),
        "example.c": example(model),
        **dict(cmake_files(model)),
    }
    return tuple(File(name, text.encode()) for name, text in texts.items())
