"""A share of the samples of torch's own database of operators, by its own tolerances."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from conformance.torch_database import Half, Share, label  # noqa: E402
from conformance.torch_gradients import GRADIENTS  # noqa: E402
from conformance.torch_ops import FORWARD  # noqa: E402

SHARE = 29
"""Entries of which the first sample is tried: one in this many, of those that are whole."""
REFUSED = (
    *("chalf", "allclose", "equal", "item"),
    *("jiterator_unary", "jiterator_binary", "jiterator_binary_return_by_ref"),
)
"""Narrow complex numbers, what has no tensor as its result, and what is for GPUs."""
KINDS = ("UnaryUfuncInfo", "BinaryUfuncInfo")


def _tried(half: Half) -> list[Any]:
    found = [op for op in half.entries("") if type(op).__name__ in KINDS]
    return [op for op in found if label(op) not in REFUSED][::SHARE]


@pytest.mark.parametrize("op", _tried(FORWARD), ids=label)
def test_samples_agree(op: Any) -> None:
    (_, sample), *_ = FORWARD.samples(op, Share())
    assert FORWARD.attempt(op, [sample]).startswith("passed")


@pytest.mark.parametrize("op", _tried(GRADIENTS), ids=label)
def test_gradients_agree(op: Any) -> None:
    (_, sample), *_ = GRADIENTS.samples(op, Share())
    assert GRADIENTS.attempt(op, [sample]).startswith("passed")
