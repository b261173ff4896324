"""The verifier of the tensor level: good programs pass, broken rules are named with place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.index import evaluate
from modelcc.ir.index_uses import uses
from modelcc.ir.tensor import Axis, Condition, Guard, Kernel, Number, Read, Stage, TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_ranges import misread
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import F32, TensorType
from tests.ir.tensor_programs import PROGRAMS, i, k, matmul_relu, padded_pool, scatter_rows


@pytest.mark.parametrize("make", PROGRAMS)
def test_good_programs_pass(make: Callable[[], TensorProgram]) -> None:
    verify_tensor_program(make())


def edited(make: Callable[[], TensorProgram], *edits: tuple[str, str]) -> TensorProgram:
    """The program after replacing text in its text form."""
    program = make()
    text = print_tensor_program(program)
    for old, new in edits:
        assert old in text, text
        text = text.replace(old, new)
    return parse_tensor_program(text, {c.digest: c for c in program.constants.values()})


BROKEN: Mapping[str, tuple[Callable[[], TensorProgram], tuple[tuple[str, str], ...], str]] = {
    "read past the end": (
        matmul_relu,
        (("%A[i, k] *", "%A[i, k + 1] *"),),
        "stage %C: %A[i, k + 1] is out of range: k + 1 reaches 64 in dimension 1 of extent 64",
    ),
    "read past a symbolic end": (
        matmul_relu,
        (("%A[i, k] *", "%A[i + 1, k] *"),),
        "i + 1 reaches m in dimension 0 of extent m",
    ),
    "read before the start": (
        matmul_relu,
        (("%A[i, k] *", "%A[i, k - 3] *"),),
        "k - 3 reaches -3 in dimension 1 of extent 64",
    ),
    "guard admits too much": (
        padded_pool,
        (("if [i + k - 1 >= 0, i + k - 1 < m]", "if [i + k - 1 >= 0, i + k - 1 <= m]"),),
        "%x[i + k - 1] is out of range: i + k - 1 reaches m in dimension 0 of extent m",
    ),
    "a quotient that is always outside": (
        matmul_relu,
        (("%A[i, k] *", "%A[i, k floordiv 2 + 64] *"),),
        "index k floordiv 2 + 64 in dimension 1 of extent 64",
    ),
    "a place that nothing binds": (
        scatter_rows,
        (("%y[g, j]", "%y[h, j]"),),
        "the written position uses 'h' in h, which is not bound here",
    ),
    "a place without its index": (
        scatter_rows,
        (("%y[g, j]", "%y[g]"),),
        "writes 1 indices of f32[m, 32]",
    ),
    "a copy of another type": (
        scatter_rows,
        (("(%x: f32[m, 32], %rows", "(%x: f32[m, 33], %rows"),),
        "is f32[m, 32], no row-major copy of f32[m, 33]",
    ),
    "an input that is not read": (
        scatter_rows,
        (
            (
                "scatter %x (%x: f32[m, 32], %rows: i64[5]",
                "scatter %x (%x: f32[m, 32], %v: i64[5], %rows: i64[5]",
            ),
            ("program @scatter(", "program @scatter(%v: i64[5], "),
        ),
        "inputs are not %x, %rows, %u",
    ),
    "an update that reads past the end": (
        scatter_rows,
        (("in %u[i, j]", "in %u[i + 1, j]"),),
        "i + 1 reaches 5 in dimension 0 of extent 5",
    ),
    "a reduction among updates": (
        scatter_rows,
        (("sum[] ", "sum[k < 3] "),),
        "an update neither reduces nor reads the result",
    ),
    "rank of a read": (
        matmul_relu,
        (("%A[i, k] *", "%A[k] *"),),
        "%A[k] has 1 indices for a tensor of rank 2",
    ),
    "unbound symbol": (
        matmul_relu,
        (("%A[i, k] *", "%A[i, z] *"),),
        "%A[i, z] uses 'z' in z, which is not bound here",
    ),
    "write over a reduction axis": (
        matmul_relu,
        (("%C: f32[m, 32] = [i < m, j < 32]", "%C[i, k]: f32[m, 32] = [i < m, j < 32]"),),
        "the written position uses 'k'",
    ),
    "write out of range": (
        padded_pool,
        (("%y[i + m]", "%y[i + m + 1]"),),
        "writes out of range: i + m + 1 reaches 2*m in dimension 0 of extent 2*m",
    ),
    "write of one element by many points": (
        matmul_relu,
        (("%D: f32[m, 32] = [i < m, j < 32]", "%D[i, 0]: f32[m, 32] = [i < m, j < 32]"),),
        "writes [i, 0] once for each of the 32 values of j",
    ),
    "overlapping writers": (
        padded_pool,
        (("%y[i + m]", "%y"),),
        "two stages write the same elements of %y",
    ),
    "a gap": (
        padded_pool,
        (("%y[i + m]: f32[2*m] = [i < m] %x[i]", "%y[m]: f32[2*m] = [] %x[0]"), ("1:512", "2:512")),
        "%y has 2*m elements, of which m + 1 are written",
    ),
    "dtypes of operands": (
        matmul_relu,
        (("max(%C[i, j], 0.0)", "max(%C[i, j], 0)"),),
        "operands of max have different dtypes: f32, i64",
    ),
    "domain of a function": (
        matmul_relu,
        (("max(%C[i, j], 0.0)", "f32(exp(i64(%C[i, j])))"),),
        "exp is not defined on i64",
    ),
    "dtype of the result": (
        matmul_relu,
        (("max(%C[i, j], 0.0)", "%C[i, j] < 0.0"),),
        "computes bool for a tensor of f32",
    ),
    "condition of a choice": (
        matmul_relu,
        (("max(%C[i, j], 0.0)", "select(%C[i, j], 0.0, 1.0)"),),
        "the condition of select is f32, not bool",
    ),
    "gather by a float": (
        matmul_relu,
        (("max(%C[i, j], 0.0)", "(let g = %C[i, j] in %A[g, 0])"),),
        "gather symbol 'g' is bound to f32",
    ),
    "gather symbol hides an axis": (
        matmul_relu,
        (("max(%C[i, j], 0.0)", "(let i = 3 in %C[i, 0])"),),
        "gather symbol 'i' is the name of an axis",
    ),
    "axis named as a dimension": (
        matmul_relu,
        (("sum[k < 64] %A[i, k] * %B[k, j]", "sum[m < 64] %A[i, m] * %B[m, j]"),),
        "axis 'm' has the name of another axis or dimension",
    ),
    "extent over an axis": (
        matmul_relu,
        (("sum[k < 64]", "sum[k < i]"),),
        "the extent of axis 'k' uses 'i'",
    ),
    "undefined input": (
        matmul_relu,
        (("constant %B", "constant %Q"), ("matmul_relu(%A: f32[m, 64]", "x(%A: f32[m, 64]")),
        "fc1, relu, kernel 'x': reads tensor 'B', which nothing defines",
    ),
    "unlisted input": (
        matmul_relu,
        (("matmul_relu(%A: f32[m, 64], %B: f32[64, 32])", "x(%A: f32[m, 64])"),),
        "reads %B, which is no input of it",
    ),
    "spare input": (
        matmul_relu,
        (("%A[i, k] * %B[k, j]", "%A[i, k]"),),
        "input %B is not read by any stage",
    ),
    "output that is not written": (
        matmul_relu,
        (("-> (%D: f32[m, 32])", "-> (%D: f32[m, 32], %E: f32[m])"),),
        "output %E is not written by any stage",
    ),
    "program output": (
        matmul_relu,
        (("-> (%y)", "-> (%C)"),),
        "program output 'C' is not computed by any kernel",
    ),
    "size of a view": (
        matmul_relu,
        (("view %y: f32[32*m]", "view %y: f32[31*m]"),),
        "cannot be f32[31*m]: sizes differ",
    ),
    "dimension without bounds": (
        matmul_relu,
        ((" dims(m in 1:)", ""),),
        "type of 'A' uses 'm'",
    ),
    "type of a constant": (
        matmul_relu,
        (("%B: f32[64, 32]", "%B: f32[32, 64]"),),
        "constant 'B' holds f32[64, 32], its type is f32[32, 64]",
    ),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_rule_is_named(name: str) -> None:
    make, edits, message = BROKEN[name]
    with pytest.raises(ModelError) as error:
        verify_tensor_program(edited(make, *edits))
    assert message in str(error.value)


def test_stages_and_kernels_must_be_in_order() -> None:
    program = matmul_relu()
    kernel, view = program.items
    assert isinstance(kernel, Kernel)
    turned = replace(kernel, stages=kernel.stages[::-1])
    with pytest.raises(ModelError, match="stage %D: reads %C before all of it is computed"):
        verify_tensor_program(replace(program, items=(turned, view)))
    with pytest.raises(ModelError, match="view 'y': reads tensor 'D' before all of it"):
        verify_tensor_program(replace(program, items=(view, kernel)))


def test_a_type_of_nothing_is_named() -> None:
    program = matmul_relu()
    types = {**program.types, "ghost": TensorType((), F32)}
    with pytest.raises(ModelError, match="a type for 'ghost', which is no tensor"):
        verify_tensor_program(replace(program, types=types))


def test_a_reduction_needs_a_combine() -> None:
    program = matmul_relu()
    kernel, view = program.items
    assert isinstance(kernel, Kernel)
    product = replace(kernel.stages[0], combine=None)
    broken = replace(kernel, stages=(product, kernel.stages[1]))
    with pytest.raises(ModelError, match="does not say how to combine"):
        verify_tensor_program(replace(program, items=(broken, view)))


def test_a_constant_is_not_redefined() -> None:
    program = matmul_relu()
    constants = {**program.constants, "A": Constant(np.zeros((2, 2), np.float32))}
    with pytest.raises(ModelError, match="tensor 'A' is defined twice"):
        verify_tensor_program(replace(program, constants=constants))


@st.composite
def windows(draw: st.DrawFn) -> tuple[Stage, int]:
    """A stage that reads one affine index of ``x``, guarded or not, and the extent of ``x``."""
    extents = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    small = st.integers(-2, 2)
    index = draw(small) * i + draw(small) * k + draw(small)
    guards = draw(st.lists(st.tuples(small, small, small), max_size=2))
    conditions = tuple(Condition(a * i + b * k, ">=", c) for a, b, c in guards)
    body = Read("x", (index,), F32)
    guarded = Guard(conditions, body, Number(0.0, F32), F32) if conditions else body
    axes = (Axis("i", extents[0]),), (Axis("k", extents[1]),)
    return Stage("y", axes[0], (i,), guarded, axes[1], "sum"), draw(st.integers(1, 8))


@given(windows())
def test_a_reported_read_leaves_the_tensor(case: tuple[Stage, int]) -> None:
    """Against enumeration: every report is true, and without guards none is missed."""
    stage, extent = case
    conditions = stage.body.conditions if isinstance(stage.body, Guard) else ()
    (index,) = next(use for use in uses(stage) if use.tensor).indices
    leaves = False
    for a in range(evaluate(stage.axes[0].extent, {})):
        for b in range(evaluate(stage.reduce[0].extent, {})):
            point = {"i": a, "k": b}
            admitted = all(evaluate(c.left, point) >= evaluate(c.right, point) for c in conditions)
            leaves |= admitted and not 0 <= evaluate(index, point) < extent
    types = {"x": TensorType((extent,), F32), "y": TensorType((stage.axes[0].extent,), F32)}
    reported = bool(list(misread(stage, uses(stage), types, {})))
    assert not reported or leaves
    assert conditions or reported == leaves


def test_a_kernel_among_tensors_of_other_types_is_looked_into_again() -> None:
    """What `before` tells holds for the same kernels among tensors of the same types only."""
    before = matmul_relu()
    smaller = TensorType((*before.types["A"].shape[:-1], 60), F32)
    changed = replace(before, types={**before.types, "A": smaller})
    verify_tensor_program(before, before)
    with pytest.raises(ModelError, match="is out of range"):
        verify_tensor_program(changed, before)


def test_a_kernel_that_was_not_there_before_is_looked_into() -> None:
    before = matmul_relu()
    kernel = before.items[0]
    assert isinstance(kernel, Kernel)
    stage = replace(kernel.stages[0], body=Read("A", (i, k + 1), F32))
    broken = replace(kernel, inputs=("A",), stages=(stage, *kernel.stages[1:]))
    with pytest.raises(ModelError, match="is out of range"):
        verify_tensor_program(replace(before, items=(broken, *before.items[1:])), before)
