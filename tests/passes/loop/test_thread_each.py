"""A thread for each iteration of a loop does what the loop does."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_traversal import launch_extents
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.thread_each import thread_each

TOTALS = """
func @totals(%x: f32[m*n], %y: mut f32[n]; m, n) {
  parallel i in 0 .. n {
    register %sum = f32(0.0)
    for k in 0 .. m {
      %sum = add(%sum, load %x[m*i + k])
    }
    store %y[i] = %sum
  }
}
"""
ONE_THREADS = (
    TOTALS.replace("parallel i", "for i"),
    TOTALS.replace("for k", "parallel k"),
    TOTALS.replace("parallel i in 0", "parallel i in 1"),
    TOTALS.replace("  parallel i", "  store %y[0] = f32(0.0)\n  parallel i"),
)


@pytest.mark.parametrize("n", [1, 8, 11])
def test_each_iteration_has_a_thread(n: int) -> None:
    function = thread_each(parse_function(TOTALS), 4)
    assert function is not None
    verify_function(function)
    assert launch_extents(function)[1] == (4,)
    x, y = np.arange(3 * n, dtype=np.float32), np.zeros(n, np.float32)
    interpret_loops(function, [x, y], [3, n])
    np.testing.assert_array_equal(y, x.reshape(n, 3).sum(1))


@pytest.mark.parametrize("text", ONE_THREADS)
def test_what_is_one_threads_stays(text: str) -> None:
    assert thread_each(parse_function(text), 4) is None
