"""The program interpreter runs steps on a symbolic arena."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from program_cases import small_program

from modelcc.ir.errors import ModelError
from modelcc.ir.program_interpreter import interpret_program


@pytest.mark.parametrize("batch", [1, 5])
def test_runs_all_steps(batch: int) -> None:
    x = np.random.default_rng(0).standard_normal((batch, 7)).astype(np.float32)
    results = interpret_program(small_program(), {"x": x})
    np.testing.assert_allclose(results["y"], (x + x) * np.float32(3.5) - x, 1e-6)
    np.testing.assert_array_equal(results["same"], x)


def test_inputs_have_to_fit() -> None:
    with pytest.raises(ModelError, match=r"input 'x' .* is missing"):
        interpret_program(small_program(), {})
    with pytest.raises(ModelError, match="must be f32"):
        interpret_program(small_program(), {"x": np.zeros((1, 7))})
    with pytest.raises(ModelError, match="axis 1: expected 7"):
        interpret_program(small_program(), {"x": np.zeros((1, 8), np.float32)})


def test_what_no_step_wrote_is_nan() -> None:
    program = small_program()
    without = replace(program, steps=program.steps[1:])
    assert np.isnan(interpret_program(without, {"x": np.ones((1, 7), np.float32)})["y"]).all()


def test_a_tensor_outside_of_the_arena_is_an_error() -> None:
    program = small_program()
    program = replace(program, placement=replace(program.placed, arena=64))
    with pytest.raises(ModelError, match="'g' takes bytes 64 to 92 of an arena of 64"):
        interpret_program(program, {"x": np.ones((1, 7), np.float32)})
