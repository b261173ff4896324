"""NumPy implementations of scalar functions that NumPy lacks, in double precision."""

from __future__ import annotations

import math

import numpy as np

from modelcc.ir.types import Array

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """Gauss error function, in the dtype of ``x``."""
    values = np.asarray(x)
    return np.asarray(_erf(values.astype(np.float64)), dtype=np.float64).astype(values.dtype)


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` without overflow, in the dtype of ``x``."""
    values = np.asarray(x)
    wide = values.astype(np.float64)
    decay = np.exp(-np.abs(wide))
    result = np.where(wide >= 0, 1.0 / (1.0 + decay), decay / (1.0 + decay))
    return result.astype(values.dtype)


def rsqrt(x: Array) -> Array:
    """``1 / sqrt(x)``, in the dtype of ``x``."""
    values = np.asarray(x)
    return (1.0 / np.sqrt(values.astype(np.float64))).astype(values.dtype)


def power(a: Array, b: Array) -> Array:
    """``a ** b``; integers wrap around, and give 0 where the result would be a fraction."""
    base, exponent = np.asarray(a), np.asarray(b)
    if base.dtype.kind != "i":
        return np.power(a, b)
    whole = np.power(base, np.maximum(exponent, 0))
    unit = np.where(exponent & 1 == 1, base, 1)
    below = np.where(np.abs(base) == 1, unit, 0)
    return np.where(exponent < 0, below, whole).astype(base.dtype)
