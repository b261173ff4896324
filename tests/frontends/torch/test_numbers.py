"""Numbers among the arguments of torch.compile, of either sign, by one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.traced_graphs import compiled  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]

FUNCTIONS: dict[str, Callable[[Any, int], Any]] = {
    "arithmetic": lambda x, n: x * (3 * n - 1) + n,
    "roll": lambda x, n: x.roll(n),
    "floor division": lambda x, n: x + n // 3,
    "remainder": lambda x, n: x + n % 3,
    "extremes": lambda x, n: x + max(n, 1) + min(n, -1),
    "comparison": lambda x, n: torch.arange(3) > n,
    "diagonal": lambda x, n: torch.ones(3, 3).tril(n) + x,
    "full": lambda x, n: torch.full((3,), n) + x,
    "power": lambda x, n: x.abs() ** n,
    "results": lambda x, n: (x + n, n - 1, n // 2),
}
NUMBERS = (2, -2, -1, 5, -7, 3, 2**40, -(2**40))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph_takes_numbers_of_either_sign(name: str) -> None:
    function, x, graphs = FUNCTIONS[name], torch.randn(3), list[Any]()
    fast = compiled(function, graphs, dynamic=True)
    for n in NUMBERS:
        torch.testing.assert_close(fast(x, n), function(x, n), equal_nan=True)
    assert not any(parts.problems for _, parts in graphs)
    assert len(graphs) <= 3  # Dynamo itself asks for one for each side of a bound


def test_what_has_as_many_elements_as_such_a_number_says_runs_in_pytorch() -> None:
    def last(x: Any, n: int) -> Any:
        return x[n:] * 2 + n

    x, graphs = torch.randn(5), list[Any]()
    fast = compiled(last, graphs, dynamic=True)
    for n in (-1, -3, 2, -2, 4):
        torch.testing.assert_close(fast(x, n), last(x, n))
    reasons = {p.reason for _, parts in graphs for p in parts.problems}
    assert reasons == {"its size depends on a number that may be negative"}
