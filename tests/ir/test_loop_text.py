"""The text of loop functions reads back to equal functions; malformed text is refused."""

from __future__ import annotations

import math

import pytest
from loop_programs import CASES, Case, relu

from modelcc.ir.condition import Condition
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Assign,
    Bitcast,
    Buffer,
    Const,
    Function,
    Let,
    Parameter,
    Register,
    Store,
)
from modelcc.ir.loop_parser import parse_function, parse_functions
from modelcc.ir.loop_text import print_function, print_functions
from modelcc.ir.types import DTYPES, F32, I32, DType
from modelcc.passes.loop.expand_math import expand_math


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_round_trip(case: Case) -> None:
    text = print_function(case.function)
    assert parse_function(text) == case.function
    assert print_function(parse_function(text)) == text


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_vectors_of_any_type(dtype: DType) -> None:
    if dtype.kind in ("string", "complex"):
        pytest.skip("there are no vectors of it")
    value = Const(dtype.kind == "float", dtype, 16)
    function = Function(
        "f", (Parameter(Buffer("y", dtype, 16), True),), (), (Store("y", 0, value),)
    )
    assert parse_function(print_function(function)) == function


def test_several_functions() -> None:
    functions = (CASES[0].function, CASES[4].function)
    assert parse_functions(print_functions(functions)) == functions


def test_golden() -> None:
    assert (
        print_function(relu(5).function)
        == """\
func @relu(%x: f32[n], %y: mut f32[n]; n) from "node of relu" {
  parallel i in 0 .. n step 16 {
    comment "relu of 16 elements"
    let %v = load %x[i] x16 mask(-i + n)
    store %y[i] mask(-i + n) = max(%v, f32x16(0.0))
  }
}
"""
    )


def test_conditions_of_parallel_loops() -> None:
    n = Sym("n")
    function = relu(5, Condition(3 * n * n, ">=", 100)).function
    text = print_function(function)
    assert "  parallel i in 0 .. n step 16 when 3*n*n >= 100 {" in text
    assert parse_function(text).body == function.body


def test_odd_names_and_numbers() -> None:
    size = Sym('a name, with (odd) "letters" .. {')
    parameters = (Parameter(Buffer("y%1 é", F32, size + 1, align=4), True),)
    body = (
        Register("r.1", Const(float("-inf"), F32)),
        Let("0", Bitcast(Const(1e-30, F32), I32)),
        Assign("r.1", Const(3, F32)),
        Store("y%1 é", size // 2, Const(-1.5e30, F32)),
        Store("y%1 é", 0, Const(math.nan, F32)),
    )
    function = Function("f é", parameters, (size.name,), body, ('a "quoted" node',))
    text = print_function(function)  # to compare by: NaN is not equal to NaN
    assert print_function(parse_function(text)) == text


def test_expanded_mathematics_round_trips() -> None:
    text = "func @f(%x: f32[8], %y: mut f32[8]) {\n  store %y[0] = tanh(erf(load %x[0] x8))\n}\n"
    function = expand_math(parse_function(text))
    assert parse_function(print_function(function)) == function


@pytest.mark.parametrize(
    "body, message",
    [
        ("store %z[0] = f32(1.0)", r"line 2, column \d+: there is no buffer %z"),
        ("store %y[0] = %v", "there is no value %v"),
        ("store %y[0 = f32(1.0)", "expected an index expression"),
        ("store %y[0 +] = f32(1.0)", r"'0 \+' is no index expression"),
        ("store %y[0] = f33(1.0)", "unknown function 'f33'|expected"),
        ("store %y[0] = frobnicate(f32(1.0))", "unknown function 'frobnicate'"),
        ("loop i in 0 .. 4 { }", "unknown statement 'loop'"),
        ("for i in 0 .. 4 { ", "expected a statement"),
        ("store %y[0] = convert[f31](f32(1.0))", "unknown element type 'f31'"),
    ],
)
def test_malformed_text_is_refused(body: str, message: str) -> None:
    end = "" if body.endswith("{ ") else "\n}\n"
    with pytest.raises(ModelError, match=message):
        parse_function(f"func @f(%y: mut f32[4]) {{\n  {body}{end}")
