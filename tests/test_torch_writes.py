"""Functions that write to their arguments, by torch.compile: in place where nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.traced_graphs import compiled  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]


def added(x: Any, y: Any) -> Any:
    x.add_(y)
    return x.sum()


def swapped(x: Any, y: Any) -> None:
    t = x.clone()
    x.copy_(y)
    y.copy_(t)


def old(x: Any, y: Any) -> Any:
    before = x.clone()
    x.mul_(y)
    return before


def each_by_the_other(x: Any, y: Any) -> Any:
    x.add_(y)
    y.mul_(x)
    return x * y


def transposed(x: Any, y: Any) -> Any:
    x.t().add_(y)
    return x.sum()


def filled(x: Any, y: Any) -> None:
    x.zero_()
    x[0] = y[0]


def in_part(x: Any, y: Any) -> Any:
    x[1:] = y[1:]
    return x[:2] * 2


def turned(x: Any, y: Any) -> None:
    x.copy_(y.t())
    y.add_(1)


def returned(x: Any, y: Any) -> Any:
    x.mul_(y)
    return x, x.view(-1), x + 1


def given_too(x: Any, y: Any) -> Any:
    z = y * 2
    x.copy_(z)
    return z


IN_PLACE = (added, swapped, old, each_by_the_other, transposed, filled, in_part, turned)


def expect_same(function: Callable[..., Any], seen: list[Any], **options: Any) -> None:
    fast = compiled(function, seen, **options)
    ours, theirs = ([torch.randn(4, 4, generator=torch.Generator().manual_seed(n)) for n in (1, 2)]
                    for _ in range(2))  # fmt: skip
    for _ in range(3):
        found, wanted = fast(*ours), function(*theirs)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("function", IN_PLACE, ids=lambda f: f.__name__)
def test_arguments_are_changed_where_they_are(function: Callable[..., Any]) -> None:
    seen: list[Any] = []
    expect_same(function, seen)
    ((_, parts),) = seen
    assert parts.whole is not None and parts.whole.interface.in_place


@pytest.mark.parametrize("function", (returned, given_too), ids=lambda f: f.__name__)
def test_results_that_are_arguments_are_right(function: Callable[..., Any]) -> None:
    expect_same(function, [])


def test_named_extents_are_written_behind_the_call() -> None:
    expect_same(each_by_the_other, [], dynamic=True)


def test_what_pytorch_runs_reads_what_was_there_before() -> None:
    def with_fallback(x: Any, y: Any) -> Any:
        values = torch.linalg.eigvals(x @ y).abs().sort().values
        x.add_(y)
        return values, torch.nonzero(x > 0)

    expect_same(with_fallback, [])


class Counting(torch.nn.Module):
    """Gradients depend on buffers that the same call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(4))
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.inner(x - self.mean) / self.count


def test_gradients_are_those_of_what_was_there() -> None:
    ours, theirs = Counting(), Counting()
    theirs.load_state_dict(ours.state_dict())
    fast = compiled(ours)
    for _ in range(3):
        x = torch.randn(5, 4)
        fast(x).sum().backward()
        theirs(x).sum().backward()
    for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "RMSprop"])
def test_steps_of_optimizers_change_parameters_in_place(kind: str) -> None:
    seen: list[Any] = []
    models = [torch.nn.Linear(6, 5) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    first, second = (getattr(torch.optim, kind)(m.parameters(), lr=0.1) for m in models)
    fast = compiled(first.step, seen)
    for n in range(4):
        for model in models:
            for p in model.parameters():
                p.grad = torch.full_like(p, n - 1.5)
        fast()
        second.step()
        for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert all(parts.whole and len(parts.whole.interface.in_place) >= 2 for _, parts in seen)
