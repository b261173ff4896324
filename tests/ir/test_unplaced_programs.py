"""Programs before memory is planned: text, verifier and interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from program_cases import add_row, b, binary, halve, nested_result

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.index import DIM, Index, Sym
from modelcc.ir.loop import Const, Store
from modelcc.ir.program import CopyTensor, Launch, Placement, Program, Step
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.tensor import View
from modelcc.ir.types import BOOL, F32, TensorType
from modelcc.passes.program.apply_plan import apply_plan
from modelcc.passes.program.plan_memory import plan_memory

STEP = Sym("step")
ROW, FLAG = TensorType((7,), F32), TensorType((1,), BOOL)
SUMMING = Repeat[Step](
    "step",
    b,
    (Carry("sum", "zero", "next", "total"),),
    (),
    (Launch("add_row", ("x", "sum", "next"), (b, STEP), ("Add_0",)),),
    source=("Loop_1",),
)
HALVING = Repeat[Step](
    "turn",
    None,
    (Carry("going", "yes", "more", "gone"), Carry("v", "flat", "half", "end")),
    (),
    (
        Launch("add", ("v", "zero", "half"), (7,), in_place=(("half", "v"),)),
        Launch("halve", ("half", "more")),
    ),
    "going",
)
CHOICE = Branch[Step](
    "go",
    ("y",),
    (HALVING, Launch("add", ("end", "zero", "y"), (7,))),
    (Launch("add", ("total", "zero", "y"), (7,)),),
    ("If_2",),
)


def program(*steps: Step, **changes: Any) -> Program:
    """The sum of rows, halved until its first element is at most 1, if ``go`` holds."""
    types = dict.fromkeys(("zero", "sum", "next", "total", "v", "half", "end", "y"), ROW)
    types |= dict.fromkeys(("go", "yes", "going", "more", "gone"), FLAG)
    types |= {"x": TensorType((b, 7), F32), "flat": TensorType((7, 1), F32)}
    types["flat"] = ROW
    constants = {"zero": Constant(np.zeros(7, np.float32)), "yes": Constant(np.array([True]))}
    usual = (SUMMING, View("flat", "total", ("Reshape_3",)), CHOICE)
    given = Program(
        "rows", ("x", "go"), ("y",), steps or usual, types,
        (add_row(), binary("add", "add"), halve()), constants, {"batch": DIM}, ("a \"note\"",),
    )  # fmt: skip
    return replace(given, **changes)


def test_text_reads_back() -> None:
    text = print_program(program())
    loop = "repeat step < batch carry(%sum = %zero then %next last %total) from"
    assert f"  {loop}" in text and "  tensor %flat: " in text
    assert "if %go -> (%y) from" in text and "in_place(%half over %v)" in text
    assert parse_program(text, constants_by_digest(program())) == program()
    filling = replace(SUMMING, filled=("y", "v"))
    parts = replace(SUMMING.body[0], partial=("next",))  # type: ignore[type-var]
    other = program(filling, replace(filling, trips=None, condition="go"), parts)
    assert parse_program(print_program(other), constants_by_digest(other)) == other


@pytest.mark.parametrize("batch, go", [(1, True), (2, True), (5, False), (6, True)])
def test_means_the_same_once_it_is_placed(batch: int, go: bool) -> None:
    verify_program(program())
    placed = apply_plan(program(), plan_memory(program()))
    verify_program(placed, program())
    x = np.random.default_rng(batch).uniform(1, 3, (batch, 7)).astype(np.float32)
    for each in (program(), placed):
        found = interpret_program(each, {"x": x, "go": np.array([go])})
        np.testing.assert_allclose(found["y"], nested_result(x, go), 1e-5)


def test_what_a_region_makes_is_gone_after_it() -> None:
    inner = Branch[Step]("go", (), (Launch("add", ("zero", "zero", "v"), (7,)),), ())
    after = Launch("add", ("v", "zero", "y"), (7,))
    feeds = {"x": np.ones((1, 7), np.float32), "go": np.array([True])}
    assert np.isnan(interpret_program(program(inner, after), feeds)["y"]).all()


def shown(size: Index) -> Program:
    return program(types={**program().types, "flat": TensorType((size,), BOOL)})


COPY = CopyTensor("y", "zero")
REFUSED = {
    "no type": (
        program(replace(SUMMING, filled=("q",)), CHOICE), "no step within computes 'q'"),
    "no view": (shown(7), "view 'flat': a view of .*: dtypes differ"),
    "unwritten": (program(CHOICE), "'flat' is read before any step has written"),
    "one side only": (
        program(SUMMING, View("flat", "total"), replace(CHOICE, other=())),
        "If_2, branch on 'go': no step within computes 'y'"),
    "no next": (program(replace(SUMMING, body=()), CHOICE), "no step within computes 'next'"),
    "state of another type": (
        program(types={**program().types, "next": FLAG}), "Loop_1.*'sum' is f32.*'next' is bool"),
    "not written in place": (
        program(Launch("add", ("x", "x", "y"), (7,), in_place=(("x", "y"),))),
        "the kernel does not write 'x'"),
    "not written in part": (
        program(Launch("add", ("x", "x", "y"), (7,), partial=("x",))), "does not write 'x'"),
    "an input": (program(Launch("add", ("zero", "zero", "x"), (7,))), "'x' is an input and cannot"),
    "a copy": (program(COPY), "memory is not yet planned"),
    "a view that is placed": (program(placement=Placement({})), "tensor '.*' has no binding"),
    "made in a branch": (
        program(
            replace(CHOICE, outputs=(), then=(Launch("add", ("zero", "zero", "v"), (7,)),) * 2,
                    other=(Launch("add", ("zero", "zero", "v"), (7,)),)),
            Launch("add", ("v", "zero", "y"), (7,))),
        "'v' is read before any step"),
    "made in an iteration": (
        program(SUMMING, Launch("add", ("next", "zero", "y"), (7,))), "'next' is read before any"),
    "symbol": (program(dims={}), "index symbol 'batch' is not defined"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str) -> None:
    wrong, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        verify_program(wrong)


def test_a_placed_program_hands_nothing_on() -> None:
    placed = apply_plan(program(), plan_memory(program()))
    (branch,) = (step for step in placed.steps if isinstance(step, Branch))
    for wrong, message in (
        (replace(branch, outputs=("y",)), "memory is already planned, and hands on 'y'"),
        (View("total", "x"), "memory is already planned"),
    ):
        with pytest.raises(ModelError, match=message):
            verify_program(replace(placed, steps=(*placed.steps, wrong)))


def test_what_was_verified_is_not_looked_into_again_and_what_changed_is() -> None:
    before = program()
    broken = replace(add_row(), body=(Store("nowhere", 0, Const(0.0, F32)),))
    same = replace(before, callees=(broken, *before.callees[1:]))
    verify_program(replace(same, notes=()), same)
    with pytest.raises(ModelError, match="nowhere"):
        verify_program(same, before)
    with pytest.raises(ModelError, match="read before any step"):
        verify_program(replace(before, steps=before.steps[1:]), before)
