"""Functions of libraries among the callees of a program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Sym
from modelcc.ir.library import Address, Argument, ExternalCall, LibraryFunction, Null, Struct
from modelcc.ir.loop import Const, For, IndexOf
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.program import Launch, Program
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.types import F32, I32, TensorType
from modelcc.passes.program.apply_plan import apply_plan
from modelcc.passes.program.plan_memory import plan_memory

b, n = Sym("b"), Sym("n")
MEANING = parse_function(
    """func @dots(%x: f32[4*n], %w: f32[4], %y: mut f32[n]; n) from "MatMul_0" {
      for b in 0 .. n {
        register %s = f32(0.0)
        for k in 0 .. 4 {
          let %a = load %x[4*b + k]
          let %c = load %w[k]
          %s = muladd(%a, %c, %s)
        }
        store %y[b] = %s
      }
    }"""
)
ARGUMENTS: tuple[Argument, ...] = (
    IndexOf(4, I32),
    Const(1.5, F32),
    Address("x", 4 * b),
    IndexOf(n, I32),
    Address("w"),
    Address("y", b),
)
DOTS = LibraryFunction(ExternalCall("fast-dots", "sdot", ARGUMENTS, "b", n), MEANING)


def program(function: LibraryFunction = DOTS, rows: Index = 3) -> Program:
    return Program(
        "model",
        ("x",),
        ("y",),
        (Launch("dots", ("x", "w", "y"), (rows,), ("MatMul_0",)),),
        {"x": TensorType((3, 4), F32), "w": TensorType((4,), F32), "y": TensorType((3,), F32)},
        (function,),
        {"w": Constant(np.arange(4, dtype=np.float32))},
    )


def changed(**changes: object) -> LibraryFunction:
    return replace(DOTS, call=replace(DOTS.call, **changes))


def test_text_reads_back() -> None:
    unplaced = program()
    for each in (unplaced, apply_plan(unplaced, plan_memory(unplaced))):
        verify_program(each)
        assert parse_program(print_program(each), constants_by_digest(each)) == each
    line = (
        'library "fast-dots" calls sdot(index[i32](4), f32(1.5), %x[4*b], index[i32](n), %w[0], '
        "%y[b]) for b < n"
    )
    assert line in print_program(unplaced)


def test_structures_read_back() -> None:
    size = Struct("size", (Const(3, I32), IndexOf(n, I32)))
    given = Struct("given", (Address("w", 1), Null(), size))
    each = program(changed(arguments=(given, Address("x"), Null(), Address("y")), header="dots.h"))
    verify_program(each)
    assert parse_program(print_program(each), constants_by_digest(each)) == each
    line = (
        'library "fast-dots" of "dots.h" calls sdot(given{%w[1], null, size{i32(3), '
        "index[i32](n)}}, %x[0], null, %y[0]) for b < n"
    )
    assert line in print_program(each)


def test_the_interpreter_runs_its_meaning() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    (y,) = interpret_program(program(), {"x": x}).values()
    np.testing.assert_allclose(y, x @ np.arange(4, dtype=np.float32), rtol=1e-6)


def test_equal_meanings_of_other_calls_stay_apart() -> None:
    other = replace(changed(symbol="ddot"), meaning=replace(MEANING, name="others"))
    steps = (*program().steps, Launch("others", ("x", "w", "z"), (3,)))
    types = {**program().types, "z": TensorType((3,), F32)}
    both = replace(program(), outputs=("y", "z"), steps=steps, types=types, callees=(DOTS, other))
    planned = apply_plan(both, plan_memory(both))
    assert [call.symbol for call in planned.external_calls] == ["sdot", "ddot"]
    same = replace(both, callees=(DOTS, replace(DOTS, meaning=other.meaning)))
    assert len(apply_plan(same, plan_memory(same)).callees) == 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (changed(arguments=(Address("x"), Address("y"))), "the call is not given %w"),
        (changed(arguments=(*ARGUMENTS, Address("z"))), "there is no buffer %z"),
        (changed(arguments=(*ARGUMENTS, Address("w", 4))), "element 4 is outside of %w"),
        (changed(arguments=(*ARGUMENTS, Address("x", b - 1))), "is outside of %x"),
        (changed(arguments=(*ARGUMENTS, IndexOf(Sym("m"), I32))), "'m' is not defined"),
        (changed(count=Sym("m")), "'m' is not defined"),
        (
            changed(arguments=(*ARGUMENTS, Struct("s", (IndexOf(Sym("m"), I32),)))),
            "'m' is not defined",
        ),
        (
            changed(arguments=(*ARGUMENTS, Struct("s", (Address("w", 4),)))),
            "element 4 is outside of %w",
        ),
        (
            replace(DOTS, meaning=replace(MEANING, body=(For("b", 0, n, (), kind="parallel"),))),
            "neither threads nor checks",
        ),
        (replace(DOTS, meaning=replace(MEANING, sizes=())), "'n'"),
    ],
)
def test_what_is_no_call_is_refused(function: LibraryFunction, message: str) -> None:
    with pytest.raises(ModelError) as error:
        verify_program(program(function))
    assert message in str(error.value)
