"""The levels as text: written, and read back with their constants beside them.

Constants are no text: a file ``constants.npz`` holds them by digest, next to the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.ir.graph import Constant, Graph
from modelcc.ir.graph_parser import parse_graph
from modelcc.ir.graph_text import constants_by_digest, print_graph
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_functions
from modelcc.ir.loop_text import print_functions
from modelcc.ir.op import Dialect, ModelError
from modelcc.ir.program import Program
from modelcc.ir.scheduled import KernelCall, ScheduledProgram
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import TensorType
from modelcc.ops.catalog import MCC

CONSTANTS = "constants.npz"

Functions = tuple[Function, ...]
Resolve = Callable[[str, TensorType], Constant]


@dataclass(frozen=True)
class Level:
    """One level: the block of the pipeline it enters when read back, None if it cannot."""

    name: str
    suffix: str
    enters: str | None


LEVELS: Mapping[str, Level] = MappingProxyType(
    {
        level.name: level
        for level in (
            Level("graph", ".graph.mlir", "graph"),
            Level("tensor", ".tensor.txt", "schedule"),
            Level("loop", ".loop.txt", None),
            Level("program", ".program.txt", "emit"),
        )
    }
)


def level_text(program: Any) -> str:
    """Text of a program on any level."""
    match program:
        case Graph():
            return print_graph(program)
        case TensorProgram():
            return print_tensor_program(program)
        case ScheduledProgram():
            return print_functions(scheduled_functions(program))
        case Program():
            return print_functions(program.functions)
        case _:
            return print_functions(program)


def parse_level(level: str, text: str, constants: Resolve, dialects: tuple[Dialect, ...]) -> Any:
    """What ``text`` spells, verified; :class:`ModelError` with line and column if malformed."""
    match level:
        case "graph":
            program: Any = parse_graph(text, constants, dialects)
        case "tensor":
            program = parse_tensor_program(text, constants)
        case "loop":
            program = parse_functions(text)
        case _:
            raise ModelError(f"there is no level {level!r}", (), f"levels: {', '.join(LEVELS)}")
    verify_level(program)
    return program


def verify_level(program: Any) -> None:
    """Raise :class:`ModelError` if a program breaks a rule of its level."""
    match program:
        case Graph():
            verify_graph(program)
        case TensorProgram():
            verify_tensor_program(program)
        case _:
            pass


def scheduled_functions(program: ScheduledProgram) -> Functions:
    """The loop functions of a scheduled program, each once."""
    calls = (item for item in program.items if isinstance(item, KernelCall))
    return tuple(dict.fromkeys(call.function for call in calls))


def constants_of(program: Any) -> dict[str, Constant]:
    """The constants of a program by digest."""
    if isinstance(program, Graph):
        return constants_by_digest(program)
    if isinstance(program, TensorProgram | ScheduledProgram | Program):
        return {constant.digest: constant for constant in program.constants.values()}
    return {}


def write_constants(path: Path, constants: Mapping[str, Constant]) -> None:
    """Write the bytes of each constant under its digest; element types are in the text."""
    arrays = {digest: _raw(constant) for digest, constant in constants.items()}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]


def read_constants(path: Path | None) -> Resolve:
    """Finds constants in a file that :func:`write_constants` wrote."""

    def resolve(digest: str, type: TensorType) -> Constant:
        if path is None or not path.is_file():
            place = "no file of constants" if path is None else f"there is no {path}"
            hint = f"give the {CONSTANTS} that --emit wrote next to the text"
            raise ModelError(f"constant {digest[:12]}… is needed, but {place}", (), hint)
        with np.load(path, allow_pickle=False) as archive:
            if digest not in archive:
                raise ModelError(f"{path} holds no constant {digest[:12]}…")
            data = archive[digest]
        try:
            return Constant(data.view(type.dtype.numpy).reshape(stored_shape(type)))
        except ValueError as error:
            raise ModelError(f"constant {digest[:12]}… of {path} is no {type}") from error

    return resolve


def stored_shape(type: TensorType) -> tuple[int, ...]:
    """Shape of the array that holds a constant: of its physical buffer, if it has a layout."""
    shape = type.shape if type.layout is None else type.layout.physical_shape(type.shape)
    return tuple(evaluate(extent, {}) for extent in shape)


def _raw(constant: Constant) -> Any:
    return np.ascontiguousarray(constant.data).reshape(-1).view(np.uint8)


DIALECTS = (MCC,)
