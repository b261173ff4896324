"""Instructions a processor has are chosen by what they mean; others become arithmetic."""

from __future__ import annotations

import pytest

from modelcc.ir.instructions import DOT4, LANE, instruction_function
from modelcc.ir.loop import Instruction, InstructionOperand, Load, ScalarCall
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import I32
from modelcc.passes.loop.expand_instructions import expand_instructions

A, B, C = (Load(name, LANE, I32) for name in "abc")
PRODUCT = ScalarCall("mul", (A, B), I32)
SUM = ScalarCall("add", (C, PRODUCT), I32)
TAKEN = tuple(InstructionOperand(name, I32) for name in "abc")
MUL = Instruction("times", TAKEN[:2], PRODUCT)
MAC = Instruction("plus_times", TAKEN, SUM)

HEAD = "func @f(%x: i32[64], %y: i32[64], %z: mut i32[64]) {\n  store %z[0] = "
SUM_OF_FOUR = "add(load %x[0] x4, mul(load %x[4] x4, load %y[0] x4))"


def chosen(text: str, *instructions: Instruction) -> str:
    """The value that is stored, where the processor has ``instructions`` for four lanes."""
    function = parse_function(f"{HEAD}{text}\n}}")
    expanded = expand_instructions(function, {i: frozenset({4}) for i in instructions})
    verify_function(expanded)
    return print_function(expanded).rpartition(" = ")[2].partition("\n")[0]


def test_the_largest_instruction_is_taken() -> None:
    whole = "plus_times(load %x[4] x4, load %y[0] x4, load %x[0] x4)"
    assert chosen(SUM_OF_FOUR, MUL, MAC) == whole
    part = "add(load %x[0] x4, times(load %x[4] x4, load %y[0] x4))"
    assert chosen(SUM_OF_FOUR, MUL) == part


@pytest.mark.parametrize(
    "text",
    [
        SUM_OF_FOUR.replace("x4", "x8"),
        "sub(load %x[0] x4, load %y[0] x4)",
        "add(mul(load %x[4] x4, load %y[0] x4), load %x[0] x4)",
    ],
)
def test_nothing_else_is(text: str) -> None:
    """Not on other lanes, nor what is another function or another form."""
    assert chosen(text, MAC) == text


def test_operands_of_what_is_lacking_get_names() -> None:
    text = "dot4(load %u[0] x4, load %w[0] x4, load %z[0])"
    source = f"{HEAD}{text}\n}}".replace("(%x", "(%u: u8[4], %w: i8[4], %x")
    definition = "instruction" + _text_of(DOT4)
    expanded = expand_instructions(parse_function(definition + source), {})
    verify_function(expanded)
    lines = print_function(expanded).splitlines()
    assert lines[1:4] == [
        "  let %isa0 = load %u[0] x4",
        "  let %isa1 = load %w[0] x4",
        "  let %isa2 = load %z[0]",
    ]
    assert "dot4" not in lines[4]


def _text_of(instruction: Instruction) -> str:
    return print_function(instruction_function(instruction)).removeprefix("func")
