"""Histograms, segments, windows at random places and searches give what PyTorch gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelcc.runtime.errors import RunError
from tests.frontends.torch.comparison import check, compiled, torch

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.randn(6, 5)
LINE = torch.tensor([-1.0, 0.0, 0.25, 1.0, 2.0, float("nan"), 3.0, 0.999])
EDGES = torch.tensor([-1.0, 0.0, 0.3, 1.0])
WEIGHTS = torch.rand(8)
COUNTS = torch.tensor([3, 0, 1, 3, 3])
DATA = torch.tensor([[1.0, 2.0], [float("nan"), 3.0], [4.0, -5.0], [6.0, 0.0], [7.0, 1.0]])

HISTOGRAMS: dict[str, Any] = {
    "counts": (lambda x: torch.histc(x, 4, -2.0, 2.0), X),
    "counts of all": (lambda x: torch.histc(x, 7), X),
    "of what is alike": (lambda x: torch.histc(x, 3), torch.ones(4)),
    "of nothing": (lambda x: tuple(torch.histogram(x, 3)), torch.zeros(0)),
    "edges": (lambda x: tuple(torch.histogram(x, 5)), X),
    "a range": (lambda x: tuple(torch.histogram(x, 5, range=(-1.0, 1.0), density=True)), X),
    "a range of one number": (lambda x: tuple(torch.histogram(x, 2, range=(1.0, 1.0))), X),
    "given edges": (lambda x, e, w: tuple(torch.histogram(x, e, weight=w)), LINE, EDGES, WEIGHTS),
    "columns": (lambda x: torch.histogramdd(x[:, :2], [2, 3])[0], X),
    "column edges": (lambda x, e: torch.histogramdd(x[:, :2], [e, e], density=True)[0], X, EDGES),
    "integers": (lambda x: torch.bincount(x, minlength=2), COUNTS),
    "weights": (lambda x, w: torch.bincount(x, w), COUNTS, WEIGHTS[:5]),
}
REDUCTIONS = ("sum", "mean", "max", "min", "prod")


@pytest.mark.parametrize("case", HISTOGRAMS.values(), ids=HISTOGRAMS.keys())
def test_histograms(case: Any) -> None:
    check(*case)


@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_segments(reduction: str, initial: float | None) -> None:
    def lengths(x: Any, n: Any) -> Any:
        return torch.segment_reduce(x, reduction, lengths=n, initial=initial, unsafe=True)

    def offsets(x: Any, o: Any) -> Any:
        return torch.segment_reduce(x, reduction, offsets=o, initial=initial, unsafe=True)

    check(lengths, DATA, torch.tensor([2, 0, 3]))
    check(offsets, DATA, torch.tensor([0, 2, 2, 5]))


@pytest.mark.parametrize("edges", [4, 100], ids=("few", "many"))
@pytest.mark.parametrize("right", [False, True])
def test_searches(edges: int, right: bool) -> None:
    rows = torch.sort(torch.randint(0, 30, (3, edges)).float())[0]
    values = torch.randint(-2, 33, (3, 7)).float()
    values[0, 0] = float("nan")
    check(lambda e, v: torch.searchsorted(e, v, right=right), rows, values)
    check(lambda e, v: torch.bucketize(v, e[0], right=right), rows, values)


@pytest.mark.parametrize("lead", [(2, 3), (3,)], ids=("batch", "single"))
def test_windows_at_given_places(lead: tuple[int, ...]) -> None:
    function = torch.nn.functional.fractional_max_pool2d_with_indices
    samples = torch.rand(lead[0] if len(lead) > 1 else 1, 3, 2)

    def pool(x: Any, u: Any) -> Any:
        return function(x, (2, 3), output_size=(3, 4), _random_samples=u)

    check(pool, torch.randn(*lead, 7, 9), samples)
    deep = torch.nn.functional.fractional_max_pool3d_with_indices
    check(
        lambda x, u: deep(x, 2, output_size=(2, 3, 1), _random_samples=u),
        torch.randn(2, 3, 5, 6, 4), torch.rand(2, 3, 3),
    )  # fmt: skip


def test_draws_without_replacement_are_different_and_possible() -> None:
    chances = torch.tensor([[0.0, 1.0, 2.0, 0.0, 5.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    found = compiled(lambda p: torch.multinomial(p, 3), (chances,))(chances.numpy())
    assert sorted(found[0]) == [1, 2, 4]
    assert len(set(found[1])) == 3
    many = compiled(lambda p: torch.multinomial(p[0], 4000, replacement=True), (chances,))
    shares = np.bincount(many(chances.numpy()), minlength=5) / 4000
    np.testing.assert_allclose(shares, [0, 1 / 8, 2 / 8, 0, 5 / 8], atol=0.04)


NEGATIVE: dict[str, Any] = {
    "gather": lambda x, i: x.gather(1, i),
    "scatter": lambda x, i: x.scatter(1, i, 1.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i, x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(1, i, x, "amax"),
    "bincount": lambda x, i: torch.bincount(i[0]),
}


@pytest.mark.parametrize("function", NEGATIVE.values(), ids=NEGATIVE.keys())
def test_indices_below_zero_are_refused_as_by_torch(function: Any) -> None:
    good, bad = torch.zeros(6, 5, dtype=torch.int64), torch.full((6, 5), -1)
    net = compiled(function, (X, good))
    net(X.numpy(), good.numpy())
    with pytest.raises(RuntimeError):
        function(X, bad)
    with pytest.raises(RunError, match="is outside of"):
        net(X.numpy(), bad.numpy())


OTHERS: dict[str, Any] = {
    "nonzero_static": (lambda x: torch.nonzero_static(x, size=4, fill_value=-7), COUNTS),
    "nonzero_static cut": (lambda x: torch.nonzero_static(x, size=2), X),
    "pdist": (lambda x: torch.pdist(x), X),
    "hash": (lambda x: (torch.hash_tensor(x).view(torch.int64),
                        torch.hash_tensor(x, 1, keepdim=True).view(torch.int64)), X),
    "cut and repeated": (lambda x: torch.nn.functional.pad(x[None], (-3, 4), mode="replicate"), X),
    "renormed": (lambda w, i: torch.nn.functional.embedding(i, w.clone(), max_norm=1.0), X,
                 torch.tensor([0, 2, 2])),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS.keys())
def test_others(case: Any) -> None:
    check(*case)
