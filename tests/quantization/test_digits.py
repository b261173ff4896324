"""A trained network on integers recognises as many digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import Input
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from tests.quantization.test_quantising import quantised
from tests.training.digits import Array, cnn, digits, trained


@pytest.fixture(scope="module")
def recogniser() -> Graph:
    pytest.importorskip("sklearn")
    trainer: Any = trained(cnn(0), 5e-3, 3, optimize=1)
    model = trainer.step.module.eval()
    return modelcc.trace(lambda x: model(x), Input(("n", 8, 8))).graph


def accuracy(graph: Graph) -> float:
    images, classes = digits()[1]
    (name,) = graph.inputs
    (scores,) = interpret(graph, {name: images}).values()
    return float((scores.argmax(1) == classes).mean())


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_no_more_than_half_a_percent_is_lost(recogniser: Graph, method: str) -> None:
    images: Array = digits()[0][0][:128]
    model = quantised(recogniser, images, method=method)
    before = accuracy(recogniser)
    assert before > 0.95
    assert accuracy(model.graph) >= before - 0.005
    assert np.mean([row.activations for row in model.report.layers]) == 8
