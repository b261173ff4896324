"""Gradients of whole graphs, compiled: against differences along random directions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Range, Sym
from modelcc.ir.types import F64, I64, Array, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.arithmetic import Add, Cast, Floor, Mul
from modelcc.ops.attention import LogSoftmax, Softmax
from modelcc.ops.conv import Conv
from modelcc.ops.layer_norm import LayerNorm
from modelcc.ops.matmul import MatMul
from modelcc.ops.pool import MaxPool
from modelcc.ops.recurrent import LSTM
from modelcc.ops.reduce import ReduceMean, ReduceSum
from modelcc.ops.reverse import GradientError
from modelcc.ops.roi_align import RoiAlign
from modelcc.ops.shape import Reshape, Transpose
from modelcc.ops.slicing import Slice
from modelcc.train.gradients import value_and_gradients
from tests.machines import chosen_options


def f64(*shape: int | Sym) -> TensorType:
    return TensorType(shape, F64)


def cross_entropy(build: GraphBuilder, scores: str) -> str:
    """The mean over rows of the logarithms at the labels, which are weights of columns."""
    labels = build.input("labels", build.type_of(scores))
    kept = build.emit(Mul(), build.emit(LogSoftmax(1), scores), labels)
    rows = build.emit(ReduceSum((1,), False), kept)
    return build.emit(ReduceMean((0,), False), rows, name="loss")


def network() -> Graph:
    """A convolution, a pooling and a linear layer, for any number of images."""
    n = Sym("n")
    build = GraphBuilder("network", {"n": Range(1, None)})
    x, w, v = build.input("x", f64(n, 3, 6, 6)), build.input("w", f64(4, 3, 3, 3)), ""
    v = build.input("v", f64(36, 5))
    y = build.emit(Relu(), build.emit(Conv((1, 1), (1, 1), (1, 1), (1, 1), 1), x, w))
    y = build.emit(MaxPool((2, 2), (2, 2), (0, 0), (0, 0), (1, 1)), y)
    rows = build.emit(Reshape((n, 36)), y)
    return build.build([cross_entropy(build, build.emit(MatMul(), rows, v))])


def attention() -> Graph:
    """A layer of self-attention with a normalisation."""
    build = GraphBuilder("attention")
    x, w = build.input("x", f64(4, 6)), build.input("w", f64(6, 18))
    scale = build.input("scale", f64(6))
    parts = [Slice((0, 6 * i), (6, 6), (1, 1)) for i in range(3)]
    q, k, v = (build.emit(MatMul(), x, build.emit(part, w)) for part in parts)
    scores = build.emit(MatMul(), q, build.emit(Transpose((1, 0)), k))
    y = build.emit(Add(), x, build.emit(MatMul(), build.emit(Softmax(1), scores), v))
    return build.build([cross_entropy(build, build.emit(LayerNorm(1), y, scale))])


def recurrent() -> Graph:
    """An LSTM in both directions over sequences of several lengths."""
    build = GraphBuilder("recurrent")
    types = {"x": f64(5, 3, 2), "w": f64(2, 16, 2), "r": f64(2, 16, 4), "b": f64(2, 32)}
    names = [build.input(name, type) for name, type in types.items()]
    lengths = build.input("lengths", TensorType((3,), I64))
    _, last, _ = build.add(LSTM("bidirectional"), *names, lengths)
    return build.build([cross_entropy(build, build.emit(Reshape((3, 8)), last))])


@pytest.mark.parametrize("write", [network, attention, recurrent])
def test_gradients_of_models(write: Callable[[], Graph]) -> None:
    graph, rng = write(), np.random.default_rng(0)
    sized = graph.substitute({"n": 3})
    shapes = {name: sized.types[name].static_shape() for name in graph.inputs}
    floats = [n for n in graph.inputs if graph.types[n].dtype == F64]
    given: dict[str, Array] = {n: rng.uniform(-1, 1, shapes[n]) for n in floats}
    if "lengths" in graph.inputs:
        given["lengths"] = np.array([5, 2, 3])
    wanted = [n for n in floats if n != "labels"]
    both = value_and_gradients(graph, "loss", wanted)
    net = modelcc.compile(both, cpu=chosen_options().cpu, cache=None)
    results = dict(zip(("loss", *wanted), net(*(given[n] for n in graph.inputs)), strict=True))
    for name in wanted:
        for _ in range(3):
            direction = rng.uniform(-1, 1, shapes[name])
            moved = [given | {name: given[name] + s * 1e-6 * direction} for s in (1, -1)]
            high, low = (float(net(*(m[n] for n in graph.inputs))[0]) for m in moved)
            slope = float((results[name] * direction).sum())
            assert slope == pytest.approx((high - low) / 2e-6, rel=1e-6, abs=1e-8)


def test_what_a_loss_does_not_depend_on_has_zeros() -> None:
    build = GraphBuilder()
    x, y = build.input("x", f64(3)), build.input("y", f64(3))
    build.emit(ReduceSum((0,), False), build.emit(Floor(), y), name="stairs")
    build.emit(ReduceSum((0,), False), build.emit(Mul(), x, x), name="loss")
    both = value_and_gradients(build.build(["loss"]), "loss", ["x", "y"])
    net = modelcc.compile(both, cpu=chosen_options().cpu, cache=None)
    _, dx, dy = net(np.array([1.0, 2.0, 3.0]), np.ones(3))
    assert dx.tolist() == [2, 4, 6] and dy.tolist() == [0, 0, 0]


def test_what_cannot_be_differentiated_is_named() -> None:
    build = GraphBuilder()
    x, boxes = build.input("x", f64(1, 2, 4, 4)), build.input("boxes", f64(3, 4))
    numbers = build.input("numbers", TensorType((3,), I64))
    op = RoiAlign(2, 2, largest=True)
    (pooled,) = build.add(op, boxes, numbers, x, "", source=("pool7",))
    build.emit(ReduceSum((0, 1, 2, 3), False), pooled, name="loss")
    build.emit(Cast(I64), "loss", name="whole")
    graph = build.build(["loss", "whole"])
    with pytest.raises(GradientError, match="greatest pixels has no gradient") as error:
        value_and_gradients(graph, "loss", ["x"])
    assert "pool7" in str(error.value)
    for loss, wrt, message in (
        ("whole", "x", "must be one float"),
        ("boxes", "x", "must be one float"),
        ("loss", "numbers", "has no gradient"),
        ("loss", "z", "no value 'z'"),
    ):
        with pytest.raises(ModelError, match=message):
            value_and_gradients(graph, loss, [wrt])


def test_nodes_of_a_gradient_come_from_where_their_op_does() -> None:
    build = GraphBuilder()
    x = build.input("x", f64(3, 4))
    (y,) = build.add(Softmax(1), x, source=("the first line",))
    (z,) = build.add(Mul(), y, x, source=("the second line",))
    graph = build.build([build.emit(ReduceSum((0, 1), False), z, name="loss")])
    nodes = value_and_gradients(graph, "loss", ["x"]).nodes[len(graph.nodes) :]
    places = [node.source for node in nodes if node.source]
    assert set(places) == {("the first line",), ("the second line",)}
    assert places[0] == ("the second line",)
