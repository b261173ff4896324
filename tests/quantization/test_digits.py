"""A trained network on integers recognises as many digits."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import Input, optim, training
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from tests.quantization.test_quantising import quantised

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"
EPOCHS = 3


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    pytest.importorskip("sklearn")
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def recogniser(example: dict[str, Any]) -> Graph:
    """The network of the example, trained for less long."""
    batches = training.Batches(example["data"]()[0], 64, seed=0, drop_last=True)
    optimizer = optim.AdamW(optim.OneCycle(5e-3, EPOCHS * len(batches)))
    network, loss = example["network"](0), example["loss"]
    step = training.TrainStep(network, loss, optimizer, threads=1, optimize=1)
    training.Trainer(step, batches, epochs=EPOCHS, show_progress=False).fit()
    model = step.module.eval()
    return modelcc.trace(lambda x: model(x), Input(("n", 8, 8))).graph


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_no_more_than_half_a_percent_is_lost(
    recogniser: Graph, example: dict[str, Any], method: str
) -> None:
    (learned, _), (images, classes) = example["data"]()

    def accuracy(graph: Graph) -> float:
        (scores,) = interpret(graph, {graph.inputs[0]: images}).values()
        return float((scores.argmax(1) == classes).mean())

    model = quantised(recogniser, learned[:128], method=method)
    before = accuracy(recogniser)
    assert before > 0.95
    assert accuracy(model.graph) >= before - 0.005
    assert np.mean([row.activations for row in model.report.layers]) == 8
