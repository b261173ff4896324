"""Sorts and top-k compared with NumPy: ``python -m benchmarks.libraries.sorts``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import click
import numpy as np

from benchmarks.irregular.case import Array
from benchmarks.libraries.rows import Row, compiled, row, show

TYPES: Mapping[str, Any] = MappingProxyType(
    {"float": np.float32, "double": np.float64, "int32": np.int32, "int64": np.int64}
)
SIZES = ((1, 64), (1, 256), (1, 1024), (1, 16_384), (1, 1 << 18), (1, 1 << 20), (64, 1024))
BEST = (1, 10, 100)


def sorts() -> Iterator[Row]:
    """All of each row: with static or run-time length."""
    random = np.random.default_rng(0)
    for dtype in TYPES:
        for rows, n in SIZES:
            x = _numbers(random, dtype, rows, n)
            outputs = f"({dtype}[r, m] y, int64[r, m] j)"
            top = "y, j = TopK<largest = 0>(x, k)"
            given = f"({dtype}[{rows}, {n}] x) => {outputs} <int64[1] k = {{{n}}}> {{ {top} }}"
            late = f"({dtype}[r, n] x, int64[1] k) => {outputs} {{ {top} }}"
            feeds = {"x": x}
            for kind, graph in (("given", given), ("run time", late)):
                more = {} if kind == "given" else {"k": np.array([n])}
                other = partial(np.argsort, x, 1)
                yield row(f"{dtype} {kind}", f"{rows}x{n}", compiled(graph), feeds | more, other)


def best() -> Iterator[Row]:
    """The best few, and a quarter, of each row."""
    random = np.random.default_rng(0)
    for dtype in ("float", "int64"):
        for rows, n in ((1, 1024), (16, 1024), (1, 16_384), (16, 16_384), (1, 1 << 18)):
            x = _numbers(random, dtype, rows, n)
            for k in (*BEST, n // 4):
                graph = (
                    f"({dtype}[{rows}, {n}] x) => ({dtype}[r, m] y, int64[r, m] j) "
                    f"<int64[1] k = {{{k}}}> {{ y, j = TopK(x, k) }}"
                )
                other = partial(_best, x, k)
                yield row(f"{dtype} k = {k}", f"{rows}x{n}", compiled(graph), {"x": x}, other)


def _best(x: Array, k: int) -> tuple[Array, Array]:
    """Values and indices in order, by NumPy: partitioned, then sorted."""
    places = np.argpartition(x, x.shape[1] - k, 1)[:, -k:]
    values = np.take_along_axis(x, places, 1)
    order = np.argsort(values, 1)[:, ::-1]
    return np.take_along_axis(values, order, 1), np.take_along_axis(places, order, 1)


def _numbers(random: np.random.Generator, dtype: str, *shape: int) -> Array:
    kind = TYPES[dtype]
    if np.dtype(kind).kind == "f":
        return random.standard_normal(shape).astype(kind)
    limits = np.iinfo(kind)
    return random.integers(limits.min, limits.max, shape, kind)


@click.command()
def main() -> None:
    """TopK of all elements, and of the best."""
    show(sorts(), ("argsort",))
    show(best(), ("argpartition, sorted",))


if __name__ == "__main__":
    main()
