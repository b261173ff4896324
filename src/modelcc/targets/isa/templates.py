"""How processors compute an instruction, as a template for each printer.

Templates mention operands by the names that the instruction gives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from modelcc.ir.index import Index
from modelcc.ir.loop import Function, Instruction

_CALL = re.compile(r"call (.+) (@[\w.]+)\((.*)\)")
_TYPE = re.compile(r"(?:^|(?<=, ))(?:<[^>]+>|\w+)")


@dataclass(frozen=True)
class LlvmTemplate:
    """Lines ``%name = …`` of LLVM text, the last of which is the result, of type ``result``;
    ``types`` are what operands are taken as, each of as many bits as the operand has."""

    types: tuple[str, ...]
    result: str
    text: str

    @cached_property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Name and right side of each line."""
        parts = (line.strip().partition(" = ") for line in self.text.strip().splitlines())
        return tuple((name.removeprefix("%"), value) for name, _, value in parts)

    @cached_property
    def declarations(self) -> tuple[str, ...]:
        """Of what the lines call."""
        calls = (found for _, value in self.lines if (found := _CALL.fullmatch(value)))
        typed = ((*call.group(1, 2), ", ".join(_TYPE.findall(call[3]))) for call in calls)
        return tuple(f"declare {result} {name}({types})" for result, name, types in typed)


@dataclass(frozen=True)
class CTemplate:
    """Statements of C that return the result, with what ``header`` declares, for compilers that
    define ``macros``.  Operands and results are vectors of GCC, called ``i32x4`` and the like."""

    header: str
    macros: tuple[str, ...]
    text: str

    @property
    def condition(self) -> str:
        """Of the preprocessor."""
        return " && ".join(f"defined({macro})" for macro in self.macros)


@dataclass(frozen=True)
class Encoding:
    """How processors of an ``architecture`` that have all ``features``, called as LLVM does
    ("+avx2"), compute ``instruction`` on ``lanes`` lanes: by ``mnemonics``."""

    instruction: Instruction
    lanes: int
    architecture: str
    features: tuple[str, ...]
    mnemonics: tuple[str, ...]
    llvm: LlvmTemplate | None = None
    c: CTemplate | None = None

    @property
    def steps(self) -> int:
        """How long it takes, roughly."""
        return len(self.llvm.lines) if self.llvm else 1


@dataclass(frozen=True)
class RoutineText:
    """How processors of an ``architecture`` compute a routine, called as LLVM calls ``features``.

    In C its buffers are pointers and its sizes numbers by the names that the routine gives them;
    the text returns nothing; ``llvm`` has definitions and declarations of a module, with the
    routine as a function of pointers.  ``alone``: too long to be in each of its callers.  ``inner``
    are the instructions that it repeats so many ``times`` (in the routine's sizes), for estimates
    of how long it takes.
    """

    routine: Function
    architecture: str
    features: tuple[str, ...]
    c: CTemplate | None = None
    alone: bool = False
    inner: tuple[str, ...] = ()
    times: Index = 0
    llvm: tuple[str, ...] = ()


RoutineRule: TypeAlias = Callable[[Function], RoutineText | None]
"""Makes the texts of routines of a kind."""


def assembly(lines: Sequence[str]) -> str:
    """Instructions as the text of an ``asm`` statement of C."""
    return "\n".join(f'    "{line}\\n"' for line in lines)
