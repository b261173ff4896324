"""The text of programs reads back to equal programs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from program_cases import small_program

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Range, Sym
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.program import Launch, Placement, Program
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program


def read_back(program: Program) -> Program:
    return parse_program(print_program(program), constants_by_digest(program))


def test_round_trip() -> None:
    assert read_back(small_program()) == small_program()
    assert print_program(read_back(small_program())) == print_program(small_program())


def test_dimensions_without_bounds() -> None:
    dims = {"batch": Range(None, None), "a": Range(1, Sym("batch") - 1), "b c": Range(None, 7)}
    placement = replace(small_program().placed, definitions=(), arena=64)
    program = replace(small_program(), dims=dims, placement=placement, name="odd é")
    assert read_back(program) == program


@pytest.mark.parametrize("rounding", [4.58, 0.8, 1e16, 3.0])
def test_launches_that_round_otherwise(rounding: float) -> None:
    first, *others = small_program().steps
    assert isinstance(first, Launch)
    bound = IndexBound(8, source=("Gather_0",))
    steps = (replace(first, rounding=rounding, bounds=(bound,)), *others)
    program = replace(small_program(), steps=steps)
    assert f' from "Add_0" rounding {rounding!r} check' in print_program(program)
    assert read_back(program) == program


def test_program_without_steps() -> None:
    program = Program("empty", (), (), (), {}, (), placement=Placement({}))
    assert read_back(program) == program


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("arena", "area", "unknown item 'area'"),
        ("digest", "data", "expected 'digest'"),
        ("launch @", "launch ", "line 11, column 10: expected '@'"),
        ("at g_at", "at g_at +", "no index expression"),
        ("place", "input", "unknown item 'at'"),
    ],
)
def test_malformed_text_is_refused(old: str, new: str, message: str) -> None:
    text = print_program(small_program()).replace(old, new, 1)
    with pytest.raises(ModelError, match=message):
        parse_program(text, constants_by_digest(small_program()))


def test_unknown_constants_are_refused() -> None:
    with pytest.raises(ModelError, match=r"constant 'w' .* is not at hand"):
        parse_program(print_program(small_program()), {})
