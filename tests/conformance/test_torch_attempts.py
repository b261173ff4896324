"""What becomes of a model by both ways is told for what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from conformance.torch_models.attempt import outcomes  # noqa: E402
from conformance.torch_models.entries import Entry  # noqa: E402
from conformance.torch_models.outcome import PASSED, REFUSED, Outcome  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def _outcomes(function: Callable[[Any], Any]) -> list[Outcome]:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    found: list[Outcome] = []
    entry = Entry("a/model", "kind", lambda: (Model(), {"x": torch.linspace(1, 2, 5)}))
    outcomes(entry, found.append)
    return found


def test_what_a_model_draws_is_the_same_for_all() -> None:
    _, compiled = _outcomes(lambda x: x + torch.rand_like(x))
    assert compiled.reason == PASSED


def test_what_pytorch_does_not_trace_is_its_refusal() -> None:
    found = _outcomes(lambda x: x.view(7) if torch.compiler.is_compiling() else x * 2)
    assert [one.reason.split(":")[0] for one in found] == [REFUSED, REFUSED]


def test_a_wrong_result_is_wrong() -> None:
    found = _outcomes(lambda x: x * 3 if torch.compiler.is_compiling() else x * 2)
    assert all(one.reason.startswith("wrong: error 5.0e-01") for one in found)
