"""Training's attention, whose gradients are made of its rows' sums: what becomes of its nodes, and
that scores are in no memory."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from modelcc.driver import NOWHERE, pipeline, target_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.program import Program
from modelcc.ir.types import F32, TensorType
from modelcc.ops.arithmetic import Mul
from modelcc.ops.attention import Attention
from modelcc.ops.broadcast import ReduceSum
from modelcc.options import Options
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.keep_sums import KeepSums
from modelcc.pipeline import before_block, run_stages
from modelcc.train.gradients import value_and_gradients

ALL = (0, 1, 2, 3)


def training(queries: int, masked: bool = False) -> Graph:
    """Attention of two heads of 16, and its gradients, also of a mask if there is one."""
    build = GraphBuilder("g")
    whole = TensorType((1, 2, queries, 16), F32)
    q, k, v, w = (build.input(name, whole) for name in "qkvw")
    masks = [build.input("m", TensorType((queries, queries), F32))] if masked else []
    y = build.emit(Attention(0.3, not masked), q, k, v, *masks)
    loss = build.emit(ReduceSum(ALL, False), build.emit(Mul(), y, w))
    return value_and_gradients(build.build([y, loss]), loss, ["q", "k", "v", *masks])


def names(graph: Graph) -> Counter[str]:
    return Counter(type(node.op).__name__ for node in graph.nodes)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_gives_its_sums_once(masked: bool) -> None:
    before = training(5, masked)
    found = DeadCode()(CommonSubexpressions()(KeepSums()(before)))
    assert names(found)["AttentionSums"] == names(found)["AttentionGradients"] == 1
    assert not {"Attention", "AttentionAdjoint"}.intersection(names(found))
    rng = np.random.default_rng(2)
    feeds = {
        n: rng.standard_normal(before.types[n].static_shape()).astype(np.float32)
        for n in before.inputs
    }
    wanted, results = interpret(before, feeds), interpret(found, feeds)
    for name in before.outputs:
        np.testing.assert_allclose(results[name], wanted[name], rtol=2e-5, atol=2e-5)


def test_attention_that_has_no_gradients_stays() -> None:
    build = GraphBuilder("g")
    x = build.input("x", TensorType((1, 2, 5, 16), F32))
    graph = build.build([build.emit(Attention(0.3), x, x, x)])
    assert KeepSums()(graph) is graph


@pytest.mark.parametrize("target", ["cuda:sm_80", "opencl:c"])
def test_no_scores_are_in_memory(target: str) -> None:
    """As large as eight results are those of 128 queries, and as 16 those of 256."""
    options = Options(target=target)
    stages = before_block(pipeline(target_of(options), options, NOWHERE), "emit")
    for queries in (128, 256):
        program: Program = run_stages(stages, training(queries))
        assert program.placement is not None
        assert isinstance(program.placement.arena, int)
        assert program.placement.arena < 4 * 2 * queries * 16 * 4
