"""The order of axes in memory."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.frontends.torch.memory import inverted, memory_order  # noqa: E402

CASES: dict[str, tuple[Any, tuple[int, ...] | None]] = {
    "contiguous": (torch.empty(2, 3, 4), (0, 1, 2)),
    "transposed": (torch.empty(2, 3, 4).permute(2, 0, 1), (1, 2, 0)),
    "channels last": (torch.empty(2, 3, 4, 5, memory_format=torch.channels_last), (0, 2, 3, 1)),
    "single rows anywhere": (torch.empty_strided((1, 3, 1), (7, 1, 5)), (0, 1, 2)),
    "a part of a row": (torch.empty(2, 4)[:, :3], None),
    "every second": (torch.empty(4)[::2], None),
    "one element many times": (torch.empty(1).expand(4), None),
    "a number": (torch.tensor(1.0), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_order(name: str) -> None:
    tensor, order = CASES[name]
    assert memory_order(tensor) == order
    if order is not None:
        assert tensor.permute(order).is_contiguous()
        assert tensor.permute(order).permute(inverted(order)).shape == tensor.shape
