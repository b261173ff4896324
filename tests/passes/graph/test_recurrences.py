"""Gradients of recurrent layers, once the graph passes for loops have seen them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import F64, Array, TensorType
from modelcc.ops.arithmetic import Mul
from modelcc.ops.control import Loop
from modelcc.ops.matmul import MatMul
from modelcc.ops.recurrence import Recurrent
from modelcc.ops.recurrent import GRU, LSTM, RNN
from modelcc.ops.reduce import ReduceSum
from modelcc.passes.graph.bodies import in_bodies
from modelcc.passes.graph.canonicalise import Canonicalise
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.decompose import Decompose
from modelcc.passes.graph.fold_constants import FoldConstants
from modelcc.passes.graph.join_loops import JoinLoops
from modelcc.passes.graph.simplify_control import SimplifyControl
from modelcc.passes.graph.sum_after_loops import SumAfterLoops
from modelcc.train.gradients import value_and_gradients

STEPS = (
    Decompose(), CommonSubexpressions(), FoldConstants(), SimplifyControl(), Canonicalise(),
    CommonSubexpressions(), JoinLoops(), SumAfterLoops(), SimplifyControl(),
)  # fmt: skip
TIME, BATCH, INPUTS, HIDDEN = 4, 2, 3, 6


def shapes(op: Recurrent) -> dict[str, tuple[int, ...]]:
    """Of the operands of a layer, and of the weights of its results."""
    return {
        "x": (TIME, BATCH, INPUTS),
        "w": (op.directions, op.gates * HIDDEN, INPUTS),
        "r": (op.directions, op.gates * HIDDEN, HIDDEN),
        "b": (op.directions, 2 * op.gates * HIDDEN),
        "weights": (TIME, op.directions, BATCH, HIDDEN),
    }


def training(op: Recurrent) -> Graph:
    """A sum over what the layer results in, each element with a weight, and its gradients."""
    build = GraphBuilder("training")
    for name, shape in shapes(op).items():
        build.input(name, TensorType(shape, F64))
    y, *_ = build.add(op, "x", "w", "r", "b")
    weighted = build.emit(Mul(), y, "weights")
    build.emit(ReduceSum((0, 1, 2, 3), False), weighted, name="loss")
    return value_and_gradients(build.build(["loss"]), "loss", ["x", "w", "r", "b"])


def simplified(graph: Graph) -> Graph:
    for step in STEPS:
        graph = in_bodies(step)(graph)
    return graph


def products(graph: Graph) -> list[int]:
    """Of each loop, the products in an iteration."""
    loops = [node.op.body for node in graph.nodes if isinstance(node.op, Loop)]
    return [sum(isinstance(node.op, MatMul) for node in body.nodes) for body in loops]


def values(graph: Graph, feeds: dict[str, Array]) -> Sequence[Array]:
    results = interpret(graph, feeds)
    return [results[name] for name in graph.outputs]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (RNN(), [1, 1]),
        (LSTM(), [1, 1]),
        (LSTM("bidirectional"), [1, 1, 1, 1]),
        (GRU(), [2, 2]),
        (GRU(linear_before_reset=True), [1, 1]),
    ],
    ids=str,
)
def test_no_product_is_made_twice_or_added_up_step_by_step(
    op: Recurrent, expected: list[int]
) -> None:
    whole = training(op)
    graph = simplified(whole)
    assert sorted(products(graph)) == sorted(expected)
    rng = np.random.default_rng(0)
    feeds = {n: rng.uniform(-0.8, 0.8, shape) for n, shape in shapes(op).items()}
    found = values(graph, feeds)
    for one, other in zip(found, values(whole, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    by = {n: rng.uniform(-1, 1, feeds[n].shape) * 1e-6 for n in ("x", "w", "r", "b")}
    up = values(graph, feeds | {n: feeds[n] + d for n, d in by.items()})[0]
    down = values(graph, feeds | {n: feeds[n] - d for n, d in by.items()})[0]
    slope = sum(float((g * d).sum()) for g, d in zip(found[1:], by.values(), strict=True))
    np.testing.assert_allclose((up - down) / 2, slope, rtol=1e-6)
