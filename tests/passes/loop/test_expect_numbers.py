"""Extremes that keep NaN, found as if there were none: the same results as NumPy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from modelcc.ir.loop import Function, If
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expect_numbers import expect_numbers

TILE = """
func @tile(%x: f32[40], %y: mut f32[8]) {
  register %acc0 = f32x4(-inf)
  register %acc1 = f32x4(inf)
  unrolled t in 0 .. 3 {
    if predicate(t - 1 >= 0) {
      let %x0 = load %x[8*t] x4
      %acc0 = maximum(%acc0, %x0)
      %acc1 = minimum(%acc1, %x0)
    }
    %acc1 = minimum(%acc1, load %x[8*t + 4] x4)
  }
  store %y[0] = %acc0
  store %y[4] = %acc1
}
"""
"""The greatest of 8 … 11 and 16 … 19, the least of these and 4 … 7, 12 … 15, 20 … 23, by fours."""

ROW = """
func @row(%x: f32[40], %y: mut f32[8]) {
  register %acc = f32x4(-inf)
  register %last = f32(-inf)
  for i in 0 .. 9 {
    %acc = maximum(%acc, load %x[4*i] x4)
  }
  let %tail = load %x[36]
  %last = maximum(%last, %tail)
  %last = maximum(%last, load %x[37])
  store %y[0] = maximum(reduce[maximum](%acc), %last)
}
"""


def tile(x: np.ndarray) -> np.ndarray:
    parts = x.reshape(10, 4)
    return np.concatenate([parts[[2, 4]].max(0), parts[[1, 2, 3, 4, 5]].min(0)])


def row(x: np.ndarray) -> np.ndarray:
    return x[:38].max(keepdims=True)


def run(function: Function, x: np.ndarray) -> np.ndarray:
    verify_function(function)
    assert parse_function(print_function(function)) == function
    y = np.zeros(8, np.float32)
    interpret_loops(function, [x, y], ())
    return y


@pytest.mark.parametrize(("text", "meaning"), [(TILE, tile), (ROW, row)], ids=["tile", "row"])
def test_nan_is_kept_wherever_it_is(text: str, meaning: Callable[[np.ndarray], np.ndarray]) -> None:
    function = parse_function(text)
    changed = expect_numbers(function)
    assert [s for s in statements(changed.body) if isinstance(s, If) and s.rare]
    random = np.random.default_rng(0)
    numbers = random.standard_normal(40).astype(np.float32)
    numbers[[3, 11, 24]] = np.inf, -np.inf, np.inf
    for place in (None, *range(40)):
        x = numbers.copy()
        if place is not None:
            x[place] = np.nan
        wanted = meaning(x)
        for form in (function, changed, expand_math(function), expand_math(changed)):
            np.testing.assert_array_equal(run(form, x)[: len(wanted)], wanted)


@pytest.mark.parametrize(
    "middle",
    [
        "%acc = maximum(%acc, add(%acc, load %x[4] x4))",
        "store %y[4] = %acc",
        "%acc = load %x[8] x4",
    ],
)
def test_what_else_reads_or_sets_a_register_leaves_it_alone(middle: str) -> None:
    function = parse_function(f"""
    func @other(%x: f32[40], %y: mut f32[8]) {{
      register %acc = f32x4(-inf)
      %acc = maximum(%acc, load %x[0] x4)
      {middle}
      %acc = maximum(%acc, load %x[12] x4)
      store %y[0] = %acc
    }}
    """)
    assert expect_numbers(function) == function
