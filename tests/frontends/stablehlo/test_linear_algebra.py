"""Calls of LAPACK in StableHLO: eigenvalues of any matrices, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc.jax  # noqa: E402
from modelcc.frontends.kit.errors import UnsupportedModel  # noqa: E402
from modelcc.ir.types import Array  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
jnp = jax.numpy


def matrices(dtype: str) -> Array:
    generator = np.random.default_rng(1)
    parts = generator.normal(size=(2, 2, 4, 4))
    return (parts[0] + 1j * parts[1] if dtype == "complex64" else parts[0]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_eigenvalues_and_their_vectors(dtype: str) -> None:
    a = matrices(dtype)
    fast = modelcc.jax.jit(lambda a: (*jnp.linalg.eig(a), jnp.linalg.eigvals(a)), cache=None)
    values, vectors, alone = map(np.asarray, fast(a))
    assert values.dtype == vectors.dtype == np.complex64
    np.testing.assert_allclose(a @ vectors, vectors * values[:, None, :], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), 1, rtol=1e-5)
    np.testing.assert_array_equal(alone, values)
    for found, wanted in zip(values, np.linalg.eigvals(a), strict=True):
        assert np.abs(found[:, None] - wanted).min(0).max() < 1e-5


@pytest.mark.parametrize(
    ("function", "dtype", "reason"),
    [
        (lambda a: jax.lax.linalg.eig(a), "float32", "eigenvectors of the left side"),
        (lambda a: jax.lax.linalg.schur(a), "float32", "Schur forms"),
        (lambda a: jnp.linalg.inv(a), "complex64", "factors of complex matrices"),
        (lambda a: jax.pure_callback(lambda x: x, a, a), "float32", "it calls Python"),
    ],
    ids=["left", "schur", "complex", "callback"],
)  # fmt: skip
def test_what_is_refused_says_why(function: Any, dtype: str, reason: str) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        modelcc.jax.compile(function, matrices(dtype), cache=None)
