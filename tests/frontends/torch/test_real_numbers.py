"""Numbers that are computed from sizes, as operands of operators, are computed in compiled code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import modelcc  # noqa: E402
from modelcc.torch.partition import Parted  # noqa: E402
from tests.traced_graphs import compiled  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]
SIZES = (4, 3), (7, 3), (7, 6), (2, 9), (9, 2)


def numbers(x: Any, y: Any) -> Any:
    rows, columns = x.shape[0], y.shape[0]
    ratio, root = rows / columns, math.sqrt(columns)
    return (
        x * ratio,
        y / root + 0.5 * rows,
        torch.full((2,), ratio - 1.0),
        torch.arange(3) >= ratio,
        torch.where(x > 1, x, ratio**0.5),
        (y**ratio).clamp(max(ratio, 1.5)),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_they_are_compiled(dtype: Any) -> None:
    seen: list[tuple[str, Parted]] = []
    fast = compiled(numbers, seen, dynamic=True)
    for sizes in SIZES:
        x, y = (torch.linspace(0.5, 2, n, dtype=dtype) for n in sizes)
        torch.testing.assert_close(fast(x, y), numbers(x, y))
    assert seen and not any(part.problems for _, part in seen)


def test_of_an_exported_program() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x * (x.shape[0] / y.shape[0]), y - y.shape[0] * 0.5

    dims = {0: torch.export.Dim("rows")}, {0: torch.export.Dim("columns")}
    net = modelcc.compile(
        Scaled(), (torch.ones(4), torch.ones(3)), dynamic_shapes=dims, cache=None, threads=1
    )
    for sizes in SIZES:
        x, y = (torch.linspace(0.5, 2, n) for n in sizes)
        for ours, theirs in zip(net(x, y), Scaled()(x, y), strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)


def test_pytorch_computes_those_that_it_gets() -> None:
    def f(x: Any, y: Any) -> Any:
        ratio = x.shape[0] / y.shape[0]
        return torch.nn.functional.leaky_relu(x * ratio - 2, ratio), y + ratio, ratio

    fast = compiled(f, dynamic=True)
    for sizes in SIZES:
        x, y = map(torch.ones, sizes)
        torch.testing.assert_close(fast(x, y), f(x, y))
