"""Every op on its samples as StableHLO: run by jax, and read back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from conformance.sample_graphs import cases, sample_graph
from conformance.stablehlo_emission import outcome, run_text
from modelcc.driver import import_model
from modelcc.emit.emission import stablehlo_text
from modelcc.exporters.stablehlo import export_stablehlo
from modelcc.feeds.random import random_feeds
from modelcc.ir.graph_interpreter import interpret
from tests.machines import chosen_options
from tests.small_models import mlp

pytestmark = pytest.mark.filterwarnings("ignore")

_SIZES = "sizes of a result depend on data"
_LOOPS = "an algorithm that StableHLO has no operation for"
REFUSED = {
    **dict.fromkeys(("NonZero", "Unique", "NonMaxSuppression", "ReadSize"), _SIZES),
    **dict.fromkeys(("Forest", "RoiAlign", "MaxRoiPool", "MaxRoiPoolIndices", "Col2Im"), _LOOPS),
    **dict.fromkeys(("FourierLengths", "FourierTables"), _LOOPS),
    **dict.fromkeys(("Lu", "PivotPermutation", "Eigen"), _LOOPS),
    "Cholesky": "StableHLO's does not say where it fails",
}
"""Ops that have no form in StableHLO → why.  A stale entry fails."""

PARTLY = {
    **dict.fromkeys(
        ("LateTile", "HouseholderQr", "OrthogonalRows"),
        "what has no elements is written, whatever it is",
    ),
    **dict.fromkeys(("Full", "Indices", "Iota", "Tile"), "no input has the extent that is named"),
}
"""Ops of which some samples are refused → why.  A stale entry fails."""

CASES: dict[tuple[str, bool], list[Any]] = {}
for _case in cases():
    CASES.setdefault((type(_case[0]).__name__, _case[2]), []).append(_case)


@pytest.mark.parametrize(
    ("name", "named"), CASES, ids=[f"{n}-{'names' if d else 'numbers'}" for n, d in CASES]
)
def test_jax_computes_what_the_interpreter_does(name: str, named: bool) -> None:
    found = [outcome(op, type(op).samples[n], by_name) for op, n, by_name in CASES[name, named]]
    kinds = {kind for kind, _ in found}
    allowed = {"ok", "refused"} if name in PARTLY else {"refused" if name in REFUSED else "ok"}
    assert kinds <= allowed, found


def test_what_is_partly_refused_is_partly_written() -> None:
    for name in PARTLY:
        listed = (case for (n, _), some in CASES.items() if n == name for case in some)
        kinds = {outcome(op, type(op).samples[n], named)[0] for op, n, named in listed}
        assert kinds == {"ok", "refused"}, name


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_model_runs(batch: int | str) -> None:
    graph = import_model(mlp(batch), chosen_options())
    x = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    (found,), wanted = run_text(stablehlo_text(graph), [x]), interpret(graph, {"x": x})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["Eigen", "If", "Loop", "LSTM", "Moments"])
def test_extents_of_nothing(name: str) -> None:
    """Two results may be one value then, and a loop may have no step."""
    for op, number, _ in CASES[name, True]:
        graph = sample_graph(op, type(op).samples[number])[0]
        graph = graph.substitute(dict.fromkeys(graph.dims, 0))
        feeds = random_feeds({n: graph.types[n] for n in graph.inputs}, {})
        found = run_text(export_stablehlo(graph), [feeds[n] for n in graph.inputs])
        wanted = interpret(graph, feeds)
        for y, output in zip(found, graph.outputs, strict=True):
            np.testing.assert_allclose(y, wanted[output], rtol=1e-5, atol=1e-6)
