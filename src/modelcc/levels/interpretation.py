"""Semantics of a program on any level: its reference interpreter."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.program import Program
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.types import Array

INTERPRETED = (Graph, TensorProgram, Program)
"""Kinds of programs that have an interpreter."""


def interpret_level(
    program: object, feeds: Mapping[str, Array], sizes: Mapping[str, int]
) -> tuple[Array, ...]:
    """Outputs of ``program``, in order; ``sizes`` are the values of named dimensions."""
    match program:
        case Graph():
            return _ordered(interpret(program, feeds), program.outputs)
        case TensorProgram():
            return _ordered(run_program(program, feeds, sizes), program.outputs)
        case Program():
            return _ordered(interpret_program(program, feeds), program.outputs)
        case _:
            raise TypeError(f"there is no interpreter for {type(program).__name__}")


def _ordered(values: Mapping[str, Array], names: tuple[str, ...]) -> tuple[Array, ...]:
    return tuple(values[name] for name in names)
