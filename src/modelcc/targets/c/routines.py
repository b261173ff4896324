"""Functions called within a file, with processor-specific implementations.

The C compiler knows its target processor: such a function has a preprocessor branch for each
implementation, and its semantics in the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from modelcc.ir.loop import Function, RoutineCall, Stmt
from modelcc.passes.loop.remove_unused import remove_unused
from modelcc.targets.c.code import Code, folded
from modelcc.targets.c.expressions import ExpressionCode
from modelcc.targets.c.names import symbol
from modelcc.targets.c.parameters import bind_parameters, note_unused
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.isa.table import texts_of
from modelcc.targets.isa.templates import RoutineText

Print = Callable[[Code, Sequence[Stmt]], None]
"""Prints statements into code."""


def routine_call(
    code: Code, expressions: ExpressionCode, prelude: Prelude, call: RoutineCall, block: Print
) -> None:
    """A call to a function defined in ``prelude``; ``block`` prints its semantics."""
    name = f"mcc_{symbol(call.routine.name)}"
    prelude.routine(name, lambda: _definition(name, call.routine, prelude, block))
    given = [expressions.memory.address(a.buffer, a.offset) for a in call.arguments]
    given += [expressions.index.text(size) for size in call.sizes]
    code.line(f"{name}({', '.join(given)});")


def _definition(name: str, routine: Function, prelude: Prelude, block: Print) -> str:
    code = Code(prelude.dialect)
    parameters = ", ".join(bind_parameters(code, routine))
    block(code, remove_unused(routine).body)
    note_unused(code)
    texts = [text for text in texts_of(routine) if text.c is not None]
    own = list(_branches(texts, prelude))
    lines = [*own, "#else", *code.lines, "#endif"] if own else code.lines
    inline = texts and not any(text.alone for text in texts)
    before = "MCC_INLINE" if inline else prelude.dialect.alone
    return "\n".join([*folded(f"{before} void {name}({parameters})", ""), "{", *lines, "}"])


def _branches(texts: Sequence[RoutineText], prelude: Prelude) -> Iterator[str]:
    """Processor-specific implementations, each with its preprocessor condition."""
    word = "if"
    for found in texts:
        if found.c is not None:
            prelude.include(found.c.header, found.c.macros[0])
            yield f"#{word} {found.c.condition}"
            yield from found.c.text.strip("\n").splitlines()
            word = "elif"
