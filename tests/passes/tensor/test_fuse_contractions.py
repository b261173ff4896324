"""Pairs of contractions that are fused, where there are more than two in a row."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import modelcc
from modelcc.driver import target_of
from modelcc.emit.emission import emit
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.options import Options
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.targets.base import BuildConfig

THREE = """<ir_version: 8, opset_import: ["" : 18]>
g (float[32, 16] x, float[16, 64] w, float[64, 32] v, float[32, 16] u) => (float[32, 16] y)
{ p = MatMul(x, w) q = Relu(p) r = MatMul(q, v) s = Relu(r) y = MatMul(s, u) }"""
"""Both pairs of neighbours seem worth fusing."""


def test_of_three_products_in_a_row_the_middle_one_is_in_one_pair() -> None:
    model, options = onnx.parser.parse_model(THREE), Options(cpu="x86-64-v2")
    text = emit(model, None, "tensor", target_of(options), options, BuildConfig()).contents
    assert text.decode().count("kernel @") == 2
    rng = np.random.default_rng(0)
    shapes = {"x": (32, 16), "w": (16, 64), "v": (64, 32), "u": (32, 16)}
    feeds = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    compiled = modelcc.compile(model.SerializeToString(), options=options, cache=None)
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = np.asarray(peer.run(None, feeds)[0])
    np.testing.assert_allclose(compiled(**feeds), wanted, rtol=1e-4, atol=1e-3)


def attention(second: str) -> TensorProgram:
    """One whose result is permuted, and a second result."""
    inputs = "%q: f32[2, 24, 8], %k: f32[2, 40, 8], %v: f32[2, 40, 6]"
    return parse_tensor_program(
        f"""program @p({inputs}) -> (%y, %z) {{
          kernel @s(%q: f32[2, 24, 8], %k: f32[2, 40, 8]) -> (%s: f32[2, 24, 40]) {{
            %s: f32[2, 24, 40] = [h < 2, m < 24, n < 40] sum[d < 8] %q[h, m, d] * %k[h, n, d] }}
          kernel @p(%s: f32[2, 24, 40]) -> (%p: f32[2, 24, 40]) {{
            %t: f32[2, 24, 1] = [h < 2, m < 24, o < 1] max[n < 40] %s[h, m, n]
            %e: f32[2, 24, 40] = [h < 2, m < 24, n < 40] exp(%s[h, m, n] - %t[h, m, 0])
            %u: f32[2, 24, 1] = [h < 2, m < 24, o < 1] sum[n < 40] %e[h, m, n]
            %p: f32[2, 24, 40] = [h < 2, m < 24, n < 40] %e[h, m, n] / %u[h, m, 0] }}
          kernel @w(%p: f32[2, 24, 40], %v: f32[2, 40, 6])
            -> (%y: f32[24, 2, 6], %z: f32[2, 24, 6]) {{
            %w: f32[2, 24, 6] = [h < 2, m < 24, e < 6] sum[n < 40] %p[h, m, n] * %v[h, n, e]
            %y: f32[24, 2, 6] = [m < 24, h < 2, e < 6] %w[h, m, e]
            %z: f32[2, 24, 6] = [a < 2, b < 24, c < 6] {second} }} }}""",
        {},
    )


@pytest.mark.parametrize("second", ["%w[a, b, c]", "%w[a, b, c] * 2.0", "exp(%y[b, a, c])"])
def test_a_second_result_is_made_of_the_first_behind_it(second: str) -> None:
    """A pair has one result, or no schedule would take it."""
    before = attention(second)
    after = FuseContractions(8, 1 << 20)(before)
    pair, behind = (item for item in after.items if isinstance(item, Kernel))
    assert (pair.outputs, behind.inputs, behind.outputs) == (("y",), ("y",), ("z",))
    rng = np.random.default_rng(0)
    shapes = {"q": (2, 24, 8), "k": (2, 40, 8), "v": (2, 40, 6)}
    feeds = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    found, wanted = (run_program(program, feeds, {}) for program in (after, before))
    for name in before.outputs:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_a_second_result_of_something_else_keeps_products_apart() -> None:
    after = FuseContractions(8, 1 << 20)(attention("%w[a, b, c] + %p[a, b, c]"))
    assert len(after.items) == 3
