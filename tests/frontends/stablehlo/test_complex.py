"""Complex numbers in StableHLO: orders, functions, triangular systems and Cholesky's factor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc.jax  # noqa: E402
from modelcc.ir.types import Array  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
jnp, linalg = jax.numpy, jax.lax.linalg


def numbers(*shape: int, seed: int = 0) -> Array:
    parts = np.random.default_rng(seed).normal(size=(2, *shape))
    return (parts[0] + 1j * parts[1]).astype(np.complex64)


def hermitian(*batch: int) -> Array:
    a = numbers(*batch, 4, 4)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + 4 * np.eye(4)).astype(np.complex64)


def agree(function: Any, *args: Array) -> None:
    """It is what jax computes."""
    found, wanted = modelcc.jax.jit(function, cache=None)(*args), jax.jit(function)(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_the_greater_is_found_by_parts() -> None:
    a, b = numbers(8), numbers(8, seed=1)
    b[:4] = np.real(a[:4]) + 1j * np.imag(b[:4])
    a[4], b[5] = np.nan, complex(0, np.nan)
    agree(lambda a, b: (jnp.maximum(a, b), jnp.minimum(a, b)), a, b)


def test_places_as_complex_numbers() -> None:
    agree(lambda x: x + jax.lax.broadcasted_iota(jnp.complex64, (3, 4), 1), numbers(3, 4))


FUNCTIONS = """
func.func @main(%y: tensor<9xcomplex<f32>>, %x: tensor<9xcomplex<f32>>)
    -> (tensor<9xcomplex<f32>>, tensor<9xcomplex<f32>>) {
  %a = stablehlo.atan2 %y, %x : tensor<9xcomplex<f32>>
  %b = stablehlo.cbrt %x : tensor<9xcomplex<f32>>
  return %a, %b : tensor<9xcomplex<f32>>, tensor<9xcomplex<f32>>
}
"""


def test_functions_that_jax_has_for_real_numbers_only() -> None:
    y, x = numbers(9), numbers(9, seed=1)
    pairs = (np.stack([np.real(z), np.imag(z)], -1) for z in (y, x))
    angle, root = (
        a[..., 0] + 1j * a[..., 1] for a in modelcc.compile(FUNCTIONS, cache=None)(*pairs)
    )
    np.testing.assert_allclose(np.tan(angle), y / x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(root, x ** (1 / 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(left: bool, lower: bool, unit: bool) -> None:
    a = numbers(2, 4, 4) + 3 * np.eye(4, dtype=np.complex64)
    b = numbers(2, 4, 3) if left else numbers(2, 3, 4)
    solve = partial(linalg.triangular_solve, left_side=left, lower=lower, unit_diagonal=unit)
    turns = [{}, {"transpose_a": True}, {"transpose_a": True, "conjugate_a": True}]
    agree(lambda a, b: [solve(a, b, **turn) for turn in turns], a, b)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factors(upper: bool) -> None:
    agree(partial(jnp.linalg.cholesky, upper=upper), hermitian(2))
    agree(partial(jnp.linalg.cholesky, upper=upper), -hermitian())
    agree(lambda a, b: jax.scipy.linalg.solve(a, b, assume_a="pos"), hermitian(), numbers(4, 2))


def test_reductions_and_sorts_by_both_parts() -> None:
    def ordered(x: Any) -> Any:
        first = x[0], jnp.real(x[1])
        return x.max(), x.min(0), x.prod(1), jnp.sort(x), jnp.argsort(x, 0), jnp.lexsort(first)

    x = numbers(3, 5)
    x[1, 2], x[2, 0] = np.real(x[1, 1]) + 2j, np.real(x[1, 0]) - 1j
    agree(ordered, x)


def test_sorts_put_nan_last() -> None:
    x = numbers(6)
    x[1], x[4] = np.nan, complex(1, np.nan)
    agree(lambda x: (jnp.sort(x), jnp.argsort(x)), x)
