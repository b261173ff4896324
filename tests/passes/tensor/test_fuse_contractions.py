"""Pairs of contractions that are fused, where there are more than two in a row."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime

import modelcc
from modelcc.driver import target_of
from modelcc.emit.emission import emit
from modelcc.options import Options
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
