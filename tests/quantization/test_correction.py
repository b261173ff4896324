"""Means of results after biases have made up for what rounding adds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Sym
from modelcc.ir.types import F32, Array, TensorType
from modelcc.ops.arithmetic import Add
from modelcc.ops.matmul import MatMul
from tests.quantization.chains import chain
from tests.quantization.graphs import floats
from tests.quantization.test_quantising import quantised


def layer() -> Graph:
    """A product with an addend."""
    build = GraphBuilder("layer")
    x = build.input("x", TensorType((Sym("n"), 32), F32))
    w, b = build.constant(floats(32, 8)), build.constant(floats(8, seed=1))
    product = build.emit(MatMul(), x, w, source=("product",))
    return build.build([build.emit(Add(), product, b, name="y")])


def mean(graph: Graph, data: Array) -> Array:
    runs = data[None] if graph.dims else data.reshape(-1, 2, *data.shape[1:])
    return np.mean([interpret(graph, {"x": x})["y"] for x in runs], (0, 1))


@pytest.mark.parametrize("make", [layer, chain])
def test_means_are_nearer_to_what_they_were(make: Callable[[], Graph]) -> None:
    graph = make()
    data = np.abs(floats(192, 32) if make is layer else floats(40, 3, 6, 6))
    shifts: list[float] = []
    errors: list[float] = []
    for correct in (False, True):
        model = quantised(graph, data, per_channel=False, correct_bias=correct)
        means = [mean(g, data) for g in (model.graph, graph)]
        shifts.append(float(np.abs(means[0] - means[1]).max()))
        errors.append(model.report.error)
    assert shifts[1] < (0.01 if make is layer else 1.0) * shifts[0]
    assert errors[1] < errors[0]
