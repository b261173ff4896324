"""``reduce_precision``: fewer bits within a type, bit by bit as XLA has them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc.jax  # noqa: E402
from modelcc.ir.types import Array  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

FORMATS = [(5, 10), (8, 7), (4, 3), (3, 4), (2, 1), (1, 5), (8, 10), (5, 2), (8, 23), (10, 3)]


def numbers() -> Array:
    """Of every size, ties, and at the ends of formats."""
    generator = np.random.default_rng(0)
    scales = 10.0 ** generator.integers(-44, 38, 200)
    ends = [65504, 65520, 6.2e-5, 6e-5, 448, 464, 465, 240, 1.9375, 0.99, 1.5, 2.5, 3.4e38]
    special = [0.0, -0.0, np.nan, np.inf, -np.inf]
    return np.array([*generator.normal(size=200) * scales, *ends, *special], np.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_floats_are_rounded_as_xla_does(dtype: str) -> None:
    def reduced(x: Any) -> Any:
        return [jax.lax.reduce_precision(x, *form) for form in FORMATS]

    x = jax.numpy.array(numbers(), dtype)
    for found, wanted in zip(
        modelcc.jax.jit(reduced, cache=None)(x), jax.jit(reduced)(x), strict=True
    ):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
        np.testing.assert_array_equal(np.float32(found), np.float32(wanted))


def test_without_a_mantissa_numbers_are_powers_of_two() -> None:
    reduced = partial(jax.lax.reduce_precision, exponent_bits=5, mantissa_bits=0)
    x = numbers()[:-3]
    np.testing.assert_array_equal(modelcc.jax.jit(reduced, cache=None)(x), jax.jit(reduced)(x))
