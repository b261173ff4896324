"""Gradients of pooled boxes, by the corners of boxes and compiled."""

from __future__ import annotations

import numpy as np
import pytest

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Range, Sym
from modelcc.ir.types import F32, F64, I64, Array, DType, TensorType
from modelcc.ops.arithmetic import Mul
from modelcc.ops.boxes import BoxPool
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.roi_align import RoiAlign
from modelcc.ops.roi_pool import MaxRoiPool, MaxRoiPoolIndices
from modelcc.train.gradients import value_and_gradients
from tests.machines import chosen_options

BOXES = np.array(
    [[0.3, 0.7, 8.2, 9.6], [1.1, 2.4, 5.3, 4.9], [-3.6, 3.2, 4.4, 14.3], [6.2, 5.3, 2.7, 1.9],
     [-9.7, -8.3, -4.1, 30.9], [2.31, 2.47, 2.36, 2.52]]
)  # fmt: skip
"""Inside, small, over an edge, back to front, mostly outside, and within a pixel."""
NUMBERS = np.array([0, 1, 1, 0, 0, 1])
FORMS = (
    *(RoiAlign(2, 3, points, 0.7, False, half) for points in (0, 1, 3) for half in (True, False)),
    MaxRoiPool(3, 2, 0.9),
)


def pooled(op: BoxPool, dtype: DType, height: int | Sym = 10) -> Graph:
    """A weighted sum of the bins, and its gradients by images and boxes."""
    build = GraphBuilder("pooled", {} if isinstance(height, int) else {height.name: Range(1, 16)})
    x = build.input("x", TensorType((2, 3, height, 9), dtype))
    boxes = build.input("boxes", TensorType(BOXES.shape, dtype))
    numbers = build.input("numbers", TensorType(NUMBERS.shape, I64))
    y = build.emit(op, boxes, numbers, x, "")
    shape = [int(str(e)) for e in build.type_of(y).shape]
    weights = np.random.default_rng(2).uniform(-1, 1, shape).astype(dtype.numpy)
    kept = build.emit(Mul(), y, build.constant(weights))
    build.emit(ReduceSum((0, 1, 2, 3), False), kept, name="loss")
    return value_and_gradients(build.build(["loss"]), "loss", ["x", "boxes"])


def feeds(dtype: DType) -> dict[str, Array]:
    x = np.random.default_rng(1).normal(size=(2, 3, 10, 9)).astype(dtype.numpy)
    return {"x": x, "boxes": BOXES.astype(dtype.numpy), "numbers": NUMBERS}


@pytest.mark.parametrize("op", FORMS)
@pytest.mark.parametrize("name", ["x", "boxes"])
def test_gradients_agree_with_differences(op: BoxPool, name: str) -> None:
    graph, given, step = pooled(op, F64), feeds(F64), 1e-6
    gradient = interpret(graph, given)[f"{name}.grad"]
    for place in np.ndindex(*given[name].shape) if name == "boxes" else [(0, 1, 4, 4)]:
        ends: list[float] = []
        for sign in (1, -1):
            moved = given[name].copy()
            moved[place] += sign * step
            ends.append(float(interpret(graph, {**given, name: moved})["loss"]))
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(gradient[place], slope, rtol=1e-5, atol=1e-7, err_msg=str(place))


@pytest.mark.share(2, "op", "height")
@pytest.mark.parametrize("op", FORMS)
@pytest.mark.parametrize("height", [10, Sym("h")])
def test_compiled_gradients(op: BoxPool, height: int | Sym) -> None:
    graph, given = pooled(op, F32, height), feeds(F32)
    net = modelcc.compile(graph, options=chosen_options(), cache=None)
    wanted = interpret(graph, given)
    for name, found in net.run(given).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-4, err_msg=name)


def test_means_of_the_weights_are_the_means() -> None:
    """A gradient of ones, times the images, is the sum of all bins."""
    graph, given = pooled(RoiAlign(2, 3), F64), feeds(F64)
    found = interpret(graph, given)
    np.testing.assert_allclose(np.sum(found["x.grad"] * given["x"]), found["loss"], rtol=1e-12)


def test_no_place_of_an_empty_bin() -> None:
    boxes = np.array([[20, 20, 22, 22], [0, 0, 1, 1]], np.float32)
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    found = MaxRoiPoolIndices(1, 1).reference(boxes, np.zeros(2, np.int64), x, None)
    np.testing.assert_array_equal(found.reshape(-1), [-1, 5])
