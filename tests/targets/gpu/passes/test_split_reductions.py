"""Sums by parts, of kernels that write to some of a tensor each."""

from __future__ import annotations

import numpy as np

from modelcc.ir.tensor import item_outputs
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.targets.gpu.passes.split_reductions import SplitReductions

HALVES = """program @main(%a: f32[2, 65536]) -> (%b) dims() {
  kernel @Even(%a: f32[2, 65536]) -> (%b: f32[4]) {
    %b[2*i]: f32[4] = [i < 2] sum[k < 65536] %a[i, k]
  }
  kernel @Odd(%a: f32[2, 65536]) -> (%b: f32[4]) {
    %b[2*i + 1]: f32[4] = [i < 2] max[k < 65536] %a[i, k]
  }
}"""


def test_kernels_that_write_to_one_tensor_have_parts_of_their_own() -> None:
    program = parse_tensor_program(HALVES, {})
    split = SplitReductions(units=16)(program)
    verify_tensor_program(split)
    outputs = [item_outputs(item) for item in split.items]
    assert outputs == [("b.parts",), ("b",), ("b.parts_1",), ("b",)]
    a = np.random.default_rng(5).standard_normal((2, 65536)).astype(np.float32)
    wanted = np.stack([a.sum(1, dtype=np.float64), a.max(1)], 1).ravel()
    np.testing.assert_allclose(run_program(split, {"a": a}, {})["b"], wanted, rtol=1e-4)
