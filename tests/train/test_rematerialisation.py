"""Values that are computed again: the same results, and memory that is free meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.types import F64, Array, TensorType
from modelcc.ops.activation import Gelu
from modelcc.ops.differentiation import After
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceSum
from modelcc.passes.graph.canonicalise import Canonicalise
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.fold_constants import FoldConstants
from modelcc.train.gradients import value_and_gradients
from modelcc.train.rematerialisation import Lifetimes, ranked, recomputed

LAYERS = 4


def step() -> Graph:
    """A loss and the gradients of all weights."""
    build = GraphBuilder()
    x = build.input("x", TensorType((6, 5), F64))
    weights = [build.input(f"w{i}", TensorType((5, 5), F64)) for i in range(LAYERS)]
    for w in weights:
        x = build.emit(Gelu(), build.emit(MatMul(), x, w))
    graph = build.build([build.emit(ReduceSum((0, 1), False), x, name="loss")])
    return CommonSubexpressions()(value_and_gradients(graph, "loss", weights))


def feeds(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {n: rng.uniform(-1, 1, graph.types[n].static_shape()) for n in graph.inputs}


def peak(graph: Graph) -> int:
    """The most bytes that are live at once, node after node."""
    lives = Lifetimes(graph)
    last = {n: max(lives.read.get(n, (i,))) for n, i in lives.made.items()}
    last |= dict.fromkeys(graph.outputs, len(graph.nodes))
    alive = [
        sum(lives.size(n) for n, made in lives.made.items() if made <= i <= last[n])
        for i in range(len(graph.nodes))
    ]
    return max(alive)


@pytest.mark.parametrize("count", [1, 3, 8, 100])
def test_results_are_the_same_bit_by_bit(count: int) -> None:
    graph = step()
    again = recomputed(graph, [c.name for c in ranked(graph)[:count]])
    verify_graph(again)
    given = feeds(graph)
    expected, found = interpret(graph, given), interpret(again, given)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_less_is_live_at_once() -> None:
    graph = step()
    peaks = [peak(recomputed(graph, [c.name for c in ranked(graph)[:n]])) for n in (0, 3, 100)]
    assert peaks[1] < peaks[0]
    assert peaks[2] < peaks[0]


def test_cheap_values_come_first() -> None:
    graph = step()
    names = [c.name for c in ranked(graph)]
    makers = {n: type(node.op).__name__ for node in graph.nodes for n in node.outputs}
    products = [i for i, name in enumerate(names) if makers[name] == "MatMul"]
    assert products
    assert min(products) > len(names) // 2


def test_passes_do_not_undo_it() -> None:
    graph = step()
    chosen = [c.name for c in ranked(graph)[:3]]
    again = recomputed(graph, chosen)
    for simplify in (CommonSubexpressions(), FoldConstants(), Canonicalise(), DeadCode()):
        again = simplify(again)
    assert [n for n in again.nodes if isinstance(n.op, After)]
    lives = Lifetimes(again)
    made = lives.made
    for name in chosen:  # nobody behind the boundary reads what was computed at first
        assert name not in made or max(lives.read[name]) <= lives.boundary
