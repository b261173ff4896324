"""Scatters, gathers and other data movement to computed positions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from benchmarks.irregular.case import Case, Feeds, f32


def _scatter(kind: str, reduction: str) -> Case:
    head = "g (float[n, 16] x, int64[k, {i}] i, float[k{u}] u) => (float[n, 16] y)"
    if kind == "ScatterElements":
        graph = head.format(i=16, u=", 16")
        body = f'y = ScatterElements<axis = 0, reduction = "{reduction}">(x, i, u)'
    else:
        rows = kind == "ScatterND rows"
        graph = head.format(i=1 if rows else 2, u=", 16" if rows else "")
        body = f'y = ScatterND<reduction = "{reduction}">(x, i, u)'

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        grid = np.stack([np.repeat(np.arange(n), 16), np.tile(np.arange(16), n)], 1)
        places = {
            "ScatterElements": np.stack([random.permutation(n) for _ in range(16)], 1),
            "ScatterND rows": random.permutation(n)[:, None],
            "ScatterND elements": random.permutation(grid),
        }[kind]
        updates = (n * 16,) if kind == "ScatterND elements" else (n, 16)
        return {"x": f32(random, n, 16), "i": places, "u": f32(random, *updates)}

    return Case(f"{graph} {{ {body} }}", feeds)


CASES: Mapping[str, Case] = MappingProxyType(
    {
        **{
            f"{kind} {reduction}": _scatter(kind, reduction)
            for kind in ("ScatterElements", "ScatterND rows", "ScatterND elements")
            for reduction in ("none", "add", "max")
        },
        "GatherND": Case(
            "g (float[n, 16] x, int64[k, 2] i) => (float[k] y) { y = GatherND(x, i) }",
            lambda r, n: {
                "x": f32(r, n, 16),
                "i": np.stack([r.integers(0, n, n), r.integers(0, 16, n)], 1),
            },
        ),
        "ReverseSequence": Case(
            "g (float[n, 4, 16] x, int64[4] l) => (float[n, 4, 16] y) "
            "{ y = ReverseSequence(x, l) }",
            lambda r, n: {"x": f32(r, n, 4, 16), "l": np.array([n, n // 2, 1, 3])},
        ),
        "Slice given": Case(
            "g (float[n, 64] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => "
            "(float[m, 64] y) { y = Slice(x, s, e, a, t) }",
            lambda r, n: {"x": f32(r, n, 64), "s": np.array([3]), "e": np.array([n - 1]),
                          "a": np.array([0]), "t": np.array([1])},
        ),
        "Tile": Case(
            "g (float[n, 16] x, int64[2] t) => (float[a, b] y) { y = Tile(x, t) }",
            lambda r, n: {"x": f32(r, n, 16), "t": np.array([3, 4])}, 64,
        ),
        "Tile elements": Case(
            "g (float[n, 1] x, int64[2] t) => (float[a, b] y) { y = Tile(x, t) }",
            lambda r, n: {"x": f32(r, n, 1), "t": np.array([1, 16])},
        ),
        "Tile middle": Case(
            "g (float[4, n, 1, 16] x, int64[4] t) => (float[a, b, c, d] y) { y = Tile(x, t) }",
            lambda r, n: {"x": f32(r, 4, n, 1, 16), "t": np.array([1, 1, 8, 1])}, 64,
        ),
        "Trilu": Case(
            "g (float[n, n] x) => (float[n, n] y) { y = Trilu<upper = 0>(x) }",
            lambda r, n: {"x": f32(r, n, n)}, 128,
        ),
        "Col2Im": Case(
            "g (float[1, 72, k] x, int64[2] s) => (float[1, 8, h, w] y) { b = Constant<value_ints ="
            " [3, 3]>() y = Col2Im<pads = [1, 1, 1, 1]>(x, s, b) }",
            lambda r, n: {"x": f32(r, 1, 72, n * 16), "s": np.array([n, 16])}, 64,
        ),
        "OneHot": Case(
            "g (int64[n] x, int64 d, float[2] v) => (float[n, k] y) { y = OneHot(x, d, v) }",
            lambda r, n: {"x": r.integers(0, 64, n), "d": np.array(64),
                          "v": np.array([0, 1], np.float32)},
        ),
    }
)  # fmt: skip
