"""Launches that follow each other do what the function does that they are of."""

from __future__ import annotations

import numpy as np

from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.split_launches import split_launches

REVERSED = """
func @reversed(%x: f32[n], %y: mut f32[n], %t: mut f32[n]; m, n) {
  grid g in 0 .. n { thread i in 0 .. 1 { store %t[g] = load %x[g] } }
  grid h in 0 .. n { thread j in 0 .. 1 { store %y[h] = load %t[n - 1 - h] } }
}
"""


def test_each_launch_has_what_it_uses() -> None:
    first, second = split_launches(parse_function(REVERSED))
    for function in (first, second):
        verify_function(function)
        assert function.sizes == ("n",)
    used = [[(p.buffer.name, p.mutable) for p in f.parameters] for f in (first, second)]
    assert used == [[("x", False), ("t", True)], [("t", False), ("y", True)]]
    x, t, y = (np.arange(5, dtype=np.float32) for _ in range(3))
    interpret_loops(first, [x, t], [5])
    interpret_loops(second, [t, y], [5])
    np.testing.assert_array_equal(y, x[::-1])


def test_what_is_one_launch_stays() -> None:
    for one in split_launches(parse_function(REVERSED)):
        assert split_launches(one) == (one,)
