"""Gradient of ai.onnx.preview.training."""

from __future__ import annotations

import numpy as np
import onnx.parser

import modelcc
from tests.machines import chosen_options

MODEL = """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]>
g (float[3] x) => (float[3] dx, float[3] dh) {
  h = Mul (x, x)
  y = Mul (h, x)
  dx, dh = ai.onnx.preview.training.Gradient <xs = ["x", "h"], y = "y"> (x, h)
}"""


def test_variables_are_independent_of_each_other() -> None:
    """y = h x: h counts as a variable, though it is the square of x."""
    model = onnx.parser.parse_model(MODEL)
    net = modelcc.compile(model, cpu=chosen_options().cpu, cache=None)
    x = np.array([1.0, 2.0, 3.0], np.float32)
    dx, dh = net(x)
    np.testing.assert_allclose(dx, x * x)
    np.testing.assert_allclose(dh, x)
