"""Well-formed programs pass; what breaks a rule is refused, naming the step or tensor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from program_cases import b, small_program, with_tensor

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Sym
from modelcc.ir.program import CopyTensor, Definition, Launch, Place, Program, Step
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.types import F32, F64, TensorType

FLAT = TensorType((7 * b,), F32)


def test_accepts() -> None:
    verify_program(small_program())


def with_binding(
    name: str, type: TensorType, place: Place, offset: Index = 0, **changes: Any
) -> Program:
    program = with_tensor(small_program(), name, type, offset, place)
    return replace(program, placement=replace(program.placed, **changes))


def with_steps(*steps: Step) -> Program:
    return replace(small_program(), steps=(*steps, *small_program().steps))


ADD = Launch("add", ("x", "x", "h"), (7 * b,), ("Add_0",))
REFUSED = {
    "an undefined dimension": (
        replace(small_program(), dims={}), "index symbol 'batch' is not defined"),
    "a symbol twice": (
        with_binding("h", FLAT, "arena", definitions=(Definition("batch", 3),)),
        "'batch' is already defined"),
    "no such input": (
        with_binding("z", FLAT, "input"), "z: the program has no input of this name"),
    "unaligned": (with_binding("h", FLAT, "arena", 4), "offset 4 is no multiple of 64"),
    "outside": (
        with_binding("h", FLAT, "arena", 2 * Sym("g_at")), "h: bytes .* lie outside"),
    "no binding": (
        with_steps(CopyTensor("h", "q")), "copy to 'h': there is no tensor 'q'"),
    "no kernel": (with_steps(replace(ADD, callee="mul")), "there is no kernel"),
    "arguments": (
        with_steps(replace(ADD, arguments=("x", "h"))), "Add_0, @add: the kernel takes 3 tensors"),
    "dtype": (
        with_binding(
            "g", TensorType((7 * b,), F64), "arena", Sym("g_at"), arena=4 * Sym("g_at")
        ),
        "%z has elements of f32, but 'g' is f64"),
    "written input": (
        with_steps(replace(ADD, arguments=("x", "x", "x"))), "'x' is an input and cannot be wri"),
    "too small": (
        with_steps(replace(ADD, sizes=(8 * b,))), "needs 32 bytes, but 'x'"),
    "copy": (with_steps(CopyTensor("y", "w")), "cannot copy 4 bytes to 28"),
    "unwritten": (with_steps(CopyTensor("y", "g")), "'g' is read before any step has written"),
    "no output": (
        replace(small_program(), steps=small_program().steps[:3]), "output 'same' is never"),
    "overwritten": (
        replace(
            with_binding("o", TensorType((b,), F32), "arena"),
            steps=(ADD, Launch("add", ("w", "w", "o"), (1,), ("Evil",)), *small_program().steps[1:])
        ),
        "Mul_1, @scale: 'h' is read after 'o' of Evil, @add has overwritten it"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str) -> None:
    program, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        verify_program(program)


def test_views_are_one_tensor() -> None:
    program = with_binding("view", TensorType((b, 7), F32), "arena")
    scale = Launch("scale", ("view", "w", "g"), (7 * b,))
    verify_program(replace(program, steps=(ADD, scale, *program.steps[2:])))
