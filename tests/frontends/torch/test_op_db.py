"""A share of the samples of torch's own database of operators, by its own tolerances."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from conformance import torch_ops  # noqa: E402

SHARE = 29
"""Entries of which the first sample is tried: one in this many, of those that are whole."""
REFUSED = (
    *("complex", "polar", "cdouble", "cfloat", "chalf", "igamma", "igammac", "special.zeta"),
    *("special.airy_ai", "allclose", "equal", "item"),
)
"""Complex numbers, what has no tensor as its result, and functions that there are not."""
KINDS = ("UnaryUfuncInfo", "BinaryUfuncInfo")


def _tried() -> list[Any]:
    found = [op for op in torch_ops.entries("") if type(op).__name__ in KINDS]
    named = [op for op in found if torch_ops.label(op) not in REFUSED]
    return [op for op in named if not op.name.startswith("jiterator")][::SHARE]


@pytest.mark.parametrize("op", _tried(), ids=torch_ops.label)
def test_samples_agree(op: Any) -> None:
    index, sample = torch_ops.samples(op, 1)[0]
    outcome = torch_ops.Outcome(torch_ops.label(op), index, torch_ops.attempt(op, sample))
    assert outcome.passed, outcome
