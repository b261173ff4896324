"""Instructions say what they mean, or are refused with the reason."""

from __future__ import annotations

import pytest

from modelcc.ir.instructions import DOT4, LANE, instruction_function
from modelcc.ir.loop import (
    Buffer,
    Const,
    Convert,
    Expr,
    Function,
    IndexOf,
    Instruction,
    InstructionOperand,
    Intrinsic,
    Load,
    Parameter,
    Store,
)
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.op import ModelError
from modelcc.ir.types import F32, I8, I32, U8

TAKEN = (InstructionOperand("a", I32), InstructionOperand("b", I8, 2))
A = Load("a", LANE, I32)


def using(*calls: Intrinsic) -> Function:
    buffers = [Buffer("x", I32, 64), Buffer("z", I8, 64), Buffer("u", U8, 64)]
    stores = [Store("y", 0, call) for call in calls]
    out = Parameter(Buffer("y", calls[0].dtype, 64), mutable=True)
    return Function("f", (*map(Parameter, buffers), out), (), tuple(stores))


def intrinsic(meaning: Expr, name: str = "odd", lanes: int = 4) -> Intrinsic:
    args = Load("x", 0, I32, lanes), Load("z", 0, I8, 2 * lanes)
    return Intrinsic(Instruction(name, TAKEN, meaning), args)


@pytest.mark.parametrize(
    ("meaning", "reason"),
    [
        (Load("a", LANE + 1, I32), "reads .*, beyond its 4 elements"),
        (Load("b", LANE * 2, I32), "odd has no operand %b of i32"),
        (Load("c", LANE, I32), "odd has no operand %c of i32"),
        (IndexOf(LANE, I32), "cannot be said by IndexOf"),
        (Convert(Const(True, F32), I32), "True is no constant of f32"),
    ],
)
def test_meanings_that_are_none_are_refused(meaning: Expr, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        verify_function(using(intrinsic(meaning)))


def test_a_name_stands_for_one_instruction() -> None:
    other = Convert(Load("b", LANE * 2, I8), I32)
    verify_function(using(intrinsic(A), intrinsic(A)))
    with pytest.raises(ModelError, match="two instructions called odd"):
        verify_function(using(intrinsic(A), intrinsic(other)))


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ((Load("u", 0, U8, 8), Load("z", 0, I8, 8)), "dot4 takes 3 operands, not 2"),
        ((Load("z", 0, I8, 8), Load("z", 0, I8, 8), Load("x", 0, I32, 2)), "is u8, not i8"),
        ((Load("u", 0, U8, 8), Load("z", 0, I8, 8), Load("x", 0, I32, 4)), "8 elements for 4"),
    ],
)
def test_operands_are_checked(args: tuple[Expr, ...], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        verify_function(using(Intrinsic(DOT4, args)))


MEANING = print_function(instruction_function(DOT4)).replace("func", "instruction")
USE = """func @f(%u: u8[4], %z: i8[4], %y: mut i32[1]) {
  store %y[0] = dot4(load %u[0] x4, load %z[0] x4, load %y[0])
}
"""


def test_a_part_of_a_parallel_loop_may_use_instructions() -> None:
    call = """func @f(%u: u8[4], %z: i8[4], %y: mut i32[1]) {
  call parallel 0 .. 1 func @f.range(%u: u8[4], %z: i8[4], %y: mut i32[1]; first, last) {
    store %y[0] = dot4(load %u[0] x4, load %z[0] x4, load %y[0])
  }
}
"""
    assert print_function(parse_function(MEANING + call)) == MEANING + call


def test_text_tells_instructions_first() -> None:
    assert print_function(parse_function(MEANING + USE)) == MEANING + USE
    with pytest.raises(ModelError, match="unknown function 'dot4'"):
        parse_function(USE)


@pytest.mark.parametrize(
    ("part", "other", "reason"),
    [
        ("store %result", "comment", "a loop over the lanes of its %result"),
        ("%a: u8[4*n]", "%a: u8[4]", "so many elements for each lane"),
    ],
)
def test_an_instruction_without_a_meaning_is_refused(part: str, other: str, reason: str) -> None:
    head, body = MEANING.replace(part, other, 1), ""
    if part.startswith("store"):
        body = head[: head.index("comment")] + 'comment "nothing"\n  }\n}\n'
    with pytest.raises(ModelError, match=reason):
        parse_function((body or head) + USE)
