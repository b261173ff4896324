"""Finite differences of functions of tensors, and sums without the array functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modelcc import Tensor
from modelcc.ir.types import Array
from modelcc.ops.reduce import ReduceSum


def differences(function: Callable[[Tensor], Any], x: Array, by: float = 1e-6) -> Array:
    """Central differences of a float by every element of ``x``."""
    slopes = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        values: list[float] = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * by
            values.append(float(function(Tensor(moved))))
        slopes[place] = (values[0] - values[1]) / (2 * by)
    return slopes


def total(x: Tensor) -> Tensor:
    """The sum of all elements."""
    return x.result(ReduceSum(tuple(range(x.ndim)), False), x)
