"""Printing and parsing of levels, with constants in a separate file.

Constants are not in the text: next to ``model.graph.mlir`` a file ``model.graph.npz`` holds them by
digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from modelcc.feeds.npz import read_arrays, write_npz
from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_parser import parse_graph
from modelcc.ir.graph_text import constants_by_digest, print_graph
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_functions
from modelcc.ir.loop_text import print_functions
from modelcc.ir.loop_verifier import verify_functions
from modelcc.ir.op import Dialect
from modelcc.ir.program import Program
from modelcc.ir.program_parser import parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import DTYPES, Array, DType, dtype_of

Functions = tuple[Function, ...]


@dataclass(frozen=True)
class Level:
    """One level: the pipeline block it precedes, and the one at which it enters when read back,
    None if it cannot."""

    name: str
    suffix: str
    leaves: str
    enters: str | None


LEVELS: Mapping[str, Level] = MappingProxyType(
    {
        level.name: level
        for level in (
            Level("graph", ".graph.mlir", "lower", "graph"),
            Level("tensor", ".tensor.txt", "schedule", "schedule"),
            Level("launches", ".launches.txt", "loop", "loop"),
            Level("loop", ".loop.txt", "emit", None),
            Level("program", ".program.txt", "emit", "emit"),
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
        case Program():
            return print_program(program)
        case _:
            return print_functions(program)


def parse_level(
    level: str, text: str, constants: Mapping[str, Constant], dialects: tuple[Dialect, ...]
) -> Any:
    """The program parsed from ``text``, verified; :class:`ModelError` with line and column if
    malformed."""
    match level:
        case "graph":
            program: Any = parse_graph(text, constants, dialects)
        case "tensor":
            program = parse_tensor_program(text, constants)
        case "loop":
            program = parse_functions(text)
        case "launches" | "program":
            program = parse_program(text, constants)
            _verify_placed(program, level == "program")
        case _:
            raise ModelError(f"there is no level {level!r}", (), f"levels: {', '.join(LEVELS)}")
    verify_level(program)
    return program


def _verify_placed(program: Program, wanted: bool) -> None:
    if wanted and program.placement is None:
        message, hint = "memory is not planned: the text has no arena", "it is one of launches"
        raise ModelError(message, (program.name,), hint)
    if not wanted and program.placement is not None:
        message, hint = "memory is planned: the text has an arena", "it is one of a program"
        raise ModelError(message, (program.name,), hint)


def verify_level(program: object, before: object = None) -> None:
    """Raises :class:`ModelError` if a program violates a rule of its level.

    ``before`` is the valid program that it was derived from: unchanged parts are not verified
    again.
    """
    match program:
        case Graph():
            verify_graph(program, before=before if isinstance(before, Graph) else None)
        case TensorProgram():
            known = before if isinstance(before, TensorProgram) else None
            verify_tensor_program(program, known)
        case Program():
            verify_program(program, before if isinstance(before, Program) else None)
        case tuple():
            verify_functions(cast(Functions, program))
        case _:
            pass


def constants_of(program: object) -> dict[str, Constant]:
    """The constants of a program by digest."""
    if isinstance(program, Graph):
        return constants_by_digest(program)
    if isinstance(program, TensorProgram | Program):
        return {constant.digest: constant for constant in program.constants.values()}
    return {}


def constants_path(text: Path) -> Path:
    """The constants file of a text file."""
    return text.with_suffix(".npz")


def write_constants(path: Path, constants: Mapping[str, Constant]) -> None:
    """Writes each constant under its digest and element type."""
    arrays = {f"{d}.{dtype_of(c.data)}": _plain(c.data) for d, c in constants.items()}
    write_npz(path, arrays)


def read_constants(path: Path) -> dict[str, Constant]:
    """Reads the result of :func:`write_constants`, by digest; empty if there is no such file.

    :class:`ModelError` if the file is invalid, or its contents have changed.
    """
    if not path.is_file():
        return {}
    found: dict[str, Constant] = {}
    try:
        arrays = read_arrays(path)
        if not isinstance(arrays, dict):
            raise ValueError("it is a .npy file")
        for key, array in arrays.items():
            digest, _, dtype = key.partition(".")
            found[digest] = Constant(_typed(array, DTYPES[dtype]))
    except (OSError, ValueError, KeyError) as error:
        hint = "--emit LEVEL -o FOLDER/ writes one"
        raise ModelError(f"{path} is no file of constants: {error}", (), hint) from error
    for digest, constant in found.items():
        if constant.digest != digest:
            raise ModelError(f"constant {digest[:12]}… of {path} has been changed")
    return found


def _plain(data: Array) -> Array:
    """``data`` in a dtype that .npy files support."""
    if data.dtype == object:
        return data.astype(str)
    known = np.dtype(f"u{data.dtype.itemsize}") if data.dtype.kind == "V" else data.dtype
    return data.view(known)


def _typed(data: Array, dtype: DType) -> Array:
    return data.astype(object) if dtype.kind == "string" else data.view(dtype.numpy)
