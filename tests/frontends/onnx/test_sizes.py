"""Sizes that data, callers and models give: checked before they are used; extents of 0 and 1."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import modelcc
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.runtime.errors import InputError, RunError

ort = pytest.importorskip("onnxruntime")

HUGE = 1 << 62


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def one_node(
    op: str,
    operands: Sequence[Array | np.generic],
    attributes: Mapping[str, Any] | None = None,
    shapes: Sequence[Sequence[int | str]] = (),
    constants: Sequence[Array] = (),
) -> onnx.ModelProto:
    """A model of one node, with operands as inputs, then ``constants``; its outputs untyped."""
    names = [f"i{n}" for n in range(len(operands))]
    fixed = [numpy_helper.from_array(np.asarray(a), f"c{n}") for n, a in enumerate(constants)]
    given = shapes or [a.shape for a in operands]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), shape)
        for name, a, shape in zip(names, operands, given, strict=True)
    ]
    node = helper.make_node(op, [*names, *(c.name for c in fixed)], ["y"], **(attributes or {}))
    first = np.asarray((*operands, *constants)[0])
    codes = {
        "Range": helper.np_dtype_to_tensor_dtype(first.dtype), "ArgMax": onnx.TensorProto.INT64
    }  # fmt: skip
    code = codes.get(op, onnx.TensorProto.FLOAT)
    output = helper.make_tensor_value_info("y", code, None)
    graph = helper.make_graph([node], "g", inputs, [output], fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def compiled(model: onnx.ModelProto, target: str = "native") -> modelcc.Model:
    return modelcc.compile(model, target=target, threads=1, cache=None)


@dataclass(frozen=True)
class Hostile:
    """An op with operands that ask for too much, or for less than nothing."""

    op: str
    operands: tuple[Array | np.generic, ...]
    message: str
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


X = floats(3, 4)
TOO_MUCH = r"call for [\d,]+ bytes \(with .*, and no more than 140,737,488,355,328 can be had"
HOSTILE = {
    "tile": Hostile("Tile", (X, ints(2**31 - 1, 2**31 - 1)), TOO_MUCH),
    "tile to a product of 0": Hostile("Tile", (X, ints(1 << 31, 1 << 31)), TOO_MUCH),
    "tile by less than 0": Hostile("Tile", (X, ints(-1, 1)), "'i1_0' is -1, .* at least 0"),
    "expand": Hostile("Expand", (floats(1, 1), ints(1 << 31, 1 << 31)), TOO_MUCH),
    "expand to another extent": Hostile(
        "Expand", (floats(3), ints(4)), "'i1' is 4, but must be 3;"
    ),
    "constant": Hostile("ConstantOfShape", (ints(HUGE),), "'i0' is 4,611.* at most 281,474"),
    "negative constant": Hostile("ConstantOfShape", (ints(-1),), "'i0' is -1, .* at least 0"),
    "pad": Hostile("Pad", (X, ints(0, HUGE, 0, 0)), "'i1_1' is 4,611.* at most 281,474"),
    "crop": Hostile("Pad", (X, ints(0, -3, 0, -3)), r"is -2, but must be at least 0 \(with"),
    "range": Hostile("Range", (np.int64(HUGE), np.int64(3), np.int64(-3)), "at most 281,474"),
    "range of all numbers": Hostile(
        "Range", (np.int64(-(1 << 63)), np.int64((1 << 63) - 1), np.int64(1)), "but must be at"
    ),
    "range without steps": Hostile("Range", (np.int64(0), np.int64(2), np.int64(0)), "must be"),
    "range without end": Hostile(
        "Range", (np.float32(0), np.float32(np.inf), np.float32(1)), "no more than|must be"
    ),
    "one-hot": Hostile("OneHot", (ints(0, 1), np.int64(HUGE), X[0, :2]), "'i1' is 4,611"),
    "window": Hostile("HannWindow", (np.int64(HUGE),), "at most 281,474"),
    "transform": Hostile("DFT", (floats(1, 4, 1), np.int64(HUGE)), "'i1' is 4,611"),
    "frames": Hostile(
        "STFT", (floats(1, 16, 1), np.int64(HUGE), X[0], np.int64(4)), "'i1' is 4,611"
    ),
    "frames without step": Hostile(
        "STFT", (floats(1, 16, 1), np.int64(0), X[0], np.int64(4)), "'i1' is 0, .* at least 1"
    ),
    "centre": Hostile("CenterCropPad", (X, ints(1 << 40, 1 << 40)), TOO_MUCH),
    "grid": Hostile("AffineGrid", (floats(1, 2, 3), ints(1, 1, HUGE, 2)), "'i1_2' is 4,611"),
    "resize": Hostile(
        "Resize", (floats(1, 1, 4, 4), X[0, :0], X[0, :0], ints(1, 1, 1 << 40, 1 << 40)), TOO_MUCH
    ),
    "unpool": Hostile(
        "MaxUnpool",
        (floats(1, 1, 2, 2), np.zeros((1, 1, 2, 2), np.int64), ints(1, 1, 1 << 40, 1 << 40)),
        TOO_MUCH,
        {"kernel_shape": [2, 2]},
    ),
    "reshape": Hostile(
        "Reshape", (X[0], ints(1 << 32, 1 << 32)), r"i1_0\*i1_1 is 18,446.*, but must be 4 \("
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_sizes_from_data_are_checked_before_they_are_used(name: str) -> None:
    case = HOSTILE[name]
    net = compiled(one_node(case.op, case.operands, case.attributes))
    with pytest.raises(RunError, match=case.message) as error:
        net(*case.operands)
    assert str(error.value).startswith(f"{case.op}#0")


@pytest.mark.parametrize("name", ["tile to a product of 0", "range without steps", "crop"])
def test_c_checks_sizes_too(name: str) -> None:
    case = HOSTILE[name]
    net = compiled(one_node(case.op, case.operands, case.attributes), "c")
    with pytest.raises(RunError, match=case.message):
        net(*case.operands)


LOOP = """<ir_version: 8, opset_import: ["" : 18]> g (int64 m, float[4] x)
=> (float[4] y, float[k, 4] z) <bool c = {1}> {
  y, z = Loop(m, c, x) <body = b (int64 i, bool t, float[4] v) => (bool d, float[4] w, float[4] s) {
    d = Identity(t)  w = Sin(v)  s = Cos(v)
  }>
}"""


def test_a_loop_that_stacks_too_many_slices_is_refused() -> None:
    net = compiled(onnx.parser.parse_model(LOOP))
    assert net(np.array(3), X[0])[1].shape == (3, 4)
    with pytest.raises(RunError, match=rf"Loop#.: its sizes {TOO_MUCH}"):
        net(np.array(1 << 46), X[0])
    with pytest.raises(RunError, match=r"Loop#.: 'm' is 2,305.*, .* at most 281,474"):
        net(np.array(1 << 61), X[0])
    assert net(np.array(-2), X[0])[1].shape == (0, 4)


def test_messages_name_the_operand_its_value_and_the_bound() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> g (float[3, 4] x, int64[1] i1)
        => (float[3, k] v, int64[3, k] p) { v, p = TopK(x, i1) }"""
    )
    with pytest.raises(RunError, match=r"^TopK#0: 'i1' is 5, but must be at most 4; other"):
        compiled(model)(X, ints(5))


STATIC = {
    "ConstantOfShape": ([], [ints(1 << 40, 1 << 40)], "f32.1099511627776, .* would take"),
    "Tile": ([X], [ints(-1, 1)], "negative extent, -3"),
    "Expand": ([floats(1)], [ints(1 << 31, 1 << 31)], "would take"),
    "Resize": ([floats(1, 1, 4, 4)], [X[0, :0], X[0, :0], ints(1, 1, HUGE, 1)], "would take"),
}


@pytest.mark.parametrize("op", STATIC)
def test_models_that_ask_for_too_much_are_refused(op: str) -> None:
    operands, constants, message = STATIC[op]
    with pytest.raises(ModelError, match=rf"{op}#0: .*{message}"):
        compiled(one_node(op, operands, constants=constants))


def test_growth_without_measure_is_refused() -> None:
    nodes = [helper.make_node("Concat", [f"t{n}"] * 4, [f"t{n + 1}"], axis=0) for n in range(32)]
    tensors = [helper.make_tensor_value_info(n, 1, s) for n, s in (("t0", [4]), ("t32", None))]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    opsets = [helper.make_opsetid("", 18)]
    with pytest.raises(ModelError, match=r"Concat#21: .* would take 281,474,976,710,656 bytes"):
        compiled(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def test_dims_of_initializers_that_no_array_has_are_refused() -> None:
    model = one_node("Relu", [], constants=[floats(0)])
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend([0, HUGE, HUGE])
    with pytest.raises(ModelError, match=r"initializer 'c0': dims .* beyond any real tensor"):
        compiled(model)


def test_views_that_cannot_be_copied_are_refused() -> None:
    wide = np.broadcast_to(np.float32(1), (1 << 31, 1 << 20))
    with pytest.raises(InputError, match=r"input 'i0': .*, got 2, of shape"):
        compiled(one_node("Neg", [X[0]]))(wide)
    with pytest.raises(InputError, match=r"input 'i0': .* cannot be copied"):
        compiled(one_node("Neg", [X], shapes=[["n", "m"]]))(wide)


def test_sizes_beyond_memory_are_run_errors() -> None:
    net = compiled(one_node("MatMul", [X, X.T], shapes=[["n", "k"], ["k", "m"]]))
    with pytest.raises(RunError, match=r"no room for a result of shape") as error:
        net(np.ones((1 << 40, 0), np.float32), np.ones((0, 1 << 40), np.float32))
    assert isinstance(error.value, MemoryError)


# --- extents of 0 and 1


@dataclass(frozen=True)
class Empty:
    """An op whose operands have an extent of 0 somewhere."""

    op: str
    operands: tuple[Array, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    constants: tuple[Array, ...] = ()


WINDOW = {"kernel_shape": [2, 2], "strides": [2, 2]}
EMPTY = {
    "matmul rows": Empty("MatMul", (floats(0, 3), floats(3, 2))),
    "matmul inner": Empty("MatMul", (floats(2, 0), floats(0, 2))),
    "matmul columns": Empty("MatMul", (floats(2, 3), floats(3, 0))),
    "gemm inner": Empty("Gemm", (floats(2, 0), floats(0, 2), floats(2))),
    "max pool": Empty("MaxPool", (floats(0, 2, 5, 5),), WINDOW),
    "average pool": Empty("AveragePool", (floats(0, 2, 5, 5),), WINDOW),
    "arg max": Empty("ArgMax", (floats(0, 3),), {"axis": 1}),
    "sum over 0": Empty("ReduceSum", (floats(0, 3),), {}, (ints(0),)),
    "sum besides 0": Empty("ReduceSum", (floats(0, 3),), {}, (ints(1),)),
    "product over 0": Empty("ReduceProd", (floats(2, 0),), {}, (ints(1),)),
    "norm over 0": Empty("ReduceL2", (floats(2, 0),), {}, (ints(1),)),
    "softmax": Empty("Softmax", (floats(0, 3),), {"axis": 1}),
    "conv": Empty("Conv", (floats(0, 3, 6, 6), floats(4, 3, 3, 3))),
    "gather": Empty("Gather", (X,), {}, (ints(),)),
    "concat": Empty("Concat", (floats(0, 4), X), {"axis": 0}),
    "layer norm": Empty("LayerNormalization", (floats(0, 4), floats(4))),
    "transpose": Empty("Transpose", (floats(2, 0, 3),), {"perm": [2, 0, 1]}),
}  # fmt: skip


@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
@pytest.mark.parametrize("name", EMPTY)
def test_extents_of_0_as_onnxruntime_has_them(name: str, named: bool) -> None:
    case = EMPTY[name]
    shapes = [[f"n{d}" if e == 0 else e for d, e in enumerate(a.shape)] for a in case.operands]
    if name in ("matmul inner", "gemm inner"):
        shapes[0][1] = shapes[1][0] = "n"
    chosen = shapes if named else ()
    model = one_node(case.op, case.operands, case.attributes, chosen, case.constants)
    feeds = {f"i{n}": a for n, a in enumerate(case.operands)}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feeds)
    found = compiled(model).run(feeds)["y"]
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("length", "batch"), [(0, 2), (5, 0)])
def test_layers_over_no_steps_and_no_sequences(length: int, batch: int) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]> g (float[{length}, {batch}, 3] x,
        float[1, 16, 3] w, float[1, 16, 4] r, float[1, {batch}, 4] h, float[1, {batch}, 4] c)
        => (float[l, d, n, s] y, float[d, n, s] last)
        {{ y, last = LSTM <hidden_size = 4> (x, w, r, "", "", h, c) }}"""
    )
    arrays = floats(length, batch, 3), floats(1, 16, 3), floats(1, 16, 4)
    state = floats(1, batch, 4)
    y, last = compiled(model)(*arrays, state, state)
    assert y.shape == (length, 1, batch, 4)
    assert last.shape == (1, batch, 4)
    if length == 0:
        np.testing.assert_array_equal(last, state)


def against_onnxruntime(text: str, calls: Sequence[tuple[Array, ...]]) -> None:
    """Alike; what onnxruntime refuses, modelcc does too."""
    model = onnx.parser.parse_model(text)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    names = [value.name for value in session.get_inputs()]
    net = compiled(model)
    for call in calls:
        expected = None
        with contextlib.suppress(Exception):
            (expected,) = session.run(None, dict(zip(names, call, strict=True)))
        if expected is None:
            with pytest.raises(RunError, match=r"but must be 1 or"):
                net(*call)
        else:
            np.testing.assert_allclose(net(*call), expected, rtol=1e-6)


def test_a_named_extent_may_be_1_where_a_number_is_met() -> None:
    head = '<ir_version: 8, opset_import: ["" : 18]> g'
    pairs = [(floats(d), floats(2)) for d in (1, 2, 3)]
    against_onnxruntime(
        f"{head} (float[d] x, float[2] w) => (float[e] y) {{ y = Mul(x, w) }}", pairs
    )
    planes = [(floats(a, b), floats(3, 40)) for a, b in ((1, 40), (3, 1), (1, 1), (3, 40), (3, 4))]
    against_onnxruntime(
        f"{head} (float[d, k] x, float[3, 40] w) => (float[e, f] y) "
        "{ z = Add(x, w)  y = Exp(z) }",
        planes,
    )


SLICE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 64] x, int64[1, seq] i)
=> (float[1, k] y) <int64[1] one = {1}, int64[1] zero = {0}, int64 c = {10},
int64[1] e = {9223372036854775807}, int64[1] step = {STEP}>
{ s = Shape <start = 1, end = 2> (i)  b = Sub(c, s)  y = Slice(x, FIRST, LAST, one, step) }"""


@pytest.mark.parametrize(
    ("first", "last", "step"),
    [("b", "e", 1), ("zero", "b", 1), ("b", "e", 2), ("e", "b", -3)],
)
def test_a_bound_that_counts_from_either_end(first: str, last: str, step: int) -> None:
    text = SLICE.replace("STEP", str(step)).replace("FIRST", first).replace("LAST", last)
    lengths = (0, 1, 9, 10, 11, 15, 73, 74, 75, 128, 300)
    x = np.arange(64, dtype=np.float32)[None]
    against_onnxruntime(text, [(x, np.zeros((1, n), np.int64)) for n in lengths])


def test_squeeze_without_axes_takes_named_extents_for_more_than_1() -> None:
    head = '<ir_version: 8, opset_import: ["" : 13]> g'
    net = compiled(
        onnx.parser.parse_model(f"{head} (float[n, 1] x) => (float[m] y) {{ y = Squeeze(x) }}")
    )
    assert net(floats(3, 1)).shape == (3,)
    with pytest.raises(RunError, match=r"Squeeze#0: 'n' is 1, but must be other than 1"):
        net(floats(1, 1))


BRANCHES = """<ir_version: 8, opset_import: ["" : 18]> g (float[1, 1, t] x)
=> (float[1, 1, 1] y) {
  s = Shape <start = 2, end = 3> (x)
  least = Constant <value_ints = [100]> ()
  long = GreaterOrEqual(s, least)
  none = Constant <value_ints = [0]> ()
  c = Squeeze(long, none)
  y = If(c) <
    then_branch = a () => (float[1, 1, 1] p) {
      q = Conv(x, w)  r = Relu(q)  n = Neg(r)  k = Softmax(n)
      p = ReduceMax(k)
    },
    else_branch = b () => (float[1, 1, 1] o) { u = Exp(x)  v = Softmax(u)  o = ReduceSum(v) }
  >
}"""


def test_what_only_a_branch_needs_holds_on_that_branch() -> None:
    model = onnx.parser.parse_model(BRANCHES)
    weights = model.graph.initializer
    if not weights:
        weights.append(numpy_helper.from_array(floats(1, 1, 64), "w"))
    net = compiled(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in (1, 3, 63, 64, 99, 100, 200):
        x = floats(1, 1, size)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(net(x), expected, rtol=1e-5)


SLICE_OF_1 = """<ir_version: 9, opset_import: ["" : 17]> g (float[n, k] x, float[n, w] z)
=> (float[a, b] y) <int64[1] zero = {0}, int64[1] one = {1}, float[1, 5] c = {1, 2, 3, 4, 5}>
{ f = Slice(x, zero, one, one)  BODY }"""


@pytest.mark.parametrize("body", [
    "y = Sub(z, f)", "y = Sub(f, z)", "y = Mul(f, c)", "y = Sub(x, f)",
    "g = Slice(z, zero, one, one)  y = Sub(f, g)",
])  # fmt: skip
def test_a_slice_of_1_at_most_is_broadcast(body: str) -> None:
    sizes = ((3, 4, 6), (2, 1, 1), (2, 5, 1), (1, 3, 2), (0, 3, 4), (2, 3, 0))
    pairs = [(floats(n, k), floats(n, w)) for n, k, w in sizes]
    against_onnxruntime(SLICE_OF_1.replace("BODY", body), pairs)
