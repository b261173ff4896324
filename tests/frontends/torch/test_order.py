"""Sorting, ranks, running totals and reductions give what PyTorch gives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontends.torch.comparison import check, compare, compiled, torch

ATEN = torch.ops.aten
NAN = float("nan")
X = torch.randn(3, 4, 5)
ODD = torch.tensor([[3.0, NAN, 1.0, 3.0], [-0.0, 2.0, 0.0, float("-inf")], [NAN, 5.0, NAN, 5.0]])
EQUAL = torch.tensor([[3, 1, 3, 2, 1], [0, 0, 0, 0, 0]])
BITS = ODD > 1
SCALAR = torch.tensor(1.5)
pytestmark = pytest.mark.filterwarnings("ignore")

ORDERS: dict[str, Any] = {
    "ascending": lambda x: torch.sort(x, dim=-1, stable=True),
    "descending": lambda x: torch.sort(x, dim=0, descending=True, stable=True),
    "argsort": lambda x: torch.argsort(x, dim=0, stable=True),
    "cummax": lambda x: torch.cummax(x, -1),
    "cummin": lambda x: torch.cummin(x, 0),
    "max": lambda x: (*torch.max(x, -1), torch.max(x), torch.amax(x, (0, 1))),
    "min": lambda x: (*torch.min(x, 0, keepdim=True), torch.min(x), torch.amin(x, 0)),
    "any and all of bits": lambda x: (ATEN._is_any_true(x > 1), ATEN._is_all_true(x > -9)),
    "any and all": lambda x: (x.any(), x.all(-1), x.any(0, keepdim=True)),
    "count": lambda x: (torch.count_nonzero(x), torch.count_nonzero(x, -1)),
}
NUMBERS: dict[str, Any] = {
    "best": lambda x: (torch.topk(x, 2, -1)[0], torch.topk(x, 1, 0, largest=False)[0]),
    "kth": lambda x: torch.kthvalue(x, 2, -1)[0],
    "median": lambda x: (torch.median(x), torch.median(x, -1)[0]),
    "argmax": lambda x: (x.argmax(), x.argmax(-1), x.argmin(0, keepdim=True)),
    "both": lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=0, keepdim=True)),
    "totals": lambda x: (x.sum(), x.sum(-1), x.sum((0, 1), keepdim=True), x.prod(0)),
    "running": lambda x: (x.cumsum(-1), x.cumprod(0), x.cumsum(0, dtype=torch.float64)),
}
FLOATS: dict[str, Any] = {
    "spread": lambda x: (x.var(), x.std(-1), x.var(0, correction=0), x.std((0, 1), correction=2)),
    "spread and mean": lambda x: (*torch.var_mean(x, -1), *torch.std_mean(x)),
    "exponents": lambda x: (x.logsumexp(-1), x.logcumsumexp(-1), x.logcumsumexp(0)),
    "norms": lambda x: tuple(torch.linalg.vector_norm(x, o, -1)
                             for o in (0, 1, 2, 3.5, -1, float("inf"), float("-inf"))),
    "without NaN": lambda x: (x.nansum(-1), x.nanmedian(-1)[0], x.nansum(), x.nanmean(0)),
    "means": lambda x: (x.mean(), x.mean(0), x.mean((0, -1), keepdim=True)),
    "quantile": lambda x: torch.quantile(x, 0.3, -1),
}  # fmt: skip
DATA = {"floats": X, "odd": ODD, "integers": EQUAL, "bools": BITS}


@pytest.mark.parametrize("x", DATA.values(), ids=DATA.keys())
@pytest.mark.parametrize("function", ORDERS.values(), ids=ORDERS.keys())
def test_orders(function: Any, x: Any) -> None:
    check(function, x)


@pytest.mark.parametrize("x", [X, ODD, EQUAL], ids=("floats", "odd", "integers"))
@pytest.mark.parametrize("function", NUMBERS.values(), ids=NUMBERS.keys())
def test_numbers(function: Any, x: Any) -> None:
    check(function, x)


@pytest.mark.parametrize("x", [X, ODD], ids=("floats", "odd"))
@pytest.mark.parametrize("function", FLOATS.values(), ids=FLOATS.keys())
def test_floats(function: Any, x: Any) -> None:
    check(function, x)


def test_most_frequent() -> None:
    for x in (X.round(), EQUAL, BITS):
        check(lambda x: (torch.mode(x, -1)[0], torch.mode(x, 0, keepdim=True)[0]), x)


def test_scalars() -> None:
    def function(x: Any) -> Any:
        return (*x.sort(), *x.topk(1), *x.cummax(0), x.cumsum(0), x.sum(0), *x.max(0), x.argmax(),
                *x.median(0), *x.kthvalue(1), x.logsumexp(0), x.std(correction=0))  # fmt: skip

    check(function, SCALAR)


def test_totals_of_bools_are_integers_and_of_nothing_neutral() -> None:
    check(lambda x: (x.sum(), x.prod(0), x.sum(-1, dtype=torch.float32), x.cumsum(0)), BITS)
    nothing = torch.zeros(2, 0)
    check(lambda x: (x.sum(-1), x.prod(-1), x.mean(), x.any(-1), x.all(-1), x.var(-1)), nothing)


def test_distances() -> None:
    def function(x: Any, y: Any) -> Any:
        return torch.cdist(x, y, 1.0), torch.cdist(x, y), torch.dist(x, y, 3)

    check(function, torch.randn(4, 3), torch.randn(4, 3))


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_gradients_of_distances(order: float) -> None:
    def function(dy: Any, x: Any, y: Any, own: Any) -> Any:
        apart, among = torch.cdist(x, y, order), torch.pdist(x, order)
        return (
            torch.ops.aten._cdist_backward(dy, x, y, order, apart),
            torch.ops.aten._pdist_backward(own, x, order, among),
        )

    x, y = torch.randn(4, 3), torch.randn(5, 3)
    y[1], x[3], y[2, 0] = x[1], x[2], x[0, 0]  # distances and coordinates that are 0
    check(function, torch.randn(4, 5), x, y, torch.randn(6))


def test_the_gradient_of_a_distance_of_one_row_is_0() -> None:
    def function(x: Any) -> Any:
        return torch.ops.aten._pdist_backward(torch.pdist(x), x, 2.0, torch.pdist(x))

    check(function, torch.randn(1, 3))


def test_gradients_of_no_distances_have_the_shape_of_what_they_are_of() -> None:
    def function(x: Any, y: Any) -> Any:
        return torch.ops.aten._cdist_backward(torch.cdist(x, y), x, y, 3.0, torch.cdist(x, y))

    check(function, torch.randn(3, 5), torch.randn(0, 4, 5))


def test_named_extents() -> None:
    def function(x: Any) -> Any:
        return (*x.sort(dim=0, stable=True), x.sum(0), x.mean(), x.var(0), x.argmax(0), x.cumsum(0),
                *x.cummax(0), x.median(0)[0], x.logsumexp(0))  # fmt: skip

    batch = torch.export.Dim("batch", min=3, max=64)
    net = compiled(function, [torch.randn(4, 5)], [{0: batch}])
    for n in (3, 5, 9):
        compare(net, function, [torch.randn(n, 5)])
