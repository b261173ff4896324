"""Scatter-adds compared with torch's index_add and scatter_add:
``python -m benchmarks.libraries.scatters``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import click
import numpy as np
import torch

from benchmarks.irregular.case import Array, Feeds
from benchmarks.libraries.rows import Row, compiled, row, show

WIDTHS = (1, 3, 16, 64, 256)
KINDS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "a permutation": (4096, 4096),
        "duplicates": (256, 16_384),
        "few into many": (1 << 16, 256),
        "beyond the caches": (1 << 17, 1 << 17),
    }
)
"""Numbers of rows, and of updated rows."""

MOST = 1 << 24
"""Maximum elements of a case."""


def rows() -> Iterator[Row]:
    """Rows of various lengths by index_add, single elements by scatter_add."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    types: tuple[tuple[str, Any], ...] = (("float", np.float32), ("int64", np.int64))
    for dtype, kind in types:
        for width in WIDTHS:
            graphs = _graphs(dtype, width)
            nets = [compiled(graph) for graph in graphs]
            for name, (n, k) in KINDS.items():
                if width * max(n, k) > MOST:
                    continue
                places = random.permutation(n) if n == k else random.integers(0, n, k)
                x, u = (random.random((e, width)).astype(kind) for e in (n, k))
                wide = np.ascontiguousarray(np.broadcast_to(places[:, None], (k, width)))
                ways = (
                    ("rows", places[:, None], partial(torch.index_add, *_tensors(x, places, u))),
                    ("elements", wide, partial(torch.scatter_add, *_tensors(x, wide, u))),
                )
                for net, (way, index, other) in zip(nets, ways, strict=True):
                    feeds: Feeds = {"x": x, "i": index, "u": u}
                    yield row(f"{dtype} {way} {width}", name, net, feeds, other)


def _graphs(dtype: str, width: int) -> tuple[str, str]:
    def graph(places: int, op: str) -> str:
        return (
            f"({dtype}[n, {width}] x, int64[k, {places}] i, {dtype}[k, {width}] u) => "
            f"({dtype}[n, {width}] y) {{ y = {op}(x, i, u) }}"
        )

    add = 'reduction = "add"'
    return graph(1, f"ScatterND<{add}>"), graph(width, f"ScatterElements<axis = 0, {add}>")


def _tensors(x: Array, places: Array, u: Array) -> tuple[Any, int, Any, Any]:
    return torch.from_numpy(x), 0, torch.from_numpy(places), torch.from_numpy(u)


@click.command()
def main() -> None:
    """ScatterND and ScatterElements that add."""
    show(rows(), ("torch",))


if __name__ == "__main__":
    main()
