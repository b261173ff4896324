"""Conditions on sizes, as operands of operators, are computed in compiled code."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch.partition import Parted  # noqa: E402
from tests.traced_graphs import compiled  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]


def conditions(x: Any, y: Any) -> Any:
    rows, columns = x.shape[0], y.shape[0]
    masks = (
        rows >= 5,
        columns * 2 < rows,
        rows != columns + 1,
        torch.sym_not(rows // 2 <= columns),
    )
    return x.sum() + y.sum(), *(torch.full((2,), mask) for mask in masks)


def test_they_are_compiled() -> None:
    seen: list[tuple[str, Parted]] = []
    fast = compiled(conditions, seen, dynamic=True)
    for sizes in (4, 3), (7, 3), (7, 6), (2, 9), (9, 2):
        x, y = map(torch.ones, sizes)
        torch.testing.assert_close(fast(x, y), conditions(x, y))
    assert seen and not any(part.problems for _, part in seen)


def test_of_a_number_that_may_be_negative() -> None:
    def f(x: Any, n: int) -> Any:
        return x + torch.full((2,), n >= 3)

    fast = compiled(f, dynamic=True)
    for n in (2, 5, -4):
        torch.testing.assert_close(fast(torch.ones(2), n), f(torch.ones(2), n))
