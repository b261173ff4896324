"""Sizes are read as people write them, everywhere by the same rule."""

from __future__ import annotations

import pytest

from modelcc.ir.errors import ModelError
from modelcc.sizes import bytes_of


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("300", 300), ("64K", 65536), ("20 KiB", 20480), ("1.5 KiB", 1536), ("64KB", 64000),
        ("1M", 1 << 20), ("512MB", 512_000_000), ("2 m", 2 << 20), ("1GiB", 1 << 30), ("7b", 7),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["many", "", "1T", "-1K", "1..5M", "K"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ModelError, match=f"ram={text!r} is no size"):
        bytes_of(text, "ram=")
