"""Models on WebGPU: numbers of 64 bits as indices, and tensors that are empty."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import modelcc
from modelcc.runtime.errors import RunError

pytest.importorskip("onnxruntime")

from fuzz.opinions import onnxruntime_runner

pytestmark = pytest.mark.usefixtures("device")

HEAD = '<ir_version: 9, opset_import: ["" : 21]>'
GATHER = (
    f"""{HEAD} g (float[n, 4] x, int64[k] i) => (float[k, 4] y) {{ [look] y = Gather (x, i) }}"""
)
PRODUCT = f"""{HEAD} g (float[b, m, k] x, float[b, k, n] w) => (float[b, m, n] y) {{
  y = MatMul (x, w)
}}"""
ADDED = f"""{HEAD} g (float[n, 4] x, int64[k, 1] i, float[k, 4] u) => (float[n, 4] y) {{
  y = ScatterND <reduction = "add"> (x, i, u)
}}"""


@pytest.mark.parametrize("index", [2**32 + 1, 2**40, 2**63 - 1, -(2**32), -(2**63), 2**31, 5, -6])
def test_indices_are_checked_with_all_their_bits(index: int) -> None:
    """The low word of some of them is an index."""
    net = modelcc.compile(onnx.parser.parse_model(GATHER), target="webgpu", cache=None)
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    with pytest.raises(RunError, match=rf"look: index {index} is outside of -5 … 4"):
        net(x, np.array([0, index, 1]))
    np.testing.assert_array_equal(net(x, np.array([4, -5])), x[[4, 0]])


def test_empty_operands_are_no_memory() -> None:
    """They may begin where a result does."""
    model = onnx.parser.parse_model(PRODUCT)
    net = modelcc.compile(model, target="webgpu", cache=None)
    for b, m, k, n in ((2, 3, 0, 4), (2, 0, 3, 4), (0, 3, 3, 3), (2, 3, 5, 4)):
        x, w = np.ones((b, m, k), np.float32), np.ones((b, k, n), np.float32)
        np.testing.assert_array_equal(net(x, w), x @ w)


def test_nothing_is_added() -> None:
    """Empty memory of pairs of words, too."""
    model = onnx.parser.parse_model(ADDED)
    net = modelcc.compile(model, target="webgpu", cache=None)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for k in (0, 1, 5):
        feeds = {"x": x, "i": np.full((k, 1), -1), "u": np.ones((k, 4), np.float32)}
        (wanted,) = onnxruntime_runner(model)(feeds).values()
        np.testing.assert_array_equal(net(*feeds.values()), wanted)


def test_constants_of_one_kernel_are_apart_though_their_bytes_are_equal() -> None:
    """Signed and unsigned they are two, which a kernel cannot have as one memory."""
    model = onnx.parser.parse_model(
        f"{HEAD} g (int64[n, 3] x) => (uint64[n, 3] y) <int64[3] a = {{1, 2, 3}},"
        " uint64[3] b = {1, 2, 3}> { s = Add (x, a) c = Cast <to = 13> (s) y = Mul (c, b) }"
    )
    net = modelcc.compile(model, target="webgpu", cache=None)
    x = np.arange(6).reshape(2, 3)
    own = np.array([1, 2, 3])
    np.testing.assert_array_equal(net(x), ((x + own) * own).astype(np.uint64))


def test_numbers_of_more_than_32_bits_are_refused() -> None:
    """What is put before a vector and as much taken from its end, here, may be anything."""
    model = onnx.parser.parse_model(
        f"{HEAD} g (float[h] x, int64[2] pads) => (float[m] y) {{ y = Pad (x, pads) }}"
    )
    net = modelcc.compile(model, target="webgpu", cache=None)
    x = np.arange(3, dtype=np.float32)
    with pytest.raises(RunError, match=r"computes with -?1,099,511,627,776, .* with 32 bits"):
        net(x, np.array([2**40, -(2**40)]))
    np.testing.assert_array_equal(net(x, np.array([2, -1])), [0, 0, 0, 1])


FAR = (-(2**63), -(2**31) - 1, -(2**31), 3 - 2**31, -2, 5, 2**31 - 3, 2**31 - 1, 2**31, 2**63 - 1)


@pytest.mark.parametrize("upper", [0, 1])
def test_diagonals_may_be_anywhere(upper: int) -> None:
    """Far from a matrix of any size, given by data or known, they leave all of it or nothing."""
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    form = f"y = Trilu <upper = {upper}> (x, k)"
    given = onnx.parser.parse_model(
        f"{HEAD} g (float[h, w] x, int64 k) => (float[h, w] y) {{ {form} }}"
    )
    net = modelcc.compile(given, target="webgpu", cache=None)
    for k in FAR:
        wanted = (np.triu if upper else np.tril)(x, max(-9, min(k, 9)))
        np.testing.assert_array_equal(net(x, np.int64(k)), wanted)
    for k in FAR[2:-2:3]:
        known = onnx.parser.parse_model(
            f"{HEAD} g (float[h, w] x) => (float[h, w] y) <int64 k = {{{k}}}> {{ {form} }}"
        )
        wanted = (np.triu if upper else np.tril)(x, max(-9, min(k, 9)))
        found = modelcc.compile(known, target="webgpu", cache=None)(x)
        np.testing.assert_array_equal(found, wanted)
