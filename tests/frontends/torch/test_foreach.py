"""Operators on lists of tensors, which optimizers call, are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch.dynamo import BackendRequest, compiled_by  # noqa: E402
from modelcc.torch.partition import Parted  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
NUMBERS = [2.0, 3.0, 0.5]

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "sums": lambda x, y: (
        torch._foreach_add(x, y, alpha=2), torch._foreach_add(x, 2), torch._foreach_sub(x, NUMBERS),
    ),
    "products": lambda x, y: (
        torch._foreach_mul(x, y[2][0]), torch._foreach_div(x, NUMBERS),
        torch._foreach_addcmul(x, y, y, 0.3), torch._foreach_addcdiv(x, y, x, NUMBERS),
    ),
    "powers": lambda x, y: (
        torch._foreach_pow(2.0, x), torch._foreach_pow(x, NUMBERS), torch._foreach_pow(x, y),
        torch._foreach_sqrt(x), torch._foreach_reciprocal(y),
    ),
    "between": lambda x, y: (torch._foreach_lerp(x, y, 0.3), torch._foreach_lerp(x, y, y)),
    "norms": lambda x, y: (torch._foreach_norm(x), torch._foreach_norm(y, float("inf"))),
    "bounds": lambda x, y: (
        torch._foreach_maximum(x, 1.0), torch._foreach_minimum(x, NUMBERS),
        torch._foreach_maximum(x, y), torch._foreach_clamp_max(x, 0.7),
    ),
    "copies": lambda x, y: _copied([t * 1 for t in x], y),
    "written": lambda x, y: _written([t * 1 for t in x], y),
}  # fmt: skip


def _written(x: Any, y: Any) -> Any:
    torch._foreach_mul_(x, 2)
    torch._foreach_addcdiv_(x, y, y, value=0.1)
    return x


def _copied(x: Any, y: Any) -> Any:
    z = torch._foreach_clone(y)
    torch._foreach_zero_(x[:1])
    torch._foreach_copy_(x[1:], y[1:])
    return x, z


@pytest.mark.parametrize("name", CASES)
def test_lists_are_computed_as_by_eager(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, y = ([torch.rand(n) + 0.5 for n in (3, 1, 4)] for _ in range(2))
    seen: list[Parted] = []
    request = BackendRequest(
        {"threads": 1, "cache": None}, observer=lambda _, parts: seen.append(parts)
    )
    fast = torch.compile(CASES[name], backend=lambda m, e: compiled_by(request, m, e))
    torch.testing.assert_close(fast(x, y), CASES[name](x, y))
    assert all(parts.whole is not None for parts in seen) and seen


def test_a_step_of_an_optimizer_is_one_program() -> None:
    """With numbers as tensors, of which Dynamo multiplies and adds in one operator."""
    torch._dynamo.reset()
    seen: list[Parted] = []
    request = BackendRequest(
        {"threads": 1, "cache": None}, observer=lambda _, parts: seen.append(parts)
    )
    found: list[Any] = []
    for ours in (True, False):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(3))
        optimizer = torch.optim.Adam([weight], torch.tensor(0.1), foreach=False)
        step: Any = optimizer.step
        if ours:
            step = torch.compile(step, backend=lambda m, e: compiled_by(request, m, e))
        for _ in range(3):
            weight.grad = weight.detach().sin()
            step()
        found.append(weight.detach())
    torch.testing.assert_close(*found)
    assert all(parts.whole is not None for parts in seen) and seen
