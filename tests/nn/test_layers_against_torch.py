"""Every layer beside PyTorch's of the same name, settings and parameters, in f64."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from modelcc import nn
from tests.nn.layer_cases import CASES, NORMS, Case

torch: Any = pytest.importorskip("torch")
against: Any = pytest.importorskip("tests.nn.against_torch")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layers_and_their_gradients(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of copies that PyTorch makes, and of masks of two kinds
        # PyTorch has 1 / 6 in f32 there.
        tolerance = 1e-7 if case.name == "Hardsigmoid" else against.TOLERANCE
        ours, theirs = case.layer(), case.layer(torch.nn)
        against.check_layer(ours, theirs, *case.inputs, tolerance=tolerance)


ALIKE = {
    *("ConstantPad2d", "ConstantPad3d", "ZeroPad1d", "ZeroPad3d", "ReflectionPad1d"),
    *("ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "CircularPad1d", "CircularPad3d"),
}
"""Layers that differ from one that is compared by their number of axes."""
ELSEWHERE = {
    *("Module", "ModuleList", "ModuleDict", "Sequential", "Parameter", "Buffer"),
    *("TransformerEncoder", "TransformerDecoder", "Dropout1d", "Dropout2d", "Dropout3d"),
    *("CosineSimilarity", "PairwiseDistance"),
}
"""What other tests are of."""


def test_every_layer_is_compared() -> None:
    layers = {n for n in nn.__all__ if isinstance(getattr(nn, n), type)} & set(dir(torch.nn))
    losses = {n for n in layers if n.endswith("Loss")}
    assert layers - {c.name for c in CASES} - ALIKE - ELSEWHERE - losses == set()


EVALUATED = [c for c in NORMS if "BatchNorm" in c.name or "track_running_stats" in c.kwargs]


@pytest.mark.parametrize("case", EVALUATED, ids=str)
def test_running_statistics_in_use(case: Case) -> None:
    ours, theirs = case.layer(), case.layer(torch.nn)
    if case.kwargs.get("track_running_stats", True):
        theirs.running_mean.uniform_(-1, 1)
        theirs.running_var.uniform_(0.5, 2)
    against.check_layer(ours.eval(), theirs.eval(), *case.inputs)
