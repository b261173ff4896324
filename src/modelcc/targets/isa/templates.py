"""How processors compute an instruction, as a template for each printer.

Templates mention operands by the names that the instruction gives them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from modelcc.ir.loop import Instruction

_CALL = re.compile(r"call (.+) (@[\w.]+)\((.*)\)")
_TYPE = re.compile(r"(?:^|(?<=, ))(?:<[^>]+>|\w+)")


@dataclass(frozen=True)
class LlvmTemplate:
    """Lines ``%name = …`` of LLVM text, the last of which is the result, of type ``result``;
    ``types`` are what operands are taken as, each of as many bits as the operand has."""

    types: tuple[str, ...]
    result: str
    text: str

    def lines(self) -> Iterator[tuple[str, str]]:
        """Name and right side of each line."""
        for line in self.text.strip().splitlines():
            name, _, value = line.strip().removeprefix("%").partition(" = ")
            yield name, value

    def declarations(self) -> Iterator[str]:
        """Of what the lines call."""
        for _, value in self.lines():
            if call := _CALL.fullmatch(value):
                types = ", ".join(_TYPE.findall(call[3]))
                yield f"declare {call[1]} {call[2]}({types})"


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
        return len(self.llvm.text.splitlines()) if self.llvm else 1
