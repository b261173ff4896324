"""Single kernels as small ONNX models: inputs, reference results for some rows, and amount of
work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import erf, prod
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Reference = Callable[[Mapping[str, Array], slice], Array]
"""Reference results of some rows (second last axis), from inputs in f64."""

NAMES = {"f32": "float", "f16": "float16", "bf16": "bfloat16"}
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
TOLERANCES = {"f32": 1e-4, "f16": 4e-3, "bf16": 2e-2}
"""Relative to the largest magnitude of a result: sums are in another order, results are rounded."""


@dataclass(frozen=True)
class Case:
    """``peer`` names PyTorch's function; the work is ``operations``, and at least the bytes of
    inputs and results.  ``precision`` is that of f32 products."""

    name: str
    peer: str
    dtype: str
    node: str
    shapes: Mapping[str, tuple[int, ...]]
    result: tuple[int, ...]
    operations: float
    reference: Reference
    precision: str = "f32"

    @property
    def text(self) -> str:
        """The model as ONNX's own text."""
        kind = NAMES[self.dtype]
        taken = (f"{kind}{[*shape]} {name}" for name, shape in self.shapes.items())
        head = '<ir_version: 11, opset_import: ["" : 22, "com.microsoft" : 1]>'
        given = f"{kind}{[*self.result]} y"
        return f"{head} g ({', '.join(taken)}) => ({given}) {{ {self.node} }}"

    @property
    def bytes(self) -> int:
        """Bytes if each tensor is read or written once."""
        return BYTES[self.dtype] * sum(map(prod, (*self.shapes.values(), self.result)))

    def feeds(self) -> dict[str, Array]:
        """Deterministic numbers, cyclic with a prime period: no two rows of a matrix are equal."""
        rng, kind = np.random.default_rng(0), TYPES[self.dtype]
        return {
            name: np.resize(rng.standard_normal(PERIOD, np.float32).astype(kind), shape)
            for name, shape in self.shapes.items()
        }

    def _parts(self) -> tuple[slice, slice]:
        """The first and the last rows, which are compared."""
        rows = self.result[-2]
        return slice(0, min(32, rows)), slice(max(rows - 32, 0), rows)

    def differences(self, feeds: Mapping[str, Array], result: Array) -> str:
        """Description of errors in the compared rows; empty if correct."""
        tolerance = TOLERANCES[self.dtype]
        return "\n".join(
            f"rows {some.start} to {some.stop}: "
            + differences(result[..., some, :], self.reference(feeds, some), tolerance)
            for some in self._parts()
        )

    def error(self, feeds: Mapping[str, Array], result: Array) -> float:
        """The largest error in the first and the last rows, relative to the largest magnitude."""
        worst = 0.0
        for some in self._parts():
            wanted = self.reference(feeds, some)
            found = result[..., some, :].astype(np.float64)
            difference = float(np.abs(found - wanted).max()) / float(np.abs(wanted).max())
            worst = max(worst, difference if np.isfinite(difference) else np.inf)
        return worst


def differences(found: Array, wanted: Array, tolerance: float) -> str:
    """The number of elements beyond the relative tolerance, with an example."""
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    far = ~(np.abs(found - wanted) <= tolerance * np.abs(wanted).max(initial=0.0))
    places = np.argwhere(far)
    if not len(places):
        return "as wanted"
    first, last = (tuple(map(int, place)) for place in (places[0], places[-1]))
    lost, none = int((~np.isfinite(found)).sum()), int((found == 0).sum())
    return (
        f"{len(places)} of {far.size} differ, from {first} to {last}; {found[first]:.6g} for "
        f"{wanted[first]:.6g}, {found[last]:.6g} for {wanted[last]:.6g}; {lost} are not finite, "
        f"{none} are 0"
    )


PERIOD = 999_983
HEADS = 16
"""Attention heads."""


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def product(m: int, n: int, k: int, dtype: str) -> Case:
    """A matrix product."""

    def some(feeds: Mapping[str, Array], rows: slice) -> Array:
        return _wide(feeds["a"][rows]) @ _wide(feeds["b"])

    shapes = {"a": (m, k), "b": (k, n)}
    name, work = f"product {m}x{n}x{k} {dtype}", 2.0 * m * n * k
    return Case(name, "product", dtype, "y = MatMul(a, b)", shapes, (m, n), work, some)


def in_three(case: Case) -> Case:
    """By three TF32 products, which targets other than NVIDIA GPUs reject."""
    return replace(case, name=f"{case.name} tf32x3", precision="tf32x3")


def layer(m: int, n: int, k: int, dtype: str, residual: bool) -> Case:
    """A product with bias and a residual or GELU epilogue, as in models."""

    def some(feeds: Mapping[str, Array], rows: slice) -> Array:
        sums = _wide(feeds["a"][rows]) @ _wide(feeds["b"]) + _wide(feeds["c"])
        if residual:
            return sums + _wide(feeds["r"][rows])
        return sums * (1 + np.vectorize(erf)(sums / np.sqrt(2))) / 2

    shapes = {"a": (m, k), "b": (k, n), "c": (n,), **({"r": (m, n)} if residual else {})}
    last = "y = Add(s, r)" if residual else "y = Gelu(s)"
    node = f"p = MatMul(a, b) s = Add(p, c) {last}"
    name = f"{'residual' if residual else 'gelu'} {m}x{n}x{k} {dtype}"
    return Case(name, "layer", dtype, node, shapes, (m, n), 2.0 * m * n * k, some)


def attention(rows: int, keys: int, width: int, dtype: str, causal: bool = False) -> Case:
    """Multi-head attention with packed heads."""

    def some(feeds: Mapping[str, Array], some: slice) -> Array:
        q, k, v = (_wide(feeds[name]).reshape(1, -1, HEADS, width).swapaxes(1, 2) for name in "qkv")
        scores = q[..., some, :] @ k.swapaxes(-1, -2) / np.sqrt(width)
        if causal:
            seen = np.arange(keys) <= np.arange(rows)[some, None]
            scores = np.where(seen, scores, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = powers / powers.sum(-1, keepdims=True) @ v
        return mixed.swapaxes(1, 2).reshape(1, -1, HEADS * width)

    query, key = (1, rows, HEADS * width), (1, keys, HEADS * width)
    work = 4.0 * HEADS * rows * keys * width / (2 if causal else 1)
    how = f"<num_heads = {HEADS}, unidirectional = {int(causal)}>"
    node = f"y = com.microsoft.MultiHeadAttention {how} (q, k, v)"
    kind = "attention" if rows > 1 else "decode"
    name = f"{kind} {rows}x{keys}x{width} {dtype}{' causal' if causal else ''}"
    peer = "causal" if causal else "attention"
    return Case(name, peer, dtype, node, {"q": query, "k": key, "v": key}, query, work, some)


def softmax(rows: int, columns: int, dtype: str) -> Case:
    """Row-wise softmax."""

    def some(feeds: Mapping[str, Array], rows: slice) -> Array:
        x = _wide(feeds["x"][rows])
        powers = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    shape = (rows, columns)
    name = f"softmax {rows}x{columns} {dtype}"
    work = 5.0 * rows * columns
    return Case(name, "softmax", dtype, "y = Softmax(x)", {"x": shape}, shape, work, some)


def layer_norm(rows: int, columns: int, dtype: str) -> Case:
    """Row-wise layer normalisation, with scale and shift."""

    def some(feeds: Mapping[str, Array], rows: slice) -> Array:
        x, scale, shift = (_wide(feeds[name]) for name in ("x", "s", "t"))
        x = x[rows] - x[rows].mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale + shift

    shapes = {"x": (rows, columns), "s": (columns,), "t": (columns,)}
    node, name = "y = LayerNormalization(x, s, t)", f"layer norm {rows}x{columns} {dtype}"
    work = 8.0 * rows * columns
    return Case(name, "layer_norm", dtype, node, shapes, (rows, columns), work, some)


def transpose(rows: int, columns: int, dtype: str) -> Case:
    """A transposition, which reads and writes each element once."""

    def some(feeds: Mapping[str, Array], rows: slice) -> Array:
        return _wide(feeds["x"][:, rows].T)

    node, name = "y = Transpose(x)", f"transpose {rows}x{columns} {dtype}"
    shape, result, work = (rows, columns), (columns, rows), 2.0 * rows * columns
    return Case(name, "transpose", dtype, node, {"x": shape}, result, work, some)


def cases(size: str = "large") -> Iterator[Case]:
    """In order of priority; ``small`` ones also run on a CPU driver, ``medium`` ones where each
    access is checked; or ``all``."""
    if size in ("small", "all"):
        yield from (product(128, 64, 96, "f32"), attention(48, 48, 16, "f32", causal=True))
        yield from (attention(1, 64, 16, "f16"), softmax(64, 96, "f16"), layer_norm(8, 96, "f32"))
        yield from (layer(64, 40, 96, "f32", residual) for residual in (False, True))
    if size in ("medium", "all"):
        yield from (product(512, 512, 512, dtype) for dtype in ("bf16", "f16", "f32"))
        yield layer(2560, 1536, 768, "bf16", residual=False)
        yield from (product(100, 520, 4096, dtype) for dtype in ("f16", "f32"))
        yield from (
            in_three(product(*sizes, "f32")) for sizes in ((512, 512, 512), (100, 520, 4096))
        )
        yield from (attention(512, 512, 128, "bf16", causal) for causal in (False, True))
        yield from (attention(1, 2048, 128, "f16"), attention(512, 512, 64, "f32"))
        yield from (softmax(64, 4096, "f16"), layer_norm(64, 4096, "f32"))
        yield transpose(1000, 520, "f16")
    if size in ("large", "all"):
        yield from _large()


def _large() -> Iterator[Case]:
    yield product(4096, 4096, 4096, "bf16")
    yield from (attention(rows, rows, 128, "bf16") for rows in (4096, 16384))
    yield from (attention(rows, rows, 128, "bf16", causal=True) for rows in (4096, 16384))
    yield attention(1, 16384, 128, "f16")
    yield layer(4096, 3072, 768, "bf16", residual=False)
    yield from (layer(4096, 768, terms, "bf16", residual=True) for terms in (768, 3072))
    yield from (softmax(16384, 4096, dtype) for dtype in ("f32", "f16"))
    yield from (layer_norm(16384, 4096, dtype) for dtype in ("f32", "f16"))
    yield from (product(4096, 4096, 4096, dtype) for dtype in ("f16", "f32"))
    yield in_three(product(4096, 4096, 4096, "f32"))
    yield product(8192, 8192, 8192, "bf16")
    yield from (product(128, n, 4096, "f16") for n in (4096, 16384))
    yield product(128, 768, 3072, "f16")
    yield from (attention(4096, 4096, width, "f16") for width in (64, 256))
    yield attention(4096, 4096, 64, "f32", causal=True)
    yield softmax(16384, 1000, "bf16")
    yield from (transpose(8192, 8192, dtype) for dtype in ("f32", "f16"))
