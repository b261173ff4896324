"""Exported programs end where PyTorch raises: matrices without a factor, and what is asserted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import modelcc  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Of(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def logarithm(x: Any) -> Any:
    torch._assert_async((x >= 0).all(), "no logarithm below 0")
    return (x + 1).log()


def few(x: Any) -> Any:
    places = torch.nonzero(x)
    torch._check(places.shape[0] < 12)
    return places.sum()


def ones(x: Any) -> Any:
    count = x.sum().int().item()
    torch._check(count >= 1)
    torch._check(count < 10)
    return torch.ones(count)


EYES = torch.eye(3).repeat(2, 1, 1)
NEGATIVE, SINGULAR, MANY = EYES.clone(), EYES.clone(), EYES * 10
NEGATIVE[1, 1, 1] = -1
SINGULAR[0, 2, 2] = 0

CHECKED: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "cholesky": (
        torch.linalg.cholesky,
        NEGATIVE,
        "linalg.cholesky: the matrix is not positive-definite: 'failed_row' is 2",
    ),
    "inv": (
        torch.linalg.inv,
        SINGULAR,
        "linalg.inv: the matrix is singular: 'failed_row' is 3",
    ),
    "solve": (
        lambda x: torch.linalg.solve(x, x[..., :1]),
        SINGULAR,
        "linalg.solve: the matrix is singular: 'failed_row' is 3",
    ),
    "assertion": (logarithm, NEGATIVE, "no logarithm below 0: 'assertion' is 0"),
    "number": (ones, MANY, "is 60, but must be at most 9"),
    "count": (few, EYES + 1, "is 18, but must be"),
}


@pytest.mark.parametrize("name", CHECKED)
def test_a_run_ends_where_pytorch_raises(name: str) -> None:
    function, bad, said = CHECKED[name]
    model = Of(function)
    net = modelcc.compile(model, (EYES,), cache=None, optimize=1)
    for _ in range(2):
        np.testing.assert_allclose(net(EYES), model(EYES), rtol=1e-6)
        with pytest.raises(RuntimeError):
            model(bad)
        with pytest.raises(modelcc.RunError, match=re.escape(said)):
            net(bad)


def test_of_no_matrices_none_is_bad() -> None:
    shapes = ({0: torch.export.Dim("count", min=0, max=9)},)
    model = Of(torch.linalg.cholesky)
    net = modelcc.compile(model, (EYES,), dynamic_shapes=shapes, cache=None, optimize=1)
    assert net(EYES[:0]).shape == (0, 3, 3)
    with pytest.raises(modelcc.RunError, match="not positive-definite"):
        net(NEGATIVE)
