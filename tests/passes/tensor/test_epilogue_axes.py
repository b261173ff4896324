"""What follows a kernel through a view is one with it, or stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.index import evaluate
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.epilogue_axes import EpilogueAxes
from modelcc.passes.tensor.fuse import FuseKernels

PRODUCT = """
  kernel @Gemm(%a: f32[{rows}, 8], %b: f32[8, 4]) -> (%c: f32[{rows}, 4]) {{
    %c: f32[{rows}, 4] = [i < {rows}, j < 4] sum[k < 8] %a[i, k] * %b[k, j]
  }}
"""
SEVERAL_TIMES = (
    "program @main(%a: f32[6, 8], %b: f32[8, 4]) -> (%y) {"
    + PRODUCT.format(rows=6)
    + """
  view %v: f32[2, 3, 4] = %c
  kernel @Gelu(%v: f32[2, 3, 4]) -> (%y: f32[2, 3, 4]) {
    %y: f32[2, 3, 4] = [l < 2, m < 3, n < 4] %v[l, m, n] * (tanh(%v[l, m, n] * %v[l, m, n]) + 1.0)
  }
}"""
)
NAMED_ROWS = (
    "program @main(%a: f32[3*b, 8], %b: f32[8, 4], %x: f32[b, 3, 4]) -> (%y) dims(b in 1:) {"
    + PRODUCT.format(rows="3*b")
    + """
  view %v: f32[b, 3, 4] = %c
  kernel @Add(%v: f32[b, 3, 4], %x: f32[b, 3, 4]) -> (%y: f32[b, 3, 4]) {
    %y: f32[b, 3, 4] = [l < b, m < 3, n < 4] %v[l, m, n] + %x[l, m, n]
  }
}"""
)
BIAS_AND_RESIDUAL = (
    "program @main(%a: f32[6, 8], %b: f32[8, 4], %d: f32[4], %x: f32[1, 6, 4]) -> (%y, %z) {"
    + PRODUCT.format(rows=6)
    + """
  kernel @Bias(%c: f32[6, 4], %d: f32[4]) -> (%e: f32[6, 4]) {
    %e: f32[6, 4] = [i < 6, j < 4] %c[i, j] + %d[j]
  }
  view %v: f32[1, 6, 2, 2] = %e
  view %w: f32[1, 6, 2, 2] = %x
  kernel @Add(%v: f32[1, 6, 2, 2], %w: f32[1, 6, 2, 2]) -> (%y: f32[1, 6, 2, 2]) {
    %y: f32[1, 6, 2, 2] = [o < 1, l < 6, m < 2, n < 2] %v[0, l, m, n] * 2.0 + %w[0, l, m, n]
  }
  kernel @Relu(%y: f32[1, 6, 2, 2]) -> (%z: f32[1, 6, 2, 2]) {
    %z: f32[1, 6, 2, 2] = [o < 1, l < 6, m < 2, n < 2] max(%y[o, l, m, n], 0.0)
  }
}"""
)
SPLIT_ROWS = """program @main(%a: f32[2, 3, 8], %b: f32[8, 4], %x: f32[4, 6]) -> (%y) {
  kernel @MatMul(%a: f32[2, 3, 8], %b: f32[8, 4]) -> (%c: f32[2, 3, 4]) {
    %c: f32[2, 3, 4] = [h < 2, i < 3, j < 4] sum[k < 8] %a[h, i, k] * %b[k, j]
  }
  view %v: f32[6, 4] = %c
  kernel @Mul(%v: f32[6, 4], %x: f32[4, 6]) -> (%y: f32[6, 4]) {
    %y: f32[6, 4] = [m < 6, n < 4] %v[m, n] * %x[n, m]
  }
}"""
GREATEST = """program @main(%x: f32[6, 8]) -> (%y) {
  kernel @Max(%x: f32[6, 8]) -> (%c: f32[6]) {
    %c: f32[6] = [i < 6] max[k < 8] %x[i, k]
  }
  view %v: f32[2, 3] = %c
  kernel @Relu(%v: f32[2, 3]) -> (%y: f32[2, 3]) {
    %y: f32[2, 3] = [l < 2, m < 3] max(%v[l, m], 0.0)
  }
}"""
FUSED = {
    "read several times": SEVERAL_TIMES,
    "rows of a named number": NAMED_ROWS,
    "a bias, a residual, and more": BIAS_AND_RESIDUAL,
    "rows that a view joins": SPLIT_ROWS,
    "no product": GREATEST,
}


def checked(text: str) -> TensorProgram:
    """The program after the pass, of the same meaning."""
    before = parse_tensor_program(text, {})
    after = EpilogueAxes()(before)
    verify_tensor_program(after)
    env, rng = {"b": 2}, np.random.default_rng(0)
    shapes = {n: [evaluate(e, env) for e in before.types[n].shape] for n in before.inputs}
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    wanted, found = run_program(before, feeds, env), run_program(after, feeds, env)
    for name in before.outputs:
        np.testing.assert_array_equal(found[name], wanted[name])
    return after


def kernels(program: TensorProgram) -> list[Kernel]:
    return [item for item in FuseKernels()(program).items if isinstance(item, Kernel)]


@pytest.mark.parametrize("text", FUSED.values(), ids=FUSED)
def test_it_is_one_kernel_with_what_it_reads(text: str) -> None:
    assert len(kernels(parse_tensor_program(text, {}))) > 1, "views keep them apart"
    assert len(kernels(checked(text))) == 1


def test_only_what_is_read_is_stored() -> None:
    (kernel,) = kernels(checked(SEVERAL_TIMES))
    assert len(kernel.outputs) == 1


LATER = (
    "program @main(%a: f32[6, 8], %b: f32[8, 4], %x: f32[2, 3, 4]) -> (%y) {"
    + PRODUCT.format(rows=6)
    + """
  view %v: f32[2, 3, 4] = %c
  kernel @Max(%x: f32[2, 3, 4]) -> (%m: f32[2, 3]) {
    %m: f32[2, 3] = [l < 2, m < 3] max[n < 4] %x[l, m, n]
  }
  kernel @Add(%v: f32[2, 3, 4], %m: f32[2, 3]) -> (%y: f32[2, 3, 4]) {
    %y: f32[2, 3, 4] = [l < 2, m < 3, n < 4] %v[l, m, n] + %m[l, m]
  }
}"""
)
OF_SOME_AXES = (
    "program @main(%a: f32[6, 8], %b: f32[8, 4], %x: f32[3, 4]) -> (%y) {"
    + PRODUCT.format(rows=6)
    + """
  view %v: f32[2, 3, 4] = %c
  kernel @Add(%v: f32[2, 3, 4], %x: f32[3, 4]) -> (%y: f32[2, 3, 4]) {
    %y: f32[2, 3, 4] = [l < 2, m < 3, n < 4] %v[l, m, n] + %x[m, n]
  }
}"""
)
ELSEWHERE = SEVERAL_TIMES.replace("tanh(%v[l, m, n]", "tanh(%v[0, m, n]")
COUNTED = SEVERAL_TIMES.replace("1.0)", "index(l):f32)")


@pytest.mark.parametrize(
    "text",
    [LATER, OF_SOME_AXES, ELSEWHERE, COUNTED],
    ids=["later operand", "some axes", "another element", "an axis' number"],
)
def test_it_stays(text: str) -> None:
    assert checked(text) == parse_tensor_program(text, {})


def test_an_operand_that_is_there_before_is_viewed() -> None:
    after = checked(
        LATER.replace("%m[l, m]", "%x[l, m, n]").replace(", %m: f32[2, 3])", ", %x: f32[2, 3, 4])")
    )
    assert len(kernels(after)) == 1
