"""Named dimensions of size 0: empty tensors go through compiled code, against onnxruntime."""

from __future__ import annotations

import numpy as np

import modelcc
from tests.frontends.onnx.onnx_models import parsed, run_onnxruntime

ROWS = """main (float[n, 4] x, float[4, 3] w, float[3] b)
    => (float[n, 3] y, float[n] m, float[3] s) {
  p = MatMul(x, w)
  q = Add(p, b)
  y = Softmax<axis = 1>(q)
  m = ReduceMax<keepdims = 0, axes = [1]>(q)
  first = Constant<value_ints = [0]>()
  s = ReduceSum<keepdims = 0>(y, first)
}"""

IMAGES = """main (float[n, 3, h, 6] x, float[4, 3, 3, 3] w)
    => (float[n, 4, k, 6] y, float[n, 4, 1, 1] z) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w)
  y = Relu(c)
  z = GlobalAveragePool(y)
}"""

MOVED = """main (float[n, 4] x, int64[k] i)
    => (float[m, 4] y, float[k, 4] g, float[4, n] t, int64[2] s) {
  y = Concat<axis = 0>(x, x)
  g = Gather<axis = 0>(y, i)
  t = Transpose(x)
  s = Shape(x)
}"""


LAYER = """main (float[3, n, 4] x, float[1, 20, 4] w, float[1, 20, 5] r)
    => (float[3, 1, n, 5] y, float[1, n, 5] h) { y, h = LSTM<hidden_size = 5>(x, w, r) }"""


def _agrees(body: str, *feeds: dict[str, np.ndarray]) -> None:
    model = parsed(body)
    net = modelcc.compile(model, threads=1, cache=None)
    for given in feeds:
        expected = run_onnxruntime(model, given)
        for ours, theirs in zip(net(given), expected.values(), strict=True):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_products_and_reductions_of_no_rows() -> None:
    fixed = {"w": _floats(4, 3), "b": _floats(3)}
    _agrees(ROWS, {"x": _floats(0, 4), **fixed}, {"x": _floats(5, 4), **fixed})


def test_convolution_of_no_images() -> None:
    w = _floats(4, 3, 3, 3)
    _agrees(IMAGES, {"x": _floats(0, 3, 5, 6), "w": w}, {"x": _floats(2, 3, 5, 6), "w": w})


def test_movement_of_nothing() -> None:
    none = np.zeros(0, np.int64)
    _agrees(MOVED, {"x": _floats(0, 4), "i": none}, {"x": _floats(3, 4), "i": np.array([5, 0])})


def test_a_recurrent_layer_on_no_batch() -> None:
    """onnxruntime gives up here."""
    net = modelcc.compile(parsed(LAYER), threads=1, cache=None)
    fixed = {"w": _floats(1, 20, 4), "r": _floats(1, 20, 5)}
    y, h = net({"x": _floats(3, 0, 4), **fixed})
    assert y.shape == (3, 1, 0, 5) and h.shape == (1, 0, 5)
