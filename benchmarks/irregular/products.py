"""Products of floats with both operands given at run time, which read their matrix once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.irregular.case import Case, f32

CASES: Mapping[str, Case] = MappingProxyType(
    {
        "MatMul of a row": Case(
            "g (float[1, n] x, float[n, n] w) => (float[1, n] y) { y = MatMul(x, w) }",
            lambda r, n: {"x": f32(r, 1, n), "w": f32(r, n, n)}, 128,
        ),
        "MatMul of rows": Case(
            "g (float[4, 1, n] x, float[4, n, n] w) => (float[4, 1, n] y) { y = MatMul(x, w) }",
            lambda r, n: {"x": f32(r, 4, 1, n), "w": f32(r, 4, n, n)}, 128,
        ),
    }
)  # fmt: skip
