"""Functions of fixed-point numbers as gemmlowp computes them, for tables made at import.

Numbers are i64 arrays of i32 values, with 31 fraction bits unless said otherwise.
"""

from __future__ import annotations

import numpy as np

from modelcc.ir.types import Array

ONE = 2**31 - 1
"""1, or what is next below it."""


def high_product(a: Array, b: Array | int) -> Array:
    """``a b / 2^31`` to the nearest, halves up."""
    return (a * b + 2**30) >> 31


def quotient(a: Array, places: int) -> Array:
    """``a / 2^places`` to the nearest, halves away from zero."""
    half = (1 << places) >> 1
    return np.sign(a) * ((np.abs(a) + half) >> places)


def exponential(a: Array, integer_bits: int = 5) -> Array:
    """``exp`` of numbers that are not positive, with so many bits before the point.

    By its Taylor series around -1/8 for the last quarter, times powers of e for the other bits.
    """
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    result = _last_quarter(rest << integer_bits)
    left = rest - a
    for place, factor in zip(range(-2, integer_bits), _POWERS, strict=False):
        chosen = (left >> (fraction + place)) & 1
        result = np.where(chosen, high_product(result, factor), result)
    return np.where(a == 0, ONE, result)


_POWERS = (1_672_461_947, 1_302_514_674, 790_015_084, 290_630_308, 39_332_535, 720_401, 242)
"""Powers of e to -1/4, -1/2, … -16."""


def _last_quarter(a: Array) -> Array:
    x = a + (1 << 28)
    x2 = high_product(x, x)
    x3, x4 = high_product(x2, x), high_product(x2, x2)
    third = high_product(quotient(x4, 2) + x3, 715_827_883)
    return 1_895_147_668 + high_product(x + quotient(third + x2, 1), 1_895_147_668)
