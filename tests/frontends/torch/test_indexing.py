"""Reads and writes at indices give what PyTorch gives; what is out of range ends the run."""

from __future__ import annotations

from typing import Any

import pytest

from modelcc.ir.errors import RunError
from tests.frontends.torch.comparison import check, compare, compiled, torch

F = torch.nn.functional
X = torch.arange(60.0).reshape(3, 4, 5)
ROWS, COLUMNS = torch.tensor([2, 0, -1]), torch.tensor([[1], [-4]])
MASK = torch.arange(12).reshape(3, 4) % 3 == 1
TWICE = torch.tensor([1, 1, 0])
PLACES = torch.tensor([[[0, 1, 2, 2, 0], [2, 2, 1, 0, 0]]])
NAN = torch.tensor([float("nan"), 1.0, -1.0])
pytestmark = pytest.mark.filterwarnings("ignore")


def _put(index: Any) -> Any:
    def function(x: Any, v: Any, *i: Any) -> Any:
        y = x.clone()
        y[index(*i)] = v
        return y

    return function


CASES: dict[str, tuple[Any, ...]] = {
    "one tensor": (lambda x, i: x[:, i], X, ROWS),
    "two beside each other": (lambda x, i, j: x[:, i, j], X, ROWS, COLUMNS),
    "two apart": (lambda x, i, j: x[i, :, j], X, ROWS, COLUMNS),
    "a mask": (lambda x, m: x[m], X, MASK),
    "a mask and a tensor": (lambda x, m: x[m, torch.tensor(3)], X, MASK),
    "a mask of nothing": (lambda x, m: x[m], X, MASK & False),
    "index_select": (lambda x, i: (x.index_select(0, i.abs()), x[0, 0, 0].index_select(0, i[1])),
                     X, ROWS),
    "gather": (lambda x, i: x.gather(0, i), X, PLACES),
    "take": (lambda x, i: (x.take(i), torch.take_along_dim(x, i[:, :, :1].abs(), 1)), X, PLACES),
    "masked_select": (lambda x, m: x.masked_select(m[:, :, None]), X, MASK),
    "nonzero": (lambda m: (m.nonzero(), *m.nonzero(as_tuple=True), torch.argwhere(m)), MASK),
    "nonzero of a scalar": (lambda x: x.nonzero(), torch.tensor(3)),
    "where alone": (lambda m: (*torch.where(m), *torch.where(m.any())), MASK),
    "put": (_put(lambda i, j: (i, slice(None), j)), X, torch.ones(4), ROWS, COLUMNS),
    "put by one": (_put(lambda i: (slice(None), i)), X, -X[:, :3], ROWS),
    "put added": (lambda x, i: x.index_put((i,), x, accumulate=True), X, TWICE),
    "put by a mask": (_put(lambda m: (m,)), X, torch.tensor(-1.0), MASK),
    "put rows by a mask": (_put(lambda m: (m,)), X, torch.ones(1, 5), MASK),
    "put each by a mask": (_put(lambda m: (m,)), X, -torch.arange(20.0).reshape(4, 5), MASK),
    "masked_scatter": (lambda x, m, s: x.masked_scatter(m[:, :, None], s), X, MASK, -X),
    "index_add": (lambda x, i, s: x.index_add(0, i, s, alpha=2), X, TWICE, X),
    "index_fill": (lambda x, i: x.index_fill(1, i, 7.0), X, ROWS),
    "scatter": (lambda x, i, s: x.scatter(1, i, s), X, PLACES, -X),
    "scatter of a number": (lambda x, i: x.scatter(0, i, 9.0), X, PLACES),
    "scatter multiplied": (lambda x, i, s: x.scatter(0, i, s, reduce="multiply"), X, PLACES, X),
    "scatter_add": (lambda x, i, s: x.scatter_add(0, i, s), X, PLACES, X),
    "searchsorted": (lambda e, v: (torch.searchsorted(e, v), torch.bucketize(v, e, right=True)),
                     torch.tensor([-1.0, 1.0, 1.0, 2.0]), torch.cat([NAN, torch.tensor([3.0])])),
    "repeat_interleave": (lambda x, r: x.repeat_interleave(r, 0), X, torch.tensor([2, 0, 3])),
    "embedding": (lambda w, i: F.embedding(i, w), X[0], TWICE),
    **{f"a bag by {how}": (
        lambda w, i, o, how=how: F.embedding_bag(i, w, o, mode=how, padding_idx=1),
        X[0], torch.tensor([1, 2, 3, 0, 0, 1]), torch.tensor([0, 1, 1, 4]),
    ) for how in ("sum", "mean", "max")},
    "a read item": (lambda x, i: x[: torch.sym_max(i.item(), 0)] * 2, X,
                    torch.tensor(2, dtype=torch.int32)),
    "a float item": (lambda x, s: x * s.item(), X, torch.tensor([2.5])),
    "unique": (lambda x: torch.unique(x, return_inverse=True, return_counts=True),
               torch.tensor([[3, 1], [1, 2]])),
    "unique neighbours": (lambda x: torch.unique_consecutive(x, return_counts=True),
                          torch.tensor([1, 1, 2, 1, 1, 1])),
}  # fmt: skip
for how in ("sum", "prod", "mean", "amax", "amin"):
    for own in (True, False):
        CASES[f"scatter_reduce {how} {own}"] = (
            lambda x, i, s, how=how, own=own: x.scatter_reduce(0, i, s, how, include_self=own),
            X - 30, PLACES, torch.randn(3, 4, 5),
        )  # fmt: skip
        CASES[f"index_reduce {how} {own}"] = (
            lambda x, i, s, how=how, own=own: x.index_reduce(0, i, s, how, include_self=own)
            if how != "sum" else x,
            X - 30, TWICE, torch.randn(3, 4, 5),
        )  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_as_eager(case: tuple[Any, ...]) -> None:
    check(*case)


def test_nan_wins_among_updates() -> None:
    def function(x: Any, i: Any, s: Any) -> Any:
        return x.scatter_reduce(0, i, s, "amax"), x.scatter_reduce(0, i, s, "amin")

    check(function, torch.zeros(2), torch.tensor([1, 1, 0]), NAN)


def test_gradients_of_embeddings() -> None:
    def gradient(dy: Any, i: Any) -> Any:
        dense = torch.ops.aten.embedding_dense_backward
        return dense(dy, i, 4, -1, False), dense(dy, i, 4, 1, False), dense(dy, i, 4, -1, True)

    check(gradient, torch.randn(5, 3), torch.tensor([1, 3, 1, 0, 1]))


def test_named_extents() -> None:
    def function(x: Any, i: Any) -> Any:
        return (
            x[i],
            x.index_put((i,), x[:1]),
            x.gather(1, i[:, None]),
            x.scatter_add(0, i[:, None], x),
        )

    batch = torch.export.Dim("batch", min=2, max=64)
    net = compiled(function, [torch.randn(4, 5), torch.tensor([0, 1, 1, 0])], [{0: batch}] * 2)
    for n in (2, 7):
        compare(net, function, [torch.randn(n, 5), torch.randint(0, 2, (n,))])


@pytest.mark.parametrize(
    "function", [lambda x, i: x[i], lambda x, i: x.gather(0, i), lambda x, i: x.scatter(0, i, 1.0)]
)
def test_out_of_range(function: Any) -> None:
    net = compiled(function, [torch.randn(3), torch.tensor([0, 1])])
    with pytest.raises(RunError, match="index"):
        net(torch.randn(3).numpy(), torch.tensor([0, 3]).numpy())
