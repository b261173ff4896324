"""States of programs: text, rules, and meaning with and without a place for everything."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from program_cases import binary, check_text

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.program import Binding, CopyTensor, Launch, Placement, Program, Step
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_parser import parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import F32, TensorType
from tests.ir.tensor_programs import padded_pool

FLAT = TensorType((7,), F32)


def shared(function: Function) -> Function:
    """``function``, which may write over what it reads."""
    parameters = tuple(replace(p, shared=True) for p in function.parameters)
    return replace(function, parameters=parameters)


UPDATE, READ = Launch("add", ("w", "x", "next"), (7,)), Launch("sub", ("w", "x", "y"), (7,))


def program(*steps: Step, placed: bool = True) -> Program:
    """``next = w + x``, the next value of ``w``, and ``y = w - x``."""
    bindings = {"x": "input", "w": "input", "y": "output", "next": "input"}
    placement = Placement({name: Binding(place) for name, place in bindings.items()})  # type: ignore
    return Program(
        "p", ("x", "w"), ("y", "next"), steps or (READ, UPDATE), dict.fromkeys(bindings, FLAT),
        (shared(binary("add", "add")), binary("sub", "sub")), states={"next": "w"},
        placement=placement if placed else None,
    )  # fmt: skip


@pytest.mark.parametrize("placed", [False, True])
def test_it_means_what_it_did_and_leaves_what_is_given(placed: bool) -> None:
    given = program(placed=placed)
    verify_program(given)
    check_text(given)
    assert parse_program(print_program(given), {}) == given
    x, w = np.arange(7, dtype=np.float32), np.full(7, 3, np.float32)
    found = interpret_program(given, {"x": x, "w": w})
    np.testing.assert_array_equal(found["y"], 3 - x)
    np.testing.assert_array_equal(found["next"], 3 + x)
    np.testing.assert_array_equal(w, np.full(7, 3))


def test_a_state_and_what_it_replaces_are_one_argument() -> None:
    assert [program().position(name) for name in ("w", "next", "x", "y")] == [1, 1, 0, 0]


def test_what_is_replaced_is_gone() -> None:
    late = program(UPDATE, READ)
    verify_program(replace(late, placement=None))
    with pytest.raises(ModelError, match="@sub: 'w' is read after 'next' of @add has overwritten"):
        verify_program(late)
    found = interpret_program(late, {name: np.ones(7, np.float32) for name in "xw"})
    np.testing.assert_array_equal(found["y"], np.ones(7))  # and not the zeros that w - x would be


def test_a_kernel_has_to_know_that_it_writes_over_what_it_reads() -> None:
    apart = replace(program(), callees=(binary("add", "add"), binary("sub", "sub")))
    with pytest.raises(ModelError, match="'next' is in the memory of 'w', which the kernel"):
        verify_program(apart)


def test_a_state_that_no_step_writes_stays() -> None:
    verify_program(program(READ))
    with pytest.raises(ModelError, match="output 'y' is never written"):
        verify_program(program(UPDATE))
    with pytest.raises(ModelError, match="output 'next' is never written"):
        verify_program(program(READ, placed=False))


def test_a_state_is_in_the_place_of_its_input() -> None:
    given = program()
    bindings = {**given.placed.bindings, "next": Binding("output")}
    with pytest.raises(ModelError, match="next: the state is not in the place of its input"):
        verify_program(replace(given, placement=Placement(bindings)))


BAD = {
    "no output": ({"z": "w"}, "state 'z' is no output, or several"),
    "no input": ({"next": "y"}, "'y', which state 'next' replaces, is no input"),
    "one input": ({"next": "w", "y": "w"}, "'w' is replaced by two states"),
}


@pytest.mark.parametrize("case", BAD)
def test_states_that_cannot_be(case: str) -> None:
    states, message = BAD[case]
    with pytest.raises(ModelError, match=message):
        verify_program(replace(program(READ, UPDATE, placed=False), states=states))


def test_types_have_to_agree() -> None:
    given = program(READ, CopyTensor("next", "w"))
    types = {**given.types, "w": TensorType((1, 7), F32)}
    with pytest.raises(ModelError, match=r"state 'next' is f32\[7\], but 'w' is f32\[1, 7\]"):
        verify_program(replace(given, types=types))


def test_the_tensor_level_has_them() -> None:
    given = padded_pool()
    twice = given.types["y"]
    types = {**given.types, "old": twice}
    kept = replace(given, inputs=("x", "old"), types=types, states={"y": "old"})
    verify_tensor_program(kept)
    text = print_tensor_program(kept)
    assert "-> (%y) states(%y over %old) dims(" in text
    assert parse_tensor_program(text, {}) == kept
    with pytest.raises(ModelError, match=r"state 'y' is .*, but 'x' is"):
        verify_tensor_program(replace(kept, states={"y": "x"}))
