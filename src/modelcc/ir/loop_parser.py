"""Reads the text form of loop functions; see :mod:`modelcc.ir.loop_text`."""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.instructions import ROUGH, instruction_of
from modelcc.ir.loop import Function
from modelcc.ir.loop_forms import read_definition
from modelcc.ir.text_reader import TextReader


def parse_functions(text: str) -> tuple[Function, ...]:
    """The functions that ``text`` spells: the inverse of ``print_functions``.

    :class:`ModelError` with line and column if the text is malformed or names an unknown buffer,
    value, type or function.  Does not verify: see ``verify_function``.
    """
    at = TextReader(text)
    found: list[Function] = []
    while at.end < len(text):
        found.append(read_function(at))
    return tuple(found)


def parse_function(text: str) -> Function:
    """The one function that ``text`` spells: the inverse of ``print_function``."""
    at = TextReader(text)
    function = read_function(at)
    if at.end < len(text):
        raise at.error("expected the end of the text")
    return function


def read_function(at: TextReader) -> Function:
    """``func @name(buffers; sizes) from "…" { … }``, after instructions and routines it uses."""
    at.instructions, at.routines = {}, {}
    while (rough := at.accept(ROUGH)) or at.sees("instruction "):
        at.expect("instruction ")
        instruction = replace(instruction_of(read_definition(at)), exact=not rough)
        at.instructions[instruction.name] = instruction
    while at.accept("routine "):
        routine = read_definition(at)
        at.routines[routine.name] = routine
    at.expect("func ")
    return read_definition(at)
