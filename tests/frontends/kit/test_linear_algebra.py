"""Factors of matrices, compiled, against NumPy's and the definitions, with hostile operands."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import modelcc
from modelcc.frontends.kit import linear_algebra as la
from modelcc.frontends.kit.matrices import identity, swapped
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.types import Array, TensorType, dtype_of
from modelcc.ops.arithmetic import Value
from tests.machines import chosen_options

Function = Callable[..., Sequence[Value]]
SIDES = (1, 2, 5, 17, 64)
ACCURACY = {"float32": 2e-4, "float64": 1e-11}


def run(function: Function, *operands: Array, cpu: str = "") -> list[Array]:
    """The results of ``function``, compiled for these operands."""
    build = GraphBuilder("algebra")
    types = [TensorType(x.shape, dtype_of(x)) for x in operands]
    values = [Value(build, build.input(f"x{n}", t)) for n, t in enumerate(types)]
    graph = build.build([y.name for y in function(*values)])
    chosen = cpu or chosen_options().cpu
    found = modelcc.compile(graph, cache=None, optimize=0, cpu=chosen)(*operands)
    return list(found) if isinstance(found, tuple) else [found]


def random(*shape: int, dtype: str = "float64") -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def ill_conditioned(side: int) -> Array:
    """Singular values from 1 to 1e-10."""
    (u, _), (v, _) = (np.linalg.qr(random(side, side + n)[:, :side]) for n in (0, 1))
    return (u * np.logspace(0, -10, side)) @ v


def near(found: Array, wanted: Array, dtype: str) -> None:
    limit = ACCURACY[dtype] * max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=limit)


def transposed(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def whole_svd(x: Value) -> Sequence[Value]:
    return la.svd(x, True, {})


def check_svd(x: Array) -> None:
    dtype, least = str(x.dtype), min(x.shape[-2:])
    u, values, v = run(whole_svd, x)
    near(values, np.linalg.svd(x, compute_uv=False), dtype)
    near((u[..., :least] * values[..., None, :]) @ v[..., :least, :], x, dtype)
    for square in (transposed(u) @ u, v @ transposed(v)):
        near(square, np.broadcast_to(np.eye(square.shape[-1]), square.shape), dtype)


@pytest.mark.parametrize("dtype", ACCURACY)
@pytest.mark.parametrize("side", SIDES)
def test_singular_values(side: int, dtype: str) -> None:
    check_svd(random(2, side, side, dtype=dtype))


@pytest.mark.parametrize(
    "x",
    [random(3, 2, 7), random(9, 4), np.zeros((3, 5)), np.ones((4, 4)), ill_conditioned(40),
     np.diag([1e-200, 1e-201, 0]), 1e200 * random(3, 3), np.diag([1.0, -1, 1, -1]),
     np.zeros((0, 3, 3)), np.zeros((3, 0))],
    ids=["wide", "tall", "zero", "rank 1", "ill", "tiny", "huge", "equal", "none", "empty"],
)  # fmt: skip
def test_singular_values_of_odd_matrices(x: Array) -> None:
    check_svd(x)


@pytest.mark.parametrize("dtype", ACCURACY)
@pytest.mark.parametrize("side", SIDES)
def test_eigenvalues(side: int, dtype: str) -> None:
    x = random(2, side, side, dtype=dtype)
    x = x + transposed(x)
    values, vectors = run(lambda x: la.eigh(x, True), np.tril(x))
    near(values, np.linalg.eigvalsh(x), dtype)
    near((vectors * values[..., None, :]) @ transposed(vectors), x, dtype)
    upper, _ = run(lambda x: la.eigh(x, False), np.triu(x))
    near(upper, values, dtype)


@pytest.mark.parametrize("dtype", ACCURACY)
@pytest.mark.parametrize("side", SIDES)
def test_systems(side: int, dtype: str) -> None:
    a = (random(2, side, side) / side**0.5 + 2 * np.eye(side)).astype(dtype)
    b = random(2, side, 3, dtype=dtype)

    def solved(a: Value, b: Value) -> Sequence[Value]:
        packed, pivots, _ = la.results(la.Lu(), a)
        ways = (la.solved_by_lu(packed, pivots, b, turned) for turned in (False, True))
        return (*ways, la.determinant(a), *la.sign_and_logarithm(a))

    straight, turned, determinant, sign, logarithm = run(solved, a, b)
    near(a @ straight, b, dtype)
    near(transposed(a) @ turned, b, dtype)
    near(determinant, np.linalg.det(a), dtype)
    near(sign, np.linalg.slogdet(a)[0], dtype)
    near(logarithm, np.linalg.slogdet(a)[1], dtype)


@pytest.mark.parametrize("dtype", ACCURACY)
@pytest.mark.parametrize("side", SIDES)
def test_factors(side: int, dtype: str) -> None:
    x = random(2, side, side, dtype=dtype)
    positive = x @ transposed(x) + np.eye(side, dtype=dtype)

    def factors(x: Value) -> Sequence[Value]:
        return (*la.cholesky(x), la.cholesky(x, False)[0], *la.qr(x, False))

    lower, info, upper, q, r = run(factors, positive)
    near(lower, np.linalg.cholesky(positive), dtype)
    near(transposed(upper), lower, dtype)
    near(q @ r, positive, dtype)
    near(transposed(q) @ q, np.broadcast_to(np.eye(side), q.shape), dtype)
    assert not info.any()


def test_exponential() -> None:
    x = random(4, 4)
    (found,) = run(lambda x: [la.exponential(x)], x - transposed(x))
    near(found @ transposed(found), np.eye(4), "float64")
    (found,) = run(lambda x: [la.exponential(x)], np.array([[0.0, 300.0], [0.0, 1.0]]))
    near(found, np.array([[1, 300 * (np.e - 1)], [0, np.e]]), "float64")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the processor's registers are those")
def test_sums_of_more_operands_than_registers() -> None:
    """The powers of an exponential are summed in products of 15 operands, for 16 registers."""
    x = random(4, 4)
    (found,) = run(lambda x: [la.exponential(x)], x - transposed(x), cpu="x86-64-v2")
    near(found @ transposed(found), np.eye(4), "float64")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_end(value: float) -> None:
    """They go into the results, and no iteration waits for them."""
    x = random(3, 3)
    x[1, 2] = x[2, 1] = value

    def everything(x: Value) -> Sequence[Value]:
        packed, pivots, info = la.results(la.Lu(), x)
        inverse = la.solved_by_lu(packed, pivots, identity(x, 3, 3))
        return (*whole_svd(x), *la.eigh(x, True), *la.qr(x, True), *la.cholesky(x), inverse, info,
                la.exponential(x), swapped(x))  # fmt: skip

    found = run(everything, x)
    assert np.isnan(found[1]).any() and np.isnan(found[3]).any() and np.isnan(found[7]).all()


def test_singular_systems_are_infinite() -> None:
    def inverse(x: Value) -> Sequence[Value]:
        packed, pivots, info = la.results(la.Lu(), x)
        return la.solved_by_lu(packed, pivots, identity(x, 2, 2)), info

    found, info = run(inverse, np.array([[[1.0, 2], [2, 4]], [[0, 0], [0, 0]], [[1, 0], [0, 1]]]))
    assert not np.isfinite(found[:2]).all(axis=(-1, -2)).any() and info.tolist() == [2, 1, 0]
    np.testing.assert_array_equal(found[2], np.eye(2))
