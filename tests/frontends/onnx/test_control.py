"""If, Loop and Scan on data, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import modelcc
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import parsed, run_onnxruntime

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, *shape: int | str, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    opset: int = 17,
    **constants: Any,
) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "control", list(inputs), results, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


def check(proto: onnx.ModelProto, *cases: dict[str, Array]) -> None:
    """One artifact agrees with onnxruntime on all cases."""
    net = modelcc.compile(proto, threads=1, cache=None)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for feeds in cases:
        wanted = map(np.asarray, session.run(None, feeds))
        got = net.run(feeds)
        for output, array in zip(session.get_outputs(), wanted, strict=True):
            assert got[output.name].shape == array.shape
            np.testing.assert_allclose(got[output.name], array, 1e-4, 1e-5)


def body(nodes: Sequence[onnx.NodeProto], inputs: Sequence[object], outputs: Sequence[object],
         **constants: object) -> onnx.GraphProto:  # fmt: skip
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs), stored)  # type: ignore[arg-type]


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_nested_branches_on_data() -> None:
    inner_then = body([helper.make_node("Mul", ["x", "h"], ["a"])], [], [info("a", "n", 4)])
    inner_else = body([helper.make_node("Identity", ["h"], ["b"])], [], [info("b", "n", 4)])
    then = body(
        [
            helper.make_node("Tanh", ["x"], ["h"]),
            helper.make_node("If", ["c2"], ["t"], then_branch=inner_then, else_branch=inner_else),
        ],
        [],
        [info("t", "n", 4)],
    )
    other = body(
        [helper.make_node("MatMul", ["x", "w"], ["e"])], [], [info("e", "n", 4)], w=floats(4, 4)
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    proto = model(nodes, [info("x", "n", 4), info("c2", kind=BOOL)], ["y"], zero=np.float32(0))
    cases = [(sign, flag, n) for sign in (1, -1) for flag in (True, False) for n in (1, 3)]
    check(proto, *({"x": sign * abs(floats(n, 4)), "c2": np.array(f)} for sign, f, n in cases))


def counting_loop(state: str = "s_out", slices: bool = True, more: str = "more") -> onnx.GraphProto:
    """``s = tanh(s @ w) + x[i]``, goes on while the sum is small; stacks ``s * i``."""
    nodes = [
        helper.make_node("MatMul", ["s_in", "w"], ["p"]),
        helper.make_node("Tanh", ["p"], ["q"]),
        helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
        helper.make_node("Add", ["q", "row"], ["s_out"]),
        helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["s_out", "f"], ["part"]),
        helper.make_node("ReduceSum", ["s_out"], ["total"], keepdims=0),
        helper.make_node("Less", ["total", "limit"], ["more"]),
        helper.make_node("Identity", ["going"], ["always"]),
    ]
    outputs = [info(more, kind=BOOL), info(state, 4), *([info("part", 4)] if slices else [])]
    inputs = [info("i", kind=INT64), info("going", kind=BOOL), info("s_in", 4)]
    return body(nodes, inputs, outputs, limit=np.float32(1.0))


def test_loop_over_rows_stacks_results() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=0, end=1),
        helper.make_node("Squeeze", ["shape"], ["n"]),
        helper.make_node(
            "Loop", ["n", "", "s"], ["last", "parts"], body=counting_loop(more="always")
        ),
    ]
    proto = model(nodes, [info("x", "n", 4), info("s", 4)], ["last", "parts"], w=floats(4, 4))
    check(proto, *({"x": floats(n, 4), "s": floats(4, seed=n)} for n in (1, 2, 5)))


def test_loops_of_a_negative_number_of_iterations_have_none() -> None:
    inner = counting_loop(more="always")
    nodes = [helper.make_node("Loop", ["m", "", "s"], ["last", "parts"], body=inner)]
    inputs = [info("x", 9, 4), info("s", 4), info("m", kind=INT64)]
    net = modelcc.compile(model(nodes, inputs, ["last", "parts"], w=floats(4, 4)), cache=None)
    for count in (-1, -(2**31), 0):
        last, parts = net(floats(9, 4), floats(4, seed=1), np.array(count))
        np.testing.assert_array_equal(last, floats(4, seed=1))
        assert np.shape(parts)[0] == 0
    assert np.shape(net(floats(9, 4), floats(4, seed=1), np.array(2))[1])[0] == 2


@pytest.mark.parametrize("bounded", [True, False])
def test_loop_ends_on_data(bounded: bool) -> None:
    inner = counting_loop(slices=False)
    nodes = [helper.make_node("Loop", ["m" if bounded else "", "c", "s"], ["last"], body=inner)]
    inputs = [info("x", 9, 4), info("s", 4), info("c", kind=BOOL)]
    inputs += [info("m", kind=INT64)] if bounded else []
    proto = model(nodes, inputs, ["last"], w=floats(4, 4))
    cases = [
        {"x": abs(floats(9, 4, seed=seed)) / 9, "s": floats(4, seed=seed), "c": np.array(flag)}
        for seed, flag in ((1, True), (2, True), (3, False))
    ]
    counts = ({"m": np.array(m, np.int64)} if bounded else {} for m in (2, 9, 5))
    check(proto, *({**case, **count} for case, count in zip(cases, counts, strict=True)))


def test_loop_that_ends_on_data_stacks_as_many_results() -> None:
    node = helper.make_node("Loop", ["m", "c", "s"], ["last", "parts"], body=counting_loop())
    inputs = [info("x", 9, 4), info("s", 4), info("c", kind=BOOL), info("m", kind=INT64)]
    proto = model([node], inputs, ["last", "parts"], w=floats(4, 4))
    cases = [
        {
            "x": abs(floats(9, 4, seed=seed)) / 9,
            "s": floats(4, seed=seed),
            "c": np.array(flag),
            "m": np.array(most, np.int64),
        }
        for seed, flag, most in ((1, True, 2), (2, True, 9), (3, True, 5), (4, False, 4))
    ]
    check(proto, *cases)


@pytest.mark.parametrize("backwards", [0, 1])
def test_scan_along_other_axes(backwards: int) -> None:
    nodes = [
        helper.make_node("Add", ["s", "e"], ["t"]),
        helper.make_node("Mul", ["t", "scale"], ["u"]),
        helper.make_node("Sub", ["t", "e"], ["v"]),
    ]
    inner = body(nodes, [info("s", 3), info("e", 3)], [info("u", 3), info("t", 3), info("v", 3)])
    scan = helper.make_node(
        "Scan", ["s0", "x"], ["last", "y", "z"], body=inner, num_scan_inputs=1,
        scan_input_axes=[1], scan_input_directions=[backwards], scan_output_axes=[1, 0],
        scan_output_directions=[0, 1],
    )  # fmt: skip
    inputs = [info("s0", 3), info("x", 3, "t"), info("scale", 3)]
    proto = model([scan], inputs, ["last", "y", "z"])
    feeds = ({"s0": floats(3), "x": floats(3, t), "scale": floats(3, seed=9)} for t in (1, 4, 7))
    check(proto, *feeds)


def test_branches_of_different_types_are_refused() -> None:
    then = body([helper.make_node("Identity", ["x"], ["a"])], [], [info("a", 4)])
    other = body([helper.make_node("Size", ["x"], ["b"])], [], [info("b")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    proto = model([node], [info("x", 4), info("c", kind=BOOL)], ["y"])
    with pytest.raises(ModelError, match=r"different types, f32\[4\] and i64\[\]"):
        modelcc.compile(proto, cache=None)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_at_any_length(kind: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    constants: dict[str, Any] = {
        "w": floats(2, gates * 5, 3) / 2,
        "r": floats(2, gates * 5, 5, seed=1) / 2,
        "b": floats(2, 2 * gates * 5, seed=2) / 2,
    }
    node = helper.make_node(
        kind, ["x", "w", "r", "b", "lengths"], ["y", "last"], hidden_size=5,
        direction="bidirectional",
    )  # fmt: skip
    inputs = [info("x", "t", "n", 3), info("lengths", "n", kind=TensorProto.INT32)]
    proto = model([node], inputs, ["y", "last"], **constants)
    cases = [(1, 1), (4, 2), (9, 3)]
    check(
        proto,
        *(
            {"x": floats(t, n, 3), "lengths": np.arange(t - n + 1, t + 1, dtype=np.int32)}
            for t, n in cases
        ),
    )


def test_activations_take_numbers() -> None:
    constants: dict[str, Any] = {
        "w": floats(1, 20, 3) / 2, "r": floats(1, 20, 5, seed=1) / 2, "b": floats(1, 40, seed=2) / 2
    }  # fmt: skip
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=5,
        activations=["HardSigmoid", "ScaledTanh", "LeakyRelu"],
        activation_alpha=[0.3, 1.5, 0.1], activation_beta=[0.4, 0.7],
    )  # fmt: skip
    proto = model([node], [info("x", "t", 2, 3)], ["y"], **constants)
    check(proto, *({"x": floats(t, 2, 3)} for t in (1, 4)))
    affine = helper.make_node(
        "RNN", ["x", "w", "r"], ["y"], hidden_size=5, activations=["Affine"],
        activation_alpha=[0.5], activation_beta=[0.25],
    )  # fmt: skip
    own: dict[str, Any] = {"w": floats(1, 5, 3) / 2, "r": floats(1, 5, 5, seed=1) / 2}
    check(model([affine], [info("x", "t", 2, 3)], ["y"], **own), {"x": floats(3, 2, 3)})


SHAPES = """main (float[n, 3] x, bool c) => (float[p, q] y, float[p] s) {
  y = If(c) <then_branch = a () => (float[2, 3] u) {
        i = Constant<value_ints = [1, 0]>()
        u = Gather<axis = 0>(x, i)
      }, else_branch = b () => (float[m, 6] v) { v = Concat<axis = 1>(x, x) }>
  axes = Constant<value_ints = [1]>()
  s = ReduceSum<keepdims = 0>(y, axes)
}"""


def test_branches_of_different_shapes() -> None:
    model = parsed(SHAPES)
    net = modelcc.compile(model, threads=1, cache=None)
    for rows in (2, 5):
        for taken in (True, False):
            x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
            feeds = {"x": x, "c": np.array(taken)}
            for ours, theirs in zip(
                net(feeds), run_onnxruntime(model, feeds).values(), strict=True
            ):
                np.testing.assert_allclose(ours, theirs)


STRUCTURES = """main (float[n] x, float[2] y, bool c) => (seq(float[m]) z) {
  s = SequenceConstruct(x, y)
  z = If(c) <then_branch = a () => (seq(float[k]) u) {
        p = Add(x, x)
        u = SequenceConstruct(p, y)
      }, else_branch = b () => (seq(float[k]) v) { v = Identity(s) }>
}"""


def test_branches_that_give_sequences() -> None:
    model = parsed(STRUCTURES)
    net = modelcc.compile(model, threads=1, cache=None)
    x, y = np.arange(3, dtype=np.float32), np.ones(2, np.float32)
    for taken in (True, False):
        found = net({"x": x, "y": y, "c": np.array(taken)})
        for ours, theirs in zip(found, (x + x if taken else x, y), strict=True):
            np.testing.assert_array_equal(ours, theirs)


FOUND_IN_A_LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[5] x, int64 n) => (float s) {
  c = Constant<value = bool {1}>()
  z = Constant<value = float {0.0}>()
  s = Loop(n, c, z) <body = b (int64 i, bool ci, float acc) => (bool co, float acc2) {
    co = Identity(ci)
    f = Cast<to=1>(i)
    d = Sub(x, f)
    r = Relu(d)
    found = NonZero(r)
    axis = Constant<value = int64[1] {0}>()
    at = Squeeze(found, axis)
    kept = Gather<axis=0>(x, at)
    powers = Exp(kept)
    t = ReduceSum<keepdims=0>(powers)
    acc2 = Add(acc, t)
  }>
}"""


@pytest.mark.parametrize("trips", [None, 1, 3])
def test_sizes_found_in_a_loop(trips: int | None) -> None:
    """A size that an iteration reads is that of its own."""
    model = onnx.parser.parse_model(FOUND_IN_A_LOOP)
    if trips is not None:
        count = onnx.numpy_helper.from_array(np.array(trips), "n")
        model.graph.initializer.append(count)
        del model.graph.input[1:]
    x = np.array([0.5, 3, 2, 1, -1], np.float32)
    feeds = {"x": x} if trips is not None else {"x": x, "n": np.array(3)}
    (found,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    expected = run_onnxruntime(model, feeds)["s"]
    np.testing.assert_allclose(found, expected, 1e-5)


SIZED_IN_A_LOOP = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[n] x, int64[m] first, int64[m] last, int64 count) => (float[a, 2] y)
<float[4, 2] table = {1, 2, 3, 4, 5, 6, 7, 8}, bool go = {1}, int64[1] zero = {0}> {
  y = Loop(count, go) <body = b (int64 i, bool c) => (bool d, float[2] r) {
    d = Identity(c)
    low = Gather(first, i)  begin = Unsqueeze(low, zero)
    high = Gather(last, i)  end = Unsqueeze(high, zero)
    part = Slice(x, begin, end, zero)
    rows = Gather(table, part)
    r = ReduceMean <axes = [0], keepdims = 0> (rows)
  }>
}"""


def test_slices_of_outer_tensors_stay_where_their_size_is_read() -> None:
    """Their operands are the same in every iteration, their sizes are not."""
    model = onnx.parser.parse_model(SIZED_IN_A_LOOP)
    feeds = {
        "x": np.array([0, 3, 1, 2, 2]),
        "first": np.array([0, 1, 2]),
        "last": np.array([2, 5, 3]),
        "count": np.array(3),
    }
    (found,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    np.testing.assert_allclose(found, run_onnxruntime(model, feeds)["y"], 1e-5)
