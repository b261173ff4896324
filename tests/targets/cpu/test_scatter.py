"""Scatter: one pass over the updates, in order, on every level, by any number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import modelcc
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.index import Sym
from modelcc.ir.loop import For, Load
from modelcc.ir.loop_traversal import parallel_loop, statement_expressions, statements, walk
from modelcc.ir.tensor import Scatter, leaf_items
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.inline import InlineStages
from tests.machines import chosen_options
from tests.planned_functions import planned_functions

REDUCTIONS = ("none", "add", "mul", "max", "min")
SHAPES = {
    "rows": ("ScatterND", (40, 19), (60, 1), (60, 19), {}),
    "narrow rows": ("ScatterND", (40, 3), (60, 1), (60, 3), {}),
    "blocks": ("ScatterND", (9, 4, 8), (2, 15, 1), (2, 15, 4, 8), {}),
    "elements": ("ScatterND", (40, 19), (60, 2), (60,), {}),
    "first axis": ("ScatterElements", (40, 19), (30, 17), (30, 17), {"axis": 0}),
    "last axis": ("ScatterElements", (40, 19), (30, 7), (30, 7), {"axis": -1}),
    "middle axis": ("ScatterElements", (5, 40, 19), (5, 30, 19), (5, 30, 19), {"axis": 1}),
}


def model(
    op: str, shapes: Sequence[tuple[int, ...]], dtype: int, named: bool, **attributes: Any
) -> onnx.ModelProto:
    def value(name: str, kind: int, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
        dims = [f"{name}{n}" if named and n == 0 else e for n, e in enumerate(shape)]
        return helper.make_tensor_value_info(name, kind, dims)

    x, i, u = shapes
    inputs = [value("x", dtype, x), value("i", TensorProto.INT64, i), value("u", dtype, u)]
    node = helper.make_node(op, ["x", "i", "u"], ["y"], **attributes)
    graph = helper.make_graph([node], op, inputs, [helper.make_tensor_value_info("y", dtype, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def feeds_of(kind: str, dtype: type, seed: int = 0) -> dict[str, np.ndarray]:
    op, x, i, u, attributes = SHAPES[kind]
    random = np.random.default_rng(seed)
    limits = np.array(x[: i[-1]]) if op == "ScatterND" else np.array(x[attributes["axis"]])
    numbers = [random.integers(-4, 5, shape).astype(dtype) for shape in (x, u)]
    return {"x": numbers[0], "i": random.integers(-limits, limits, i), "u": numbers[1]}


@pytest.mark.share(2, "kind", "reduction")
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kind", SHAPES)
def test_updates_come_one_after_the_other(kind: str, reduction: str) -> None:
    op, *shapes, attributes = SHAPES[kind]
    named = reduction in ("none", "max")
    proto = model(op, tuple(shapes), TensorProto.FLOAT, named, reduction=reduction, **attributes)
    feeds = feeds_of(kind, np.float32)
    feeds["u"] += 0.1  # so that the order of sums shows
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (wanted,) = session.run(None, feeds)
    for threads in (1, 2):
        net = modelcc.compile(proto, threads=threads, cache=None)
        np.testing.assert_array_equal(net.run(feeds)["y"], wanted)


LARGE = {
    "columns apart": ("ScatterElements", (512, 64), (512, 48), (512, 48), {"axis": 1}),
    "images apart": ("ScatterElements", (64, 40, 19), (64, 30, 19), (64, 30, 19), {"axis": 1}),
    "blocks that may meet": ("ScatterND", (128, 16, 64), (160, 1), (160, 16, 64), {}),
    "elements that may meet": ("ScatterND", (1 << 16, 2), (1 << 17, 2), (1 << 17,), {}),
}


def large_feeds(kind: str) -> dict[str, np.ndarray]:
    op, x, i, u, _ = LARGE[kind]
    random = np.random.default_rng(1)
    limits = np.array(x[: i[-1]]) if op == "ScatterND" else np.array(x[1])
    places = random.integers(-limits, limits, i)
    return {"x": random.random(x, np.float32), "i": places, "u": random.random(u, np.float32)}


def shared_loops(proto: onnx.ModelProto) -> list[list[bool]]:
    """For each loop that threads share, which parameters of its function are read below it."""
    functions = planned_functions(proto, chosen_options())
    loops = [(f, loop) for f in functions if (loop := parallel_loop(f)) is not None]
    return [[p.buffer.name in _buffers_read(loop) for p in f.parameters] for f, loop in loops]


def _buffers_read(loop: For) -> set[str]:
    outer = [e for s in statements(loop.body) for e in statement_expressions(s)]
    return {e.buffer for o in outer for e in walk(o) if isinstance(e, Load)}


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("kind", LARGE)
def test_threads_share_updates_that_never_meet(kind: str, reduction: str) -> None:
    op, *shapes, attributes = LARGE[kind]
    proto = model(op, tuple(shapes), TensorProto.FLOAT, False, reduction=reduction, **attributes)
    feeds = large_feeds(kind)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (wanted,) = session.run(None, feeds)
    for threads in (1, 2):
        net = modelcc.compile(proto, threads=threads, cache=None)
        np.testing.assert_array_equal(net.run(feeds)["y"], wanted)
    apart = "apart" in kind
    ((x, places, updates, _),) = shared_loops(proto)
    assert (x, places, updates) == (not apart, apart, apart)


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("place", [1 << 40, -(1 << 20)])
def test_hostile_places_are_refused_by_threads_too(kind: str, place: int) -> None:
    op, *shapes, attributes = LARGE[kind]
    proto = model(op, tuple(shapes), TensorProto.FLOAT, False, **attributes)
    feeds = large_feeds(kind)
    feeds["i"].flat[feeds["i"].size // 2] = place
    for threads in (1, 2):
        net = modelcc.compile(proto, threads=threads, cache=None)
        with pytest.raises(modelcc.RunError, match=str(place)):
            net.run(feeds)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "dtype",
    [np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.int32, np.int64],
)
def test_types(dtype: type, reduction: str) -> None:
    op, *shapes, attributes = SHAPES["rows"]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = model(op, tuple(shapes), kind, False, reduction=reduction, **attributes)
    feeds = feeds_of("rows", dtype)
    feeds["u"] = feeds["u"] * np.array(feeds["u"] > -2, dtype)  # few products, which stay exact
    wanted = feeds["x"].copy()
    function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for place, update in zip(feeds["i"][:, 0], feeds["u"], strict=True):
        combine = function.get(reduction)
        wanted[place] = update if combine is None else combine(wanted[place], update)
    net = modelcc.compile(proto, threads=1, cache=None)
    np.testing.assert_array_equal(net.run(feeds)["y"], wanted)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_numbers_that_are_none_stay(reduction: str) -> None:
    op, *shapes, attributes = SHAPES["rows"]
    proto = model(op, tuple(shapes), TensorProto.FLOAT, False, reduction=reduction, **attributes)
    feeds = feeds_of("rows", np.float32)
    feeds["x"][::3, 1] = feeds["u"][::4, 2] = np.nan
    net = modelcc.compile(proto, threads=1, cache=None)
    (wanted,) = ReferenceEvaluator(proto).run(None, feeds)
    np.testing.assert_array_equal(net.run(feeds)["y"], wanted)


LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 8] x, int64[t, 3, 1] places, float[t, 3, 8] updates) => (float[n, 8] y) {
  trips = Shape <start = 0, end = 1> (places)
  trip = Squeeze(trips)
  true = Constant <value = bool {1}> ()
  y = Loop (trip, true, x) <body = step (int64 i, bool go, float[n, 8] before)
      => (bool more, float[n, 8] after) {
    more = Identity(go)
    p = Gather(places, i)
    u = Gather(updates, i)
    after = ScatterND <reduction = "add"> (before, p, u)
  }>
}"""


def test_states_of_loops() -> None:
    random = np.random.default_rng(0)
    x = random.random((5, 8), np.float32)
    places, updates = random.integers(-5, 5, (4, 3, 1)), random.random((4, 3, 8), np.float32)
    wanted = x.copy()
    for step in range(4):
        for place, update in zip(places[step, :, 0], updates[step], strict=True):
            wanted[place] += update
    net = modelcc.compile(onnx.parser.parse_model(LOOP), threads=1, cache=None)
    np.testing.assert_array_equal(net(x, places, updates), wanted)


def test_what_is_read_elsewhere_is_not_changed() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[6, 8] x, int64[2, 1] i, float[2, 8] u) => (float[6, 8] y, float[6, 8] z) {
      a = Neg(x)
      y = ScatterND(a, i, u)
      z = Sub(a, y)
    }"""
    net = modelcc.compile(onnx.parser.parse_model(text), threads=1, cache=None)
    x, u = np.ones((6, 8), np.float32), np.full((2, 8), 5, np.float32)
    y, z = net(x, np.array([[1], [4]]), u)
    wanted = -x
    wanted[[1, 4]] = 5
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(z, -x - wanted)


def test_updates_are_computed_where_they_are_put() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[n, 8] x, int64[k, 1] i, float[k, 8] u) => (float[n, 8] y) {
      v = Relu(u)
      y = ScatterND <reduction = "add"> (x, i, v)
    }"""
    program = InlineStages()(lower_graph(import_onnx(onnx.parser.parse_model(text))))
    (item,) = leaf_items(program.items)
    assert isinstance(item, Scatter)
    assert item.inputs == ("x", "i", "u")
    assert item.stage.write[1] == Sym(item.stage.axes[1].name)


def test_updates_that_read_what_they_change() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[6, 8] x, int64[6, 1] i) => (float[6, 8] y) {
      a = Neg(x)
      y = ScatterND(a, i, a)
    }"""
    net = modelcc.compile(onnx.parser.parse_model(text), threads=1, cache=None)
    x = np.random.default_rng(0).random((6, 8), np.float32)
    i = np.array([[1], [2], [3], [4], [5], [0]])
    wanted = np.empty_like(x)
    wanted[i[:, 0]] = -x
    np.testing.assert_array_equal(net(x, i), wanted)


def test_work_is_linear() -> None:
    """Elements are copied and updates put in their places one loop after the other."""
    op, *_, attributes = SHAPES["elements"]
    shapes = ((1, 1), (1, 2), (1,))
    (function,) = planned_functions(
        model(op, shapes, TensorProto.FLOAT, True, **attributes), chosen_options()
    )
    loops = [s for s in statements(function.body) if isinstance(s, For)]
    assert len(loops) > 1
    assert not any(isinstance(s, For) for loop in loops for s in statements(loop.body))
