"""Functions of fixed-point numbers as gemmlowp computes them, on arrays of NumPy.

Numbers are i64 arrays of what ``bits`` hold, all but the sign fraction bits unless said otherwise.
"""

from __future__ import annotations

import numpy as np

from modelcc.ir.types import Array

POWERS = (1_672_461_947, 1_302_514_674, 790_015_084, 290_630_308, 39_332_535, 720_401, 242)
"""Powers of e to -1/4, -1/2, … -16."""

EIGHTH, THIRD = 1_895_147_668, 715_827_883
"""exp(-1/8) and 1/3."""

FIRST, SLOPE = 1_515_870_810, -1_010_580_540
"""48/17 and -32/17 with two bits before the point, of the first guess of a reciprocal."""


def high_product(a: Array, b: Array | int, bits: int = 32) -> Array:
    """The product to the nearest, halves up."""
    product = (a * b + (1 << (bits - 2))) >> (bits - 1)
    return np.minimum(product, (1 << (bits - 1)) - 1)


def quotient(a: Array, places: int) -> Array:
    """``a / 2^places`` to the nearest, halves away from zero."""
    half = (1 << places) >> 1
    return np.sign(a) * ((np.abs(a) + half) >> places)


def exponential(a: Array, integer_bits: int = 5, bits: int = 32) -> Array:
    """``exp`` of numbers that are not positive, with so many bits before the point.

    By its Taylor series around -1/8 for the last quarter, times powers of e for the other bits.
    """
    fraction = bits - 1 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    result = _last_quarter(rest << integer_bits, bits)
    left = rest - a
    for place, factor in zip(range(-2, integer_bits), POWERS, strict=False):
        chosen = (left >> (fraction + place)) & 1
        result = np.where(chosen, high_product(result, constant(factor, bits), bits), result)
    if integer_bits > 5:
        result = np.where(a < constant(-(1 << (36 - integer_bits)), bits), 0, result)
    return np.where(a == 0, (1 << (bits - 1)) - 1, result)


def constant(value: int, bits: int) -> int:
    """A constant of 32 bits, rounded."""
    return int(quotient(np.asarray(value), 32 - bits))


def _last_quarter(a: Array, bits: int) -> Array:
    """``exp`` of numbers from -1/4 on."""
    x = a + (1 << (bits - 4))
    x2 = high_product(x, x, bits)
    x3, x4 = high_product(x2, x, bits), high_product(x2, x2, bits)
    third = high_product(quotient(x4, 2) + x3, constant(THIRD, bits), bits)
    eighth = constant(EIGHTH, bits)
    return _fitted(eighth + high_product(x + quotient(third + x2, 1), eighth, bits), bits)


def _fitted(x: Array, bits: int) -> Array:
    """Saturated."""
    return np.clip(x, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _half_reciprocal(a: Array, bits: int) -> Array:
    """``2 / (1 + a)`` with two bits before the point, for a from 0 to 1, by Newton's method."""
    half = (a + (1 << (bits - 1))) >> 1
    x = constant(FIRST, bits) + high_product(half, constant(SLOPE, bits), bits)
    for _ in range(3):
        error = (1 << (bits - 3)) - high_product(half, x, bits)
        x = x + _fitted(high_product(x, error, bits) << 2, bits)
    return x


def logistic(a: Array, integer_bits: int, bits: int) -> Array:
    """``1 / (1 + exp(-a))`` of numbers with so many bits before the point."""
    below = exponential(-np.abs(a), integer_bits, bits)
    positive = _fitted(_half_reciprocal(below, bits) << 1, bits)
    negative = (1 << (bits - 1)) - 1 - positive
    return np.where(a == 0, 1 << (bits - 2), np.where(a > 0, positive, negative))


def tangent(a: Array, integer_bits: int, bits: int) -> Array:
    """``tanh`` of numbers with so many bits before the point."""
    below = exponential(-np.abs(a), integer_bits + 1, bits)
    size = _fitted((_half_reciprocal(below, bits) - (1 << (bits - 3))) << 2, bits)
    return np.where(a == 0, 0, np.where(a > 0, size, -size))
