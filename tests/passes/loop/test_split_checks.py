"""Checks by themselves, and functions without them, do together what a function does."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import OutOfBoundError, compile_loops
from modelcc.ir.loop_parser import parse_functions
from modelcc.ir.loop_traversal import checks_in
from modelcc.ir.loop_verifier import verify_functions
from modelcc.passes.loop.group_checks import group_checks
from modelcc.passes.loop.split_checks import checks_alone, without_checks

UPDATE = """
func @update(%places: i64[8], %rows: f32[8*n], %table: mut f32[m*n]; n, m) {
  for i in 0 .. 8 {
    let %place = load %places[i]
    index g = select(lt(%place, i64(0)), add(%place, index[i64](m)), %place)
    check index[i64](g) below [m]
    for j in 0 .. n {
      let %value = load %rows[n*i + j]
      store %table[n*g + j] = add(load %table[n*g + j], %value)
    }
  }
}
"""
LATE = """
func @late(%places: i64[8], %out: mut i64[8]) {
  for i in 0 .. 8 {
    store %out[i] = load %places[i]
    let %place = load %out[i]
    check %place below [4]
  }
}
"""
COUNTED = """
func @counted(%places: i64[8], %out: mut i64[8]) {
  register %sum = i64(0)
  local %seen: i64[8]
  for i in 0 .. 8 {
    %sum = add(%sum, load %places[i])
    store %seen[i] = %sum
  }
  for i in 0 .. 8 {
    let %place = load %seen[i]
    check %place below [40]
    store %out[i] = %place
  }
}
"""


def only(text: str) -> Function:
    (function,) = parse_functions(text)
    verify_functions((function,))
    return function


def split(function: Function) -> tuple[Function, Function]:
    checks, rest = checks_alone(function), without_checks(function)
    assert checks is not None
    verify_functions((checks, rest))
    assert checks_in(checks) == checks_in(function) and not checks_in(rest)
    assert not any(parameter.mutable for parameter in checks.parameters)
    return checks, rest


@pytest.mark.parametrize("grouped", [False, True])
def test_an_update_of_rows(grouped: bool) -> None:
    whole = only(UPDATE)
    checks, rest = split(group_checks(whole) if grouped else whole)
    assert [p.buffer.name for p in checks.parameters] == ["places"]
    rows = np.arange(16, dtype=np.float32)
    for places in (np.arange(8), np.arange(-8, 0), np.full(8, 3)):
        found, wanted = (np.zeros(18, np.float32) for _ in range(2))
        compile_loops(checks)([places], [2, 9])
        compile_loops(rest)([places, rows, found], [2, 9])
        compile_loops(whole)([places, rows, wanted], [2, 9])
        np.testing.assert_array_equal(found, wanted)
    for bad in (9, -10):
        with pytest.raises(OutOfBoundError):
            compile_loops(checks)([np.array([0, 1, 2, 3, 4, 5, 6, bad])], [2, 9])


def test_values_that_lead_to_a_check_are_found_again() -> None:
    whole = only(COUNTED)
    checks, _ = split(whole)
    compile_loops(checks)([np.arange(8)], [])
    with pytest.raises(OutOfBoundError):
        compile_loops(checks)([np.arange(8) + 10], [])


def test_checks_of_what_is_written_stay() -> None:
    assert checks_alone(only(LATE)) is None


ON_A_DEVICE = """
func @update(%places: i64[8], %rows: f32[32], %table: mut f32[4*m]; m) {
  grid g0 in 0 .. 1 {
    thread t0 in 0 .. 32 {
      let %place = load %places[t0 floordiv 4]
      check %place below [m]
      index g = %place
      store %table[4*g + t0 mod 4] = load %rows[t0]
    }
  }
}
"""


def test_on_a_device_what_is_checked_is_left_out() -> None:
    """Nobody waits there for what the checks find: no other memory is touched."""
    places, rows = np.array([2, -1, 0, 5, 9, 1, 3, 1 << 40]), np.arange(32, dtype=np.float32)
    rest = without_checks(only(ON_A_DEVICE))
    verify_functions((rest,))
    assert not checks_in(rest)
    table = np.zeros(20, np.float32)
    compile_loops(rest)([places, rows, table], [5])
    wanted = np.zeros((5, 4), np.float32)
    for row, place in enumerate(places):
        if 0 <= place < 5:
            wanted[place] = rows.reshape(8, 4)[row]
    np.testing.assert_array_equal(table, wanted.ravel())
