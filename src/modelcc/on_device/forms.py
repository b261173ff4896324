"""The forms that a model may have on a microcontroller, to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from modelcc.ir.errors import ModelError
from modelcc.ir.program import libraries
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.mcu.emulation.build import BoardProgram
from modelcc.targets.mcu.emulation.program import board_files
from modelcc.targets.vm.board import bytecode_board_files
from modelcc.targets.vm.encode import encode

_BOARD = "board_main.o", "startup.o"
"""Objects that are not part of a model."""

LIBRARIES = "libraries"
WEIGHTS, TABLES, CODE = "weights", "tables", "code"
BYTECODE, INTERPRETER, KERNELS = "bytecode", "interpreter", "kernels"
_PARTS: Mapping[str, str] = MappingProxyType(
    {"": LIBRARIES, "bytecode.o": BYTECODE, "mcc.o": INTERPRETER, "mcc_kernels.o": KERNELS}
)
"""Categories of object files; others are a model in C."""


@dataclass(frozen=True)
class DeviceForm:
    """``files`` are a program for a board, to be compiled with ``optimize``; ``arena`` is its arena
    in bytes.  ``replaced`` are the parts of flash that an update replaces."""

    name: str
    files: tuple[File, ...]
    optimize: str
    arena: int
    replaced: tuple[str, ...]


def forms_of(model: EmbeddedModel) -> tuple[tuple[DeviceForm, ...], str]:
    """All forms of the model, C for speed and for size, and bytecode for an interpreter with its
    kernels; and why it has no bytecode, if so."""
    if model.program.external_calls:
        return _c_forms(model), "bytecode calls no libraries"
    try:
        encoded = encode(model)
    except ModelError as error:
        return _c_forms(model), str(error)
    bytecode = bytecode_board_files(model, encoded)
    made = DeviceForm("bytecode", bytecode, "-O2", encoded.arena, (BYTECODE,))
    return (*_c_forms(model), made), ""


def _c_forms(model: EmbeddedModel) -> tuple[DeviceForm, ...]:
    parts = WEIGHTS, TABLES, CODE, LIBRARIES
    called = "".join(f", {name}" for name in libraries(model.program))
    return tuple(
        DeviceForm(f"C {level}{called}", board_files(model), level, model.arena, parts)
        for level in ("-O2", "-Os")
    )


def flash_parts(model: EmbeddedModel, program: BoardProgram) -> Mapping[str, int]:
    """Bytes of flash by category, without the board's startup code."""
    arrays = {one.field: WEIGHTS if one.is_weight else TABLES for one in model.arrays}
    parts: dict[str, int] = {}
    for file, sizes in program.flash_by_object.items():
        usual = _PARTS.get(file, CODE)
        for name, size in sizes.items() if file not in _BOARD else ():
            part = arrays.get(name, usual)
            parts[part] = parts.get(part, 0) + size
    return parts
