"""Threads that wait for each other note what is out of range, and go on where reading is safe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Range
from modelcc.ir.loop_interpreter import OutOfBoundError, interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.note_checks import note_checks

ROTATED = parse_function("""
func @rotated(%x: i64[8], %table: f32[n], %y: mut f32[8]; n) {
  grid g in 0 .. 2 {
    shared %part: f32[4]
    thread t in 0 .. 4 {
      index i = load %x[4*g + t]
      check index[i64](i) below [n]
      store %part[t] = load %table[i]
      barrier
      store %y[4*g + t] = load %part[(t + 1) % 4]
    }
  }
}
""")


def test_threads_that_wait_go_on() -> None:
    with pytest.raises(ModelError, match="may have ended some threads"):
        verify_function(ROTATED)
    noting = replace(ROTATED, body=note_checks(ROTATED.body, {"n": Range(1)}))
    verify_function(noting)
    assert parse_function(print_function(noting)) == noting
    x, table = np.array([0, 5, 3, 2, 4, 1, 0, 5]), np.arange(6, dtype=np.float32)
    y = np.zeros(8, np.float32)
    interpret_loops(noting, [x, table, y], [6])
    np.testing.assert_array_equal(y, x[[1, 2, 3, 0, 5, 6, 7, 4]])
    for bad in (-1, 6):
        with pytest.raises(OutOfBoundError, match=f"index {bad} "):
            interpret_loops(noting, [np.where(x == 3, bad, x), table, y], [6])


def test_where_nothing_may_be_in_range_threads_have_to_leave() -> None:
    assert note_checks(ROTATED.body, {"n": Range(0)}) == ROTATED.body
