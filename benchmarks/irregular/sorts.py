"""Sorting, selection, prefix sums and Fourier transforms."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from scipy import fft

from benchmarks.irregular.case import Case, Feeds, f32

SUPPRESSION = (
    "g (float[1, n, 4] b, float[1, 1, n] s, int64[1] k, float[1] t, float[1] l) => (int64[m, 3] y) "
    "{ y = NonMaxSuppression(b, s, k, t, l) }"
)


def _boxes(random: np.random.Generator, n: int, most: int) -> Feeds:
    corner = f32(random, 1, n, 2)
    return {
        "b": np.concatenate([corner, corner + np.float32(0.05)], -1), "s": f32(random, 1, 1, n),
        "k": np.array([most]), "t": np.array([0.5], np.float32), "l": np.array([0.1], np.float32),
    }  # fmt: skip


def _top_k(part: int, rows: int) -> Case:
    graph = "g (float[r, n] x, int64[1] k) => (float[r, m] y, int64[r, m] j) { y, j = TopK(x, k) }"

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        return {"x": f32(random, rows, n), "k": np.array([n // part])}

    whole = (lambda f: np.argsort(f["x"], 1)) if part == 1 else None
    return Case(graph, feeds, 1024, library=whole)


def _few_of_columns(k: int) -> Case:
    graph = (
        "g (float[n, 64] x) => (float[a, 64] y, int64[a, 64] j) { k = Constant<value_ints = "
        f"[{k}]>() y, j = TopK<axis = 0, largest = 0>(x, k) }}"
    )
    return Case(graph, lambda r, n: {"x": f32(r, n, 64)})


def _transform(parts: int, onesided: int) -> Case:
    graph = (
        f"g (float[1, n, {parts}] x) => (float[1, m, 2] y) "
        f"{{ y = DFT<axis = 1, onesided = {onesided}>(x) }}"
    )

    def library(feeds: Feeds) -> object:
        x = feeds["x"]
        return fft.rfft(x[..., 0], axis=1) if parts == 1 else fft.fft(x.view(np.complex64)[..., 0])

    return Case(graph, lambda r, n: {"x": f32(r, 1, n, parts)}, 256, 17, library)


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "TopK n / 4": _top_k(4, 4),
        "TopK n / 64": _top_k(64, 4),
        "sort (TopK n)": _top_k(1, 1),
        "TopK 2 of 8": Case(
            "g (float[n, 8] x) => (float[n, 2] y, int64[n, 2] j) { k = Constant<value_ints = [2]>"
            "() y, j = TopK(x, k) }",
            lambda r, n: {"x": f32(r, n, 8)},
        ),
        "TopK 100": Case(
            "g (float[16, n] x) => (float[16, 100] y, int64[16, 100] j) { k = Constant<value_ints ="
            " [100]>() y, j = TopK(x, k) }",
            lambda r, n: {"x": f32(r, 16, n)},
        ),
        **{f"TopK {k} of columns": _few_of_columns(k) for k in (1, 5, 50)},
        **{
            f"Hardmax {name}": Case(
                f"g (float[{shape}] x) => (float[a, b] y) {{ y = Hardmax<axis = {axis}>(x) }}",
                lambda r, n, wide=wide: {"x": f32(r, *((n, 64) if wide else (64, n)))},
            )
            for name, shape, axis, wide in (
                ("short rows", "n, 64", 1, True), ("long rows", "64, n", 1, False),
                ("columns", "64, n", 0, False),
            )
        },
        "NonZero": Case(
            "g (float[n, 16] x) => (int64[2, m] y) { y = NonZero(x) }",
            lambda r, n: {"x": (r.random((n, 16)) > 0.5).astype(np.float32)},
        ),
        "Unique": Case(
            "g (int64[n] x) => (int64[m] y) { y = Unique(x) }",
            lambda r, n: {"x": r.integers(0, n, n)}, library=lambda f: np.unique(f["x"]),
        ),
        "Compress": Case(
            "g (float[n, 16] x, bool[n] c) => (float[m, 16] y) { y = Compress<axis = 0>(x, c) }",
            lambda r, n: {"x": f32(r, n, 16), "c": r.random(n) > 0.5},
        ),
        "CumSum": Case(
            "g (float[16, n] x, int64 a) => (float[16, n] y) { y = CumSum(x, a) }",
            lambda r, n: {"x": f32(r, 16, n), "a": np.array(1)},
        ),
        "NonMaxSuppression 100": Case(SUPPRESSION, lambda r, n: _boxes(r, n, 100)),
        "NonMaxSuppression all": Case(SUPPRESSION, lambda r, n: _boxes(r, n, 1 << 30)),
        "DFT real, half": _transform(1, 1),
        "DFT complex": _transform(2, 0),
    }
)  # fmt: skip
