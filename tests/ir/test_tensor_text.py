"""Text of the tensor level: every program reads back equal, malformed text is located."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.scalar_text import print_scalar
from modelcc.ir.tensor import (
    Apply,
    Bitcast,
    Cast,
    Kernel,
    Linear,
    Number,
    Read,
    Scalar,
    Select,
    TensorProgram,
)
from modelcc.ir.tensor_parser import parse_kernel, parse_tensor_program
from modelcc.ir.tensor_text import print_kernel, print_tensor_program
from modelcc.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType
from tests.ir.tensor_programs import PROGRAMS, matmul_relu, padded_pool, scalar_program


def constants(program: TensorProgram) -> dict[str, Constant]:
    return {c.digest: c for c in program.constants.values()}


def test_the_text_is_what_the_docstring_shows() -> None:
    digest = matmul_relu().constants["B"].digest
    assert (
        print_tensor_program(matmul_relu())
        == f"""\
program @main(%A: f32[m, 64]) -> (%y) dims(m in 1:) {{
  constant %B: f32[64, 32] = "{digest}"
  kernel @matmul_relu(%A: f32[m, 64], %B: f32[64, 32]) -> (%D: f32[m, 32]) source("fc1", "relu") {{
    %C: f32[m, 32] = [i < m, j < 32] sum[k < 64] %A[i, k] * %B[k, j]
    %D: f32[m, 32] = [i < m, j < 32] max(%C[i, j], 0.0)
  }}
  view %y: f32[32*m] = %D source("f")
}}
"""
    )


def test_guards_and_partial_writes_are_readable() -> None:
    text = print_tensor_program(padded_pool())
    assert "max[k < 3] (%x[i + k - 1] if [i + k - 1 >= 0, i + k - 1 < m] else -inf)" in text
    assert "%y[i + m]: f32[2*m] = [i < m] %x[i]" in text
    assert 'kernel @"/pool/MaxPool"' in text


@pytest.mark.parametrize("make", PROGRAMS)
def test_programs_read_back_equal(make: Callable[[], TensorProgram]) -> None:
    program = make()
    text = print_tensor_program(program)
    back = parse_tensor_program(text, constants(program))
    assert back == program
    assert print_tensor_program(back) == text


def test_one_kernel_reads_back_with_its_types() -> None:
    program = matmul_relu()
    kernel = program.items[0]
    assert not hasattr(kernel, "input")
    text = print_kernel(kernel, program.types)  # type: ignore[arg-type]
    back, types = parse_kernel(text)
    assert back == kernel
    assert types == {name: type for name, type in program.types.items() if name != "y"}


@pytest.mark.parametrize("rounding", [4.58, 0.8, 1e16, 3.0])
def test_kernels_that_round_otherwise_read_back(rounding: float) -> None:
    kernel, *_ = matmul_relu().items
    assert isinstance(kernel, Kernel)
    for source in (kernel.source, ()):
        changed = replace(kernel, rounding=rounding, source=source)
        text = print_kernel(changed, matmul_relu().types)
        assert f" rounding {rounding!r} {{" in text
        assert parse_kernel(text)[0] == changed


NUMBERS = {
    F32: st.floats(allow_nan=False, width=32),
    F64: st.floats(allow_nan=False),
    F16: st.floats(allow_nan=False, width=16),
    BF16: st.just(1.5),
    I64: st.integers(-(2**63), 2**63 - 1),
    I32: st.integers(-(2**31), 2**31 - 1),
    I8: st.integers(-128, 127),
    U8: st.integers(0, 255),
    BOOL: st.booleans(),
}
READS = {F32: Read("a", (), F32), I32: Read("n", (), I32), BOOL: Read("p", (), BOOL)}
DIFFERENCE = Apply("sub", (READS[F32],) * 2, F32)
DTYPES = st.sampled_from(tuple(NUMBERS))


def scalars(dtype: DType, depth: int) -> st.SearchStrategy[Scalar]:
    """Expressions of ``dtype`` that keep the typing rules, ``depth`` levels deep."""
    leaves: st.SearchStrategy[Scalar] = NUMBERS[dtype].map(lambda v: Number(v, dtype))
    if dtype in READS:
        leaves = leaves | st.just(READS[dtype])
    if depth == 0:
        return leaves

    def applied(name: str) -> st.SearchStrategy[Scalar]:
        function = FUNCTIONS[name]
        operand = DTYPES if function.result == "bool" else st.just(dtype)
        return operand.flatmap(
            lambda d: st.tuples(*[scalars(d, depth - 1)] * function.arity).map(
                lambda args: Apply(name, args, dtype)
            )
        )

    names = [f.name for f in FUNCTIONS.values() if dtype == BOOL or f.result == "same"]
    choice = st.tuples(scalars(BOOL, depth - 1), *[scalars(dtype, depth - 1)] * 2)
    bits = scalars(dtype, depth - 1).map(lambda v: Bitcast(v, dtype))
    cast = DTYPES.flatmap(lambda d: scalars(d, depth - 1)).map(lambda v: Cast(v, dtype))
    row = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2)
    matrix = st.lists(row.map(tuple), min_size=2, max_size=2).map(tuple)
    factors = st.lists(matrix, min_size=1, max_size=2).map(tuple)
    column = st.tuples(*[scalars(dtype, depth - 1)] * 2)
    linear = st.builds(Linear, factors, st.integers(0, 1), column, st.just(dtype))
    return st.one_of(
        leaves,
        linear,
        st.sampled_from(names).flatmap(applied),
        choice.map(lambda parts: Select(parts[0], parts[1], parts[2], dtype)),
        cast,
        bits,
    )


@given(DTYPES.flatmap(lambda dtype: scalars(dtype, 3)))
def test_any_expression_reads_back_equal(body: Scalar) -> None:
    program = scalar_program(body)
    assert parse_tensor_program(print_tensor_program(program), {}) == program


def test_signs_of_zero_and_not_a_number_survive() -> None:
    zero = parse_tensor_program(print_tensor_program(scalar_program(Number(-0.0, F32))), {})
    assert math.copysign(1.0, zero.items[0].stages[0].body.value) == -1.0  # type: ignore[union-attr]
    assert print_scalar(Number(math.nan, F16)) == "nan:f16"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (Apply("sub", (READS[F32], DIFFERENCE), F32), "%a[] - (%a[] - %a[])"),
        (Apply("sub", (DIFFERENCE, READS[F32]), F32), "%a[] - %a[] - %a[]"),
        (Apply("neg", (Number(1.0, F32),), F32), "-(1.0)"),
        (Apply("mul", (Apply("neg", (READS[F32],), F32), READS[F32]), F32), "-%a[] * %a[]"),
        (Apply("lt", (READS[I32], Number(3, I32)), BOOL), "%n[] < 3:i32"),
    ],
)
def test_parentheses_only_where_they_matter(body: Scalar, text: str) -> None:
    assert print_scalar(body) == text


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("max(%C[i, j], 0.0)", "max(%C[i, j])", "max has 2 operands, not 1"),
        ("max(%C[i, j], 0.0)", "maxi(%C[i, j], 0.0)", "there is no scalar function 'maxi'"),
        ("%A[i, k] *", "%Q[i, k] *", "'Q' is read, but has no type yet"),
        ("%A[i, k] *", "%A[i, k +] *", "'k +' is no index expression"),
        ("%D: f32[m, 32] =", "%D: f32[m, 31] =", "'D' has two types"),
        ("%D: f32[m, 32] =", "%D: f33[m, 32] =", "unknown element type 'f33'"),
        (
            "view",
            "look",
            "expected constant, kernel, view, scatter, algorithm, read, if or repeat after 'look'",
        ),
        ("j < 32] sum", "3 < 32] sum", "expected a name before this, not 3"),
    ],
)
def test_malformed_text_is_located(good: str, bad: str, message: str) -> None:
    text = print_tensor_program(matmul_relu())
    assert good in text
    with pytest.raises(ModelError, match=r"^line \d+, column \d+: ") as error:
        parse_tensor_program(text.replace(good, bad), constants(matmul_relu()))
    assert message in str(error.value)


def test_a_constant_that_is_not_given_is_named() -> None:
    with pytest.raises(ModelError, match="no constant with digest"):
        parse_tensor_program(print_tensor_program(matmul_relu()), {})
