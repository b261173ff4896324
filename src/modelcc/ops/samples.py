"""Samples of ops: short spellings of operand types, and concrete inputs for a sample."""

from __future__ import annotations

import numpy as np

from modelcc.ir.index import Index, Sym, evaluate, symbols
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import F32, Array, DType, TensorType

SIZES = (3, 8, 9, 5)
"""Sizes given to the named dimensions of a sample, in order of appearance."""


def tensor(*shape: Index | str, dtype: DType = F32) -> TensorType:
    """A row-major tensor type; strings name symbolic extents."""
    return TensorType(tuple(Sym(d) if isinstance(d, str) else d for d in shape), dtype)


def sample(*operands: TensorType | Array | None, **attributes: object) -> Sample:
    """A sample of an op with these attributes."""
    return Sample(operands, attributes)


def bounded(
    bounds: tuple[float, float], *operands: TensorType | Array | None, **attributes: object
) -> Sample:
    """A sample whose random numbers are within ``bounds``."""
    return Sample(operands, attributes, *bounds)


def scalar(value: float, dtype: DType = F32) -> Array:
    """An array without axes."""
    return np.asarray(value, dtype.numpy)


def vector(*values: float, dtype: DType = F32) -> Array:
    """An array of these numbers."""
    return np.asarray(values, dtype.numpy)


def sizes(op: Op, sample: Sample) -> dict[str, int]:
    """A number for every named dimension of the sample, the op being made from it."""
    shapes = [e for t in sample.operands if isinstance(t, TensorType) for e in t.shape]
    names = dict.fromkeys(name for e in shapes for name in sorted(symbols(e)))
    names |= dict.fromkeys(op.symbols())
    return {name: SIZES[i % len(SIZES)] for i, name in enumerate(names)}


def arrays(op: Op, sample: Sample, seed: int = 0) -> tuple[Array | None, ...]:
    """Operands of the sample: its arrays, and random ones for its types, within its bounds."""
    rng, dims = np.random.default_rng(seed), sizes(op, sample)
    return tuple(
        _random(rng, t, [evaluate(e, dims) for e in t.shape], sample)
        if isinstance(t, TensorType)
        else t
        for t in sample.operands
    )


def _random(rng: np.random.Generator, t: TensorType, shape: list[int], sample: Sample) -> Array:
    if t.dtype.is_float:
        return np.asarray(rng.uniform(sample.low, sample.high, shape)).astype(t.dtype.numpy)
    if not t.dtype.is_integer:
        return np.asarray(rng.integers(0, 2, shape)).astype(t.dtype.numpy)
    low = int(sample.low)
    low = max(low, 0) if t.dtype.kind == "uint" else low
    return np.asarray(rng.integers(low, int(sample.high) + 1, shape)).astype(t.dtype.numpy)
