"""Processor instructions as inline C functions.

The C compiler knows its target processor: a function has a preprocessor branch for each template,
and the instruction's semantics in the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from modelcc.ir.instructions import vectors
from modelcc.ir.loop import Expr, InstructionOperand, Intrinsic, Var
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.values import scalar_type
from modelcc.targets.isa.table import ENCODINGS, encodings_of

Spell = Callable[[Expr, Sequence[Var]], str]
"""Prints an expression of parameters, which are named after its variables, as C."""


class IntrinsicFunctions:
    """Calls to functions, defined in ``prelude``; ``spell`` prints their semantics as C."""

    def __init__(self, prelude: Prelude, spell: Spell) -> None:
        self._prelude = prelude
        self._spell = spell

    def call(self, e: Intrinsic, args: Sequence[str]) -> str:
        """The result of ``e`` for ``args``."""
        taken, lanes = e.instruction.operands, e.lanes
        whole = [Var(o.name, o.dtype, lanes * o.each) for o in taken]
        types = [self._type(v) for v in whole]
        parameters = ", ".join(f"{t} {v.name}" for t, v in zip(types, whole, strict=True))
        alone = Intrinsic(e.instruction, tuple(whole))
        name = self._prelude.function(
            f"{e.instruction.name}x{lanes}", self._type(alone), parameters,
            lambda: list(self._body(alone, whole)),
        )  # fmt: skip
        shapes = zip(taken, e.args, args, strict=True)
        given = (text if a.lanes == lanes * o.each else self._repeated(o, lanes, text)
                 for o, a, text in shapes)  # fmt: skip
        return f"{name}({', '.join(given)})"

    def _type(self, e: Expr) -> str:
        return self._prelude.vector(e.dtype, e.lanes) if e.lanes > 1 else scalar_type(e.dtype)

    def _body(self, e: Intrinsic, parameters: Sequence[Var]) -> Iterator[str]:
        word = "if"
        for found in encodings_of(ENCODINGS, e.instruction, e.lanes):
            if found.c is not None:
                self._prelude.include(found.c.header, f"__{found.architecture}__")
                yield f"#{word} {found.c.condition}"
                yield from (line.strip() for line in found.c.text.strip().splitlines())
                word = "elif"
        if word == "elif":
            yield "#else"
        yield f"return {self._spell(vectors(e), parameters)};"
        if word == "elif":
            yield "#endif"

    def _repeated(self, operand: InstructionOperand, lanes: int, text: str) -> str:
        """One lane's elements repeated for each of ``lanes``."""
        one = self._type(Var(operand.name, operand.dtype, operand.each))
        all_ = self._prelude.vector(operand.dtype, lanes * operand.each)
        bits = operand.each * operand.dtype.bits
        words = self._prelude.bits(bits, lanes)
        name = self._prelude.function(
            f"{one}_to_{all_}", all_, f"{one} a",
            lambda: [f"uint{bits}_t word;", "memcpy(&word, &a, sizeof word);",
                     f"return ({all_})(word - ({words}){{0}});"],
        )  # fmt: skip
        return f"{name}({text})"
