"""Values that PyTorch's operators check are checked behind a compiled graph, which stays whole."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch.partition import Parted  # noqa: E402
from tests.traced_graphs import compiled  # noqa: E402

L = torch.linalg
P = torch.eye(3) * 4 + 1
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]


FUNCTIONS = {
    "cholesky": lambda x: L.cholesky(x).sum(),
    "inverse": lambda x: (x + 1, L.inv(x)),
    "solve": lambda x: L.solve(x, x.exp()),
    "many matrices": lambda x: L.inv(torch.stack([x, x + P])) @ L.cholesky(P + x * 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("trained", [False, True])
def test_graphs_are_whole_and_values_checked(name: str, trained: bool) -> None:
    seen: list[tuple[str, Parted]] = []
    function = FUNCTIONS[name]
    fast = compiled(function, seen)
    x = P.clone().requires_grad_(trained)
    torch.testing.assert_close(fast(x), function(x))
    assert not any(part.problems for _, part in seen)
    for wrong in (x.detach() * 0).requires_grad_(trained), x:
        said = error(function, wrong)
        assert error(fast, wrong) == said
        assert (said == "") == (wrong is x)


def test_an_operator_of_pytorch_in_between() -> None:
    def f(x: Any) -> Any:
        y = L.cholesky(x)
        return L.inv(torch.igamma(y.exp(), y.exp()).tril() + y)

    seen: list[tuple[str, Parted]] = []
    fast = compiled(f, seen)
    torch.testing.assert_close(fast(P), f(P))
    assert all("igamma" in p.operator for _, part in seen for p in part.problems)
    assert error(fast, -P) == error(f, -P) != ""


def error(function: Any, x: Any) -> str:
    try:
        function(x)
    except L.LinAlgError as raised:
        return str(raised)
    return ""
