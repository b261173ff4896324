"""Recurrent networks through ``torch.compile``, with their gradients.

Their operators have no kernel of PyTorch's, so what runs is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from modelcc.torch import backend, explain  # noqa: E402

LSTM, GRU = torch.nn.LSTM, torch.nn.GRU


@pytest.fixture(autouse=True)
def traced_networks() -> Iterator[None]:
    with torch._dynamo.config.patch(allow_rnn=True):
        yield
    torch._dynamo.reset()


def outcomes(network: Callable[..., Any], x: Any, params: list[Any]) -> list[Any]:
    """Results, and the gradients of something that depends on all of them."""
    y, ends = network(x)
    results = [y, *(ends if isinstance(ends, tuple) else (ends,))]
    loss = sum((n + r).sin().sum() for n, r in enumerate(results))
    return [*results, *torch.autograd.grad(loss, [x, *params])]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (LSTM, {"num_layers": 2, "batch_first": True}),
        (GRU, {"bidirectional": True, "bias": False}),
    ],
)
def test_results_and_gradients_are_those_of_eager_execution(kind: Any, options: Any) -> None:
    torch.manual_seed(0)
    own, x = kind(3, 5, **options), torch.randn(4, 6, 3, requires_grad=True)
    compiled = torch.compile(own, backend=backend, fullgraph=True)
    params = list(own.parameters())
    torch.testing.assert_close(outcomes(compiled, x, params), outcomes(own, x, params))


def test_a_network_that_is_not_traced_is_explained_with_the_remedy() -> None:
    network, x = LSTM(3, 5), torch.randn(4, 2, 3)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=False):
        (reason,) = explain(network, x).breaks
    assert "torch._dynamo.config.allow_rnn=True" in reason
    with torch.no_grad():
        assert not explain(LSTM(3, 5), x).breaks
