"""Tensor passes work inside of branches and loops, and never across their borders."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.tensor import TensorProgram, leaf_items
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.inline import InlineStages
from modelcc.passes.tensor.regions import InRegions

LOOP = """
program @main(%x: f32[n, 4], %c: bool[]) -> (%last, %y, %r) dims(n in 1:) {
  constant %zero: f32[4] = "zero"
  kernel @Add(%zero: f32[4]) -> (%h: f32[4]) {
    %h: f32[4] = [i < 4] %zero[i] + 1.0
  }
  repeat [t < n] carry(%s: f32[4] = %h then %next last %last) fill(%y: f32[n, 4]) source("L") {
    kernel @Mul(%s: f32[4], %x: f32[n, 4]) -> (%a: f32[4]) {
      %a: f32[4] = [i < 4] %s[i] * %x[t, i]
    }
    kernel @Sub(%a: f32[4]) -> (%next: f32[4]) {
      %next: f32[4] = [i < 4] %a[i] - 0.5
    }
    kernel @Stack(%next: f32[4]) -> (%y: f32[n, 4]) {
      %y[n - 1 - t, i]: f32[n, 4] = [i < 4] %next[i]
    }
  }
  if %c -> (%r: f32[4]) source("I") {
    kernel @Neg(%last: f32[4]) -> (%b: f32[4]) {
      %b: f32[4] = [i < 4] -%last[i]
    }
    kernel @Exp(%b: f32[4]) -> (%r: f32[4]) {
      %r: f32[4] = [i < 4] exp(%b[i])
    }
  } else {
    kernel @Copy(%last: f32[4]) -> (%r: f32[4]) {
      %r: f32[4] = [i < 4] %last[i]
    }
  }
}
"""


def parse(text: str) -> TensorProgram:
    def resolve(handle: str, type: TensorType) -> Constant:
        return Constant(np.zeros(type.static_shape(), np.float32))

    return parse_tensor_program(text, resolve)


def run(program: TensorProgram, taken: bool) -> list[np.ndarray]:
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    results = run_program(program, {"x": x, "c": np.array(taken)}, {"n": 5})
    return [results[name] for name in program.outputs]


def test_interpreter() -> None:
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    state, rows = np.ones(4, np.float32), []
    for row in x:
        state = state * row - np.float32(0.5)
        rows.append(state)
    last, y, taken = run(parse(LOOP), True)
    np.testing.assert_allclose(last, state, 1e-6)
    np.testing.assert_allclose(y, np.array(rows)[::-1], 1e-6)
    np.testing.assert_allclose(taken, np.exp(-state), 1e-6)
    np.testing.assert_allclose(run(parse(LOOP), False)[2], state, 1e-6)


def test_text_reads_back() -> None:
    program = parse(LOOP)
    verify_tensor_program(program)
    assert parse(print_tensor_program(program)).items == program.items


@pytest.mark.parametrize("taken", [True, False])
def test_passes_work_inside(taken: bool) -> None:
    program = parse(LOOP)
    wanted = run(program, taken)
    for step, kernels in ((InlineStages(), 5), (FuseKernels(), 4)):
        program = InRegions(step)(program)
        verify_tensor_program(program)
        assert len(list(leaf_items(program.items))) == kernels
        for got, array in zip(run(program, taken), wanted, strict=True):
            np.testing.assert_allclose(got, array, 1e-6)


REFUSED = {
    "no end": ("[t < n]", "[t]", "neither a bound nor a condition"),
    "counter": ("[t < n]", "[n < n]", "'n' is already a dimension"),
    "bound": ("[t < n]", "[t < m]", "uses 'm' in m, which is not bound here"),
    "condition": ("[t < n]", "[t < n] while %c", "condition 'c' is no state of the loop"),
    "state": ("then %next", "then %s", "no kernel of the body computes 's' for it alone"),
    "carry": ("%h then", "%x then", r"state 's' is f32\[4\], but 'x' is f32\[n, 4\]"),
    "inner value": ("last %last) fill", "last %end) fill", "reads tensor 'last', which nothing"),
    "one side": (
        "kernel @Copy(%last: f32[4]) -> (%r: f32[4]) {\n      %r",
        "kernel @Copy(%last: f32[4]) -> (%q: f32[4]) {\n      %q", "a side computes no 'r'"),
    "no bool": ("if %c", "if %last", r"condition 'last' must be one bool, not f32\[4\]"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str) -> None:
    old, new, message = REFUSED[case]
    assert old in LOOP
    with pytest.raises(ModelError, match=message):
        verify_tensor_program(parse(LOOP.replace(old, new, 1)))
