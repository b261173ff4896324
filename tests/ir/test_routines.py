"""Routines: functions of the loop level that others run on parts of their buffers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.instructions import instructions_in
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import map_routines, names_used, routines_in
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import F32
from modelcc.targets.c.dialect import C99
from modelcc.targets.c.emitter import EmitOptions, emit_c

ADD = """\
routine @add(%x: f32[n], %s: mut f32[n]; n) {
  for i in 0 .. n {
    store %s[i] = add(load %x[i], load %s[i])
  }
}
"""

TWICE = """\
routine @twice(%x: f32[m], %s: mut f32[m]; m) {
  run @add(%x[0], %s[0]; m)
  run @add(%x[0], %s[0]; m)
}
"""

PLAIN = f"""{ADD}{TWICE}func @f(%x: f32[8], %y: mut f32[5]) {{
  for k in 0 .. 2 {{
    run @twice(%x[4*k], %y[1]; 4)
  }}
}}
"""


def calling(call: str, parameters: str = "%x: f32[8], %y: mut f32[5], %z: mut i32[8]") -> str:
    return f"{ADD}func @f({parameters}) {{\n  {call}\n}}\n"


def test_text() -> None:
    function = parse_function(PLAIN)
    assert print_function(function) == PLAIN
    assert [r.name for r in routines_in(function.body)] == ["add", "twice"]
    assert instructions_in(function.body) == ()
    assert {"x", "y"} <= names_used(function.body).keys()
    verify_function(function)


def test_meaning() -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(5, np.float32)
    interpret_loops(parse_function(PLAIN), [x, y], [])
    np.testing.assert_array_equal(y, [0, 8, 12, 16, 20])


def test_c_defines_each_once() -> None:
    text = emit_c([parse_function(PLAIN)], EmitOptions(dialect=C99))
    assert text.count("static void mcc_add(") == text.count("static void mcc_twice(") == 1
    assert text.index("mcc_add(") < text.index("static void mcc_twice(") < text.index("void f(")
    assert "mcc_twice(&x[4 * k], &y[1], 4);" in text


def test_changed_where_they_are_called() -> None:
    function = parse_function(PLAIN)
    assert map_routines(function.body, lambda r: r) == function.body
    changed = map_routines(function.body, lambda r: parse_function(ADD.replace("routine", "func")))
    assert [r.name for r in routines_in(changed)] == ["add"]


def test_reads_beyond_a_part_end_the_run() -> None:
    function = parse_function(
        calling("run @add(%x[0], %y[0]; 4)").replace("f32[n], %s", "f32[2], %s")
    )
    with pytest.raises(IndexError):
        interpret_loops(function, [np.ones(8, F32.numpy), np.ones(5, F32.numpy),
                                   np.ones(8, np.int32)], [])  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("run @add(%x[0]; 4)", "takes 2 buffers and 1 sizes, not 1 buffers and 1 sizes"),
        ("run @add(%x[0], %y[0])", "takes 2 buffers and 1 sizes"),
        ("run @add(%x[0], %z[0]; 4)", "has elements of f32, not i32"),
        ("run @add(%y[0], %x[0]; 4)", "%x is an input and cannot be written"),
        ("run @add(%y[0], %y[4]; 1)", "%y is given twice, and written"),
        ("run @add(%x[5], %y[0]; 4)", "element 8 lies outside of %x"),
        ("run @add(%x[k], %y[0]; 4)", "index symbol 'k' is not defined"),
    ],
)
def test_verifier_refuses(call: str, message: str) -> None:
    with pytest.raises(ModelError, match=message.replace("[", r"\[")):
        verify_function(parse_function(calling(call)))


def test_one_name_is_one_routine() -> None:
    call = "run @add(%x[0], %y[0]; 4)"
    function, other = (parse_function(calling(call).replace("add(load", f"{f}(load"))
                       for f in ("add", "sub"))  # fmt: skip
    both = replace(function, body=function.body + other.body)
    with pytest.raises(ModelError, match="two routines called @add"):
        verify_function(both)


def test_unknown_routines_are_refused_when_read() -> None:
    with pytest.raises(ModelError, match="there is no routine @sub"):
        parse_function(calling("run @sub(%x[0], %y[0]; 4)"))
