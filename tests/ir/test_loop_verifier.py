"""Well-formed loop functions pass; what breaks a rule is refused, naming the statement."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop_programs import CASES, Case

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Alloc, Assign, Buffer, Const, Let, Store, Var
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_verifier import verify_function, verify_functions
from modelcc.ir.types import F32, F64, I32


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_accepts(case: Case) -> None:
    verify_function(case.function)


def test_what_loops_over_names_read_of_a_given_size_may_never_run() -> None:
    """Where n is asserted to be 8, nothing runs: loops that are empty then are no fault."""
    text = """func @f(%x: f32[8], %y: mut f32[n]; n) {
      for i in 0 .. n floordiv 32 { store %y[32*i] = load %x[32*i + 8] x8 }
    }"""
    verify_function(parse_function(text))
    with pytest.raises(ModelError, match="lies outside of %x"):
        verify_function(parse_function(text.replace("n floordiv 32", "2")))


REFUSED = {
    "store %x[0] = f32(1.0)": "%x is an input and cannot be written",
    "store %y[0] = f64(1.0)": "%y has elements of f32, but f64 are stored",
    "store %y[8] = f32(1.0)": "element 8 lies outside of %y, which has 8",
    "store %y[-1] = f32(1.0)": "element -1 lies outside",
    "store %y[1] = f32x8(1.0)": "element 8 lies outside",
    "let %a = shuffle[0 16](load %x[0] x8, load %x[0] x8)": "has places below 16",
    "let %a = shuffle[0 1](load %x[0] x8, load %x[0] x4)": "operands of shuffle have 8 and 4 lanes",
    "let %a = shuffle[0 1](load %x[0], load %x[1])": "shuffle takes vectors of numbers",
    "store %z[n] = f32(1.0)": "element n lies outside of %z, which has n",
    "for i in 0 .. 5 step 2 { store %y[2*i + 1] = f32(1.0) }": r"element 2\*i \+ 1 lies outside",
    "store %y[i] = f32(1.0)": "index symbol 'i' is not defined here",
    "for i in 0 .. 4 { } store %y[i] = f32(1.0)": "index symbol 'i' is not defined here",
    "for n in 0 .. 4 { }": "'n' is already defined here",
    "for i in 0 .. 4 step 0 { }": "step 0 must be positive",
    "for i in 0 .. 4 { parallel j in 0 .. 4 { } }": "at most one parallel loop, its outermost",
    "parallel i in 0 .. 4 { } parallel j in 0 .. 4 { }": "at most one parallel loop",
    "for i in 0 .. 4 when n >= 1 { }": "only a parallel loop has a condition",
    "parallel i in 0 .. 4 when i >= 1 { }": "index symbol 'i' is not defined here",
    "unrolled i in 0 .. n { }": "a loop over n cannot be unrolled",
    "let %a = f32(1.0) %a = f32(2.0)": "%a is no register",
    "let %a = f32(1.0) let %a = f32(2.0)": "'a' is already defined here",
    "register %a = f32(1.0) %a = f64(2.0)": "register %a holds f32, but is assigned f64",
    "register %a = f32(1.0) parallel i in 0 .. 4 { %a = f32(2.0) }": "would share register %a",
    "register %a = f32(1.0) parallel i in 0 .. 4 { store %y[i] = %a }": "would share register %a",
    "local %t: f32[4] parallel i in 0 .. 4 { store %t[0] = f32(1.0) }": "would share local %t",
    "local %t: f32[n]": "needs a constant size",
    "local %t: f32[4] align 3": "alignment 3 is no power of two",
    "if f32(1.0) { }": "condition must be a scalar bool",
    "index g = f32(1.0)": "must be a scalar integer",
    "let %a = add(f32(1.0), f64(1.0))": "operands of add differ: f32 and f64",
    "let %a = add(f32(1.0), f32x4(1.0))": "operands of add have 1 and 4 lanes",
    "let %a = add(f32(1.0))": "add takes 2 operands, not 1",
    "let %a = exp(i32(1))": "exp is not defined for i32",
    "let %a = select(f32(1.0), f32(1.0), f32(1.0))": "condition of select must be bool",
    "let %a = select(bool(true), f32x4(1.0), f32x4(1.0))": "operands of select have 1 and 4",
    "let %a = bitcast[f64](f32(1.0))": "bitcast from f32 to f64 changes the width",
    "let %a = splat[4](f32x4(1.0))": "splat of 4 lanes",
    "let %a = reduce[sub](f32x4(1.0))": "cannot reduce with 'sub'",
    "let %a = i32(1.5)": "1.5 is no constant of i32",
    "let %a = gather %x[0; f32(1.0)]": "offsets must be integers",
    "scatter %y[0; i32x4(0)] = f32(1.0)": "one integer offset for each lane",
    "register %a = f32(1.0) call parallel 0 .. 4 func @g(value %a: f32; b, e) { }": "register %a",
    "call parallel 0 .. 4 func @g(%w: f32[8]; b, e) { }": "there is no buffer %w here",
    "call parallel 0 .. 4 func @g(%x: f32[4]; b, e) { }": "%x is another buffer here",
    "call parallel 0 .. 4 func @g(%x: mut f32[8]; b, e) { }": "%x is another buffer here",
    "call parallel 0 .. 4 func @g(value %a: f32; b, e) { }": "there is no value %a here",
    "call parallel 0 .. 4 func @g(; m, b, e) { }": "index symbol 'm' is not defined here",
    "call parallel 0 .. 4 func @g(; e) { }": "@g is no part of a parallel loop",
    "call parallel 0 .. 4 func @g(; b, e) { parallel i in 0 .. 4 { } }": "@g is no part of a",
    "for i in 0 .. 4 { call parallel 0 .. 4 func @g(; b, e) { } }": "at most one parallel loop",
    "for i in 0 .. 4 part j .. 2 { }": "index symbol 'j' is not defined here",
    "let %a = index[bool](n)": "an index cannot be bool",
}


@pytest.mark.parametrize("body", REFUSED)
def test_refuses(body: str) -> None:
    head = "func @f(%x: f32[8], %y: mut f32[8], %z: mut f32[n]; n) {"
    function = parse_function(f"{head} {body} }}")
    with pytest.raises(ModelError, match=REFUSED[body]) as caught:
        verify_function(function)
    assert caught.value.where[0] == "@f"
    assert len(caught.value.where) == 2


def test_guarded_accesses_may_look_out_of_range() -> None:
    verify_function(parse_function(
        "func @f(%x: f32[8], %y: mut f32[8]) { for i in 0 .. 8 { if predicate(i > 0) {"
        "store %y[i] = load %x[i - 1] } } }"
    ))  # fmt: skip


def test_divisors_may_be_0_where_nothing_is_iterated() -> None:
    """Trial sizes make the divisor, and with it the loop, nothing."""
    verify_function(parse_function(
        "func @f(%x: f32[n], %y: mut f32[n]; n) { for i in 0 .. 4*(n floordiv 512) {"
        "store %y[i mod (n floordiv 512)] = load %x[i floordiv (n floordiv 512)] } }"
    ))  # fmt: skip


def test_variables_agree_with_their_definition() -> None:
    function = CASES[0].function
    body = (Let("v", Const(1.0, F32)), Store("y", 0, Var("v", F64)))
    with pytest.raises(ModelError, match="%v is f32, not f64"):
        verify_function(replace(function, body=body))
    with pytest.raises(ModelError, match="there is no value %w here"):
        verify_function(replace(function, body=(Store("y", 0, Var("w", F32)),)))
    with pytest.raises(ModelError, match="there is no value %w here"):
        verify_function(replace(function, body=(Assign("w", Const(1.0, F32)),)))
    with pytest.raises(ModelError, match="'y' is already defined"):
        verify_function(replace(function, body=(Alloc(Buffer("y", I32, 4, "local")),)))


def test_functions_have_different_names() -> None:
    with pytest.raises(ModelError, match="two functions of this name"):
        verify_functions([CASES[0].function, CASES[0].function])
