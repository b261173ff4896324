"""Shapes, axes, positions and counts that are inputs: one artifact against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx.parser
import pytest

import modelcc
from modelcc.ir.types import Array
from modelcc.runtime.errors import RunError
from tests.frontends.onnx.onnx_models import run_onnxruntime

ort = pytest.importorskip("onnxruntime")


@dataclass(frozen=True)
class Case:
    """A model's body with its operands, and several sets of inputs."""

    body: str
    signature: str
    feeds: tuple[tuple[Array, ...], ...]


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


X = floats(2, 3, 4)
CASES = {
    "reshape": Case(
        "y = Reshape(x, s)", "(float[n, 3, 4] x, int64[2] s) => (float[a, b] y)",
        ((X, ints(6, 4)), (X, ints(-1, 2)), (floats(5, 3, 4), ints(0, -1)), (X, ints(24, 1))),
    ),
    "reshape and back": Case(
        "a = Reshape(x, s) b = Relu(a) c = Shape(x) y = Reshape(b, c)",
        "(float[n, 3, 4] x, int64[2] s) => (float[n, 3, 4] y)", ((X, ints(6, 4)), (X, ints(-1, 1))),
    ),
    "expand": Case(
        "y = Expand(x, s)", "(float[n, 1] x, int64[3] s) => (float[a, b, c] y)",
        (
            (floats(3, 1), ints(2, 3, 4)),
            (floats(3, 1), ints(1, 1, 1)),
            (floats(1, 1), ints(2, 5, 2)),
        ),
    ),
    "slice": Case(
        "y = Slice(x, b, e, a, t)",
        "(float[2, 3, n] x, int64[2] b, int64[2] e, int64[2] a, int64[2] t) => (float[p, q, r] y)",
        (
            (X, ints(0, 1), ints(2, 4), ints(0, 2), ints(1, 2)),
            (X, ints(-1, 9), ints(-9, -9), ints(1, -1), ints(-1, -2)),
            (floats(2, 3, 7), ints(5, 2), ints(2, 0), ints(2, 1), ints(1, 1)),
        ),
    ),
    "sliced and doubled": Case(
        "a = Slice(x, b, e) c = Add(a, a) y = ReduceSum(c)",
        "(float[n] x, int64[1] b, int64[1] e) => (float[1] y)",
        (
            (floats(9), ints(2), ints(7)),
            (floats(40), ints(-33), ints(100)),
            (floats(5), ints(1), ints(2)),
        ),
    ),
    "tile": Case(
        "y = Tile(x, r)", "(float[2, n] x, int64[2] r) => (float[a, b] y)",
        ((floats(2, 3), ints(1, 3)), (floats(2, 1), ints(4, 2)), (floats(2, 2), ints(0, 2))),
    ),
    "pad": Case(
        "y = Pad(x, p, v)", "(float[2, n] x, int64[4] p, float v) => (float[a, b] y)",
        (
            (floats(2, 3), ints(1, 0, 0, 2), np.array(7, np.float32)),
            (floats(2, 4), ints(0, -1, 3, -1), np.array(-1, np.float32)),
        ),
    ),
    "range": Case(
        "y = Range(s, l, d)", "(int64 s, int64 l, int64 d) => (int64[n] y)",
        tuple(tuple(map(np.array, v)) for v in ((0, 5, 1), (9, 0, -2), (3, 3, 1), (2, 100, 7))),
    ),
    "squeeze": Case(
        "y = Squeeze(x, a)", "(float[1, n, 1] x, int64[1] a) => (float[p, q] y)",
        ((floats(1, 3, 1), ints(0)), (floats(1, 5, 1), ints(-1))),
    ),
    "unsqueeze": Case(
        "y = Unsqueeze(x, a)", "(float[2, n] x, int64[2] a) => (float[p, q, r, s] y)",
        ((floats(2, 3), ints(0, 2)), (floats(2, 5), ints(-1, 1))),
    ),
    "reduction": Case(
        "y = ReduceMax<keepdims=0>(x, a)", "(float[2, n, 4] x, int64[1] a) => (float[p, q] y)",
        ((X, ints(0)), (X, ints(-1)), (floats(2, 5, 4), ints(1))),
    ),
    "cumulative sum": Case(
        "y = CumSum(x, a)", "(float[2, n, 4] x, int64 a) => (float[2, n, 4] y)",
        ((X, np.array(0)), (X, np.array(-1)), (floats(2, 9, 4), np.array(1))),
    ),
    "top k": Case(
        "y, i = TopK(x, k)", "(float[2, n] x, int64[1] k) => (float[2, k] y, int64[2, k] i)",
        ((floats(2, 9), ints(3)), (floats(2, 5), ints(5)), (floats(2, 30), ints(0))),
    ),
    "selection": Case(
        "c = Greater(x, t) w = NonZero(c) u = Transpose(w) y = GatherND(x, u) z = Exp(y)",
        "(float[2, n] x, float t) => (int64[2, k] w, float[k] z)",
        tuple(
            (floats(2, n), np.array(t, np.float32)) for n, t in ((9, 0), (20, 1), (3, 9), (5, -9))
        ),
    ),
}  # fmt: skip


def model_of(case: Case) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 18]> g '
    return onnx.parser.parse_model(head + case.signature + " { " + case.body + " }")


def results(net: modelcc.Model, feeds: Sequence[Array]) -> tuple[Array, ...]:
    found = net(*feeds)
    return found if isinstance(found, tuple) else (np.asarray(found),)


@pytest.mark.share(2, "name", "target")
@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("name", CASES)
def test_one_artifact_serves_all_values(name: str, target: str) -> None:
    case = CASES[name]
    model = model_of(case)
    net = modelcc.compile(model, target=target, cache=None, threads=1)
    peer = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [i.name for i in model.graph.input]
    for feeds in case.feeds:
        expected = peer.run(None, dict(zip(names, feeds, strict=True)))
        for ours, theirs in zip(results(net, feeds), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6)
            assert ours.shape == theirs.shape


def test_values_that_do_not_fit_end_the_run() -> None:
    net = modelcc.compile(model_of(CASES["reshape"]), cache=None, threads=1)
    with pytest.raises(RunError, match=r"s_0\*s_1 is .*, but must be 12\*n, .*s_0 = 5"):
        net(X, ints(5, 4))
    many = modelcc.compile(model_of(CASES["top k"]), cache=None, threads=1)
    with pytest.raises(RunError, match=r"'k' is .*, but must be at most n, "):
        many(floats(2, 3), ints(4))


def test_bounds_of_what_is_read_can_be_given() -> None:
    case = Case(
        "y = ConstantOfShape(s) z = Neg(y) w = Softmax(z)", "(int64[1] s) => (float[a] w)", ()
    )
    model = model_of(case)
    net = modelcc.compile(model, dims={"s": (1, 64)}, cache=None, threads=1)
    assert np.asarray(net(ints(4))).tolist() == [0.25] * 4
    with pytest.raises(RunError, match=r"'s' is .*, but must be at most 64"):
        net(ints(65))


def test_extents_that_must_agree_are_compared_when_the_model_runs() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[2, a] x, float[2, b] y) => (float[2, 2] z) { z = Gemm <transB = 1> (x, y) }"
    )
    net = modelcc.compile(model, cache=None)
    ones = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(net(ones, ones), ones @ ones.T)
    with pytest.raises(RunError, match=r"Gemm#0: 'a' is 3, but must be b, 5 \(with b = 5\)"):
        net(ones, np.ones((2, 5), np.float32))


SQUEEZED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, c, t] x) => (float[batch, c] y) {
  last = Constant<value_ints = [-1]>()
  one = Constant<value_ints = [1]>()
  shape = Shape(x)
  place = Constant<value_ints = [2]>()
  extent = Gather(shape, place)
  is_one = Equal(extent, one)
  y = If (is_one) <
    then_branch = then () => (float[batch, c] a) { a = Squeeze(x, last) },
    else_branch = other () => (float[batch, c, t] b) { b = Identity(x) }
  >
}
"""


def test_a_squeeze_of_an_extent_that_may_be_one_is_checked_when_the_model_runs() -> None:
    net = modelcc.compile(onnx.parser.parse_model(SQUEEZED), cache=None)
    x = np.arange(6, dtype=np.float32).reshape(2, 3, 1)
    np.testing.assert_array_equal(net(x), x[..., 0])
    with pytest.raises(RunError, match=r"If#6: 't' is 2, but must be 1;"):
        net(np.ones((2, 3, 2), np.float32))


def test_squeezing_without_axes_and_layers_take_the_batch_that_states_have() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 11]>'
        "g (float[t, batch, 3] x, float[1, 1, 4] h, float[1, 12, 3] w, float[1, 12, 4] r)"
        " => (float[a] last) {"
        " y, all = GRU<hidden_size = 4>(x, w, r, , , h) last = Squeeze(all) }"
    )
    rng = np.random.default_rng(0)
    shapes = {"x": (5, 1, 3), "h": (1, 1, 4), "w": (1, 12, 3), "r": (1, 12, 4)}
    feeds = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    net = modelcc.compile(model, cache=None)
    expected = run_onnxruntime(model, feeds)["last"]
    np.testing.assert_allclose(net.run(feeds)["last"], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(RunError, match=r"GRU#0: 'batch' is 2, but must be 1;"):
        net.run({**feeds, "x": np.ones((5, 2, 3), np.float32)})


def test_slices_up_to_the_end_of_an_extent_that_no_bound_keeps_positive() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[1, 1, n] x, float[1, 1, 9] w) => (float[1, 1, m] y) {"
        " c = Conv<strides = [4]>(x, w)"
        " zero = Constant<value_ints = [0]>() end = Constant<value_ints = [9223372036854775807]>()"
        " axis = Constant<value_ints = [2]>() y = Slice(c, zero, end, axis) }"
    )
    net = modelcc.compile(model, cache=None)
    rng = np.random.default_rng(0)
    for n in (9, 30):
        feeds = {
            k: rng.standard_normal((1, 1, e)).astype(np.float32) for k, e in (("x", n), ("w", 9))
        }
        expected = run_onnxruntime(model, feeds)["y"]
        np.testing.assert_allclose(net.run(feeds)["y"], expected, rtol=1e-5, atol=1e-6)


def test_a_constraint_comes_before_what_it_guards() -> None:
    """A result that an inferred extent leaves too small must not be written."""
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[n, 6] x) => (float y) {
      a = Sigmoid(x)
      s = Constant<value_ints = [-1, 4, 4]>()
      y = Reshape(a, s)
    }""")
    model.graph.output[0].ClearField("type")
    net = modelcc.compile(model, threads=1, cache=None)
    assert net.run({"x": np.ones((8, 6), np.float32)})["y"].shape == (3, 4, 4)
    with pytest.raises(RunError, match="but must be"):
        net.run({"x": np.ones((3, 6), np.float32)})
