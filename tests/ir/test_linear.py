"""Constant matrices times a column of operands, on the tensor level."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program

SUMS = "[[1.0, 1.0, 0.0], [0.0, -1.0, 0.5], [2.0, 0.0, -1.0]]"
LAST = "[[1.0, 0.0, 3.0], [0.0, 1.0, 0.0]]"
BODY = f"linear[{SUMS}, {LAST}][k](%x[i, 0], %x[i, 1], %x[i, 2])"


def program(body: str = BODY, shape: str = "f32[4, 2]", dtype: str = "f32") -> TensorProgram:
    return parse_tensor_program(
        f"""program @p(%x: {dtype}[4, 3]) -> (%y) {{
          kernel @k(%x: {dtype}[4, 3]) -> (%y: {shape}) {{
            %y: {shape} = [i < 4, k < 2] {body}
          }}
        }}""",
        {},
    )


def test_text_reads_back_equal() -> None:
    text = print_tensor_program(program())
    assert BODY in text
    assert parse_tensor_program(text, {}) == program()


def test_a_row_of_a_product_of_matrices() -> None:
    verify_tensor_program(program())
    x = np.random.default_rng(0).integers(-9, 9, (4, 3)).astype(np.float32)
    first, last = np.array(eval(SUMS)), np.array(eval(LAST))
    np.testing.assert_array_equal(run_program(program(), {"x": x}, {})["y"], x @ (last @ first).T)


def test_what_nothing_multiplies_is_not_evaluated() -> None:
    x = np.array([[1, 2, np.inf]] * 4, np.float32)
    found = run_program(program(BODY.replace("0.5]", "0.0]")), {"x": x}, {})["y"]
    assert (found[:, 1] == -2).all()
    assert np.isneginf(found[:, 0]).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[k](", "[k + 1](", "row k + 1 may be outside of a matrix of 2 rows"),
        ("[k](", "[i](", "row i may be outside of a matrix of 2 rows"),
        ("[k](", "[q](", "uses 'q'"),
        (", %x[i, 2])", ")", "a matrix does not have a column for each of 2 operands"),
        (LAST, "[[1.0, 1.0], [1.0, 1.0]]", "a matrix does not have a column for each of 3"),
        (LAST, "[]", "a linear combination has no rows"),
        (f"{SUMS}, {LAST}", "", "a linear combination has no rows"),
        ("%x[i, 1]", "f64(%x[i, 1])", "a linear combination of f32, f64, f32 is no f32"),
        ("%x[i, 1]", "%x[i, 3]", "%x[i, 3] is out of range"),
    ],
)
def test_broken_rules_are_named(old: str, new: str, message: str) -> None:
    assert old in BODY
    with pytest.raises(ModelError) as error:
        verify_tensor_program(program(BODY.replace(old, new)))
    assert message in str(error.value)


def test_integers_have_whole_coefficients() -> None:
    whole = BODY.replace("0.5]", "7.0]")
    verify_tensor_program(program(whole, "i32[4, 2]", "i32"))
    x = np.arange(12, dtype=np.int32).reshape(4, 3)
    found = run_program(program(whole, "i32[4, 2]", "i32"), {"x": x}, {})["y"]
    np.testing.assert_array_equal(found[:, 1], 7 * x[:, 2] - x[:, 1])
    with pytest.raises(ModelError, match="a coefficient is no finite i32"):
        verify_tensor_program(program(BODY, "i32[4, 2]", "i32"))


def test_operands_are_needed() -> None:
    with pytest.raises(ModelError, match="a linear combination has operands"):
        program("linear[[[1.0]]][0]()")
