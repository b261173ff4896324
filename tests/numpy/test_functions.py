"""Functions of whole tensors against NumPy: joined, moved, contracted, ordered, counted."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import modelcc.numpy as mnp
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.tensor.declared import Graph
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.lazy import TracingError
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.tracing import jit

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 5)).astype(np.float32)
B = RNG.normal(size=(5,)).astype(np.float32)
S = RNG.normal(size=(3, 4, 4)).astype(np.float32)
M = RNG.normal(size=(4, 4))
V = np.array([3, 1, 2, 1, 0, 7])
P = S @ S.swapaxes(-1, -2) + 4 * np.eye(4, dtype=np.float32)

CASES: Mapping[str, tuple[tuple[str, tuple[Any, ...]], ...]] = MappingProxyType({
    "products": (
        ("einsum", ("ij,j->i", A, B)), ("einsum", ("...ij,...jk", S, S)), ("einsum", ("ii", M)),
        ("einsum", ("bij,jk,bkl->bil", S, S[0], S)), ("einsum", ("ij,ij->ij", A, A[:1])),
        ("tensordot", (A, A.T, 1)), ("tensordot", (S, S, ([1, 2], [2, 1]))), ("dot", (A, B)),
        ("dot", (A[:, :4], S)), ("vdot", (B, B)), ("inner", (A, A)), ("outer", (B, V)),
        ("kron", (A[:2, :2], A[:, :3])), ("cross", (A[:, :3], A[:, 1:4])), ("matmul", (S, S)),
        ("trace", (S[0],)), ("diagonal", (S, 1, 1, 2)), ("diag", (B,)), ("diag", (B, 2)),
        ("diag", (B, -1)), ("diag", (A, 1)),
    ),
    "moved": (
        ("pad", (A, 1, "edge")), ("pad", (A, (1, 2), "reflect")), ("pad", (A, ((1, 0), (0, 2)))),
        ("rot90", (A,)), ("rot90", (A, 2)), ("rot90", (A, 3)), ("roll", (A, 2)), ("flip", (A,)),
        ("roll", (A, (1, -1), (0, 1))), ("repeat", (A, 2)), ("repeat", (A, [1, 0, 2, 1], 0)),
        ("tile", (A, (2, 1, 3))), ("moveaxis", (S, 0, -1)), ("swapaxes", (S, 0, 1)),
        ("transpose", (S, (1, 2, 0))), ("triu", (S, 1)), ("tril", (A, -1)), ("ravel", (S,)),
        ("squeeze", (S[:1],)), ("expand_dims", (A, (0, 2))), ("broadcast_to", (B, (2, 5))),
        ("reshape", (S, (-1, 8))), ("flipud", (A,)), ("fliplr", (A,)),
    ),
    "joined": (
        ("vstack", ([B, B],)), ("hstack", ([A, A],)), ("column_stack", ([B, B],)),
        ("stack", ([A, A], 1)), ("concatenate", ([A, A], None)),
        ("concatenate", ([A, V[:5, None].T],)),
        ("split", (A, [1, 3])), ("array_split", (V, 4)), ("broadcast_arrays", (A, B)),
        ("meshgrid", (B, V)), ("atleast_2d", (B,)),
    ),
    "reduced": (
        ("median", (A, 1)), ("percentile", (A, 30)), ("average", (A, 1, B)), ("diff", (A, 2, 0)),
        ("count_nonzero", (V,)), ("where", (A > 0, A, 0)), ("clip", (A, -0.5, B)),
        ("round", (A, 2)), ("round", (V * 7, -1)), ("array_equal", (A, A)),
        ("allclose", (A, A + 1)),
    ),
    "ordered": (
        ("take", (A, V % 4, 0)), ("take", (A, [[0, 3]])),
        ("take_along_axis", (A, V[None, :5] % 4, 0)),
        ("searchsorted", (np.sort(B), A)), ("searchsorted", (np.array([1, 2, 2, 3]), V, "right")),
        ("digitize", (A, np.sort(B))), ("bincount", (V,)), ("bincount", (V, np.ones(6), 10)),
        ("histogram", (A, 5)), ("nonzero", (A > 0,)), ("argwhere", (A > 0,)), ("unique", (V,)),
        ("flatnonzero", (V,)), ("unique", (V, True, True, True)), ("extract", (A > 0, A)),
        ("unique", (A > 0, False, False, True, 0)),
    ),
    "made": (
        ("linspace", (0, 1, 7)), ("arange", (3, 10, 2)), ("arange", (0, 1, 0.1)),
        ("arange", (5000,)),
        ("eye", (3, 4, 1)), ("eye", (70,)), ("tri", (3,)), ("full", ((2, 3), 7)), ("ones", (3,)),
        ("full", ((100, 50), 2.5)), ("full", ((), 1)), ("logspace", (0, 2, 5)),
        ("zeros_like", (V,)),
        ("full_like", (A, 3)), ("identity", (2,)),
    ),
})  # fmt: skip


def flat(result: Any) -> list[Any]:
    items: Any = result
    return (
        [x for part in items for x in flat(part)] if isinstance(result, list | tuple) else [items]
    )


@pytest.mark.parametrize("family", CASES)
def test_as_numpy(family: str) -> None:
    found = [flat(getattr(mnp, name)(*args)) for name, args in CASES[family]]
    evaluate([tensor for results in found for tensor in results])
    for (name, args), results in zip(CASES[family], found, strict=True):
        wanted: list[Array] = list(map(np.asarray, flat(getattr(np, name)(*args))))
        assert [x.shape for x in results] == [y.shape for y in wanted], name
        for x, y in zip(results, wanted, strict=True):
            np.testing.assert_allclose(x.numpy(), y, 1e-5, 1e-6, err_msg=name)
            python_floats = x.dtype.name == "f32" and y.dtype == np.float64
            assert x.dtype.numpy == y.dtype or python_floats, name


LINALG: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("cholesky", (P,)), ("eigvalsh", (P,)), ("solve", (P, S)), ("solve", (M, M[0])), ("inv", (M,)),
    ("det", (S,)), ("slogdet", (S,)), ("pinv", (A,)), ("matrix_rank", (S,)), ("cond", (M,)),
    ("matrix_power", (M, 5)), ("matrix_power", (M, -2)), ("matrix_power", (M, 0)), ("norm", (A,)),
    ("norm", (A, 1)), ("norm", (A, 2)), ("norm", (A, "nuc")), ("norm", (A, np.inf, 1)),
    ("norm", (S, "fro", (1, 2), True)), ("norm", (A, 3, 0)), ("svdvals", (A,)),
)  # fmt: skip


def test_linalg() -> None:
    found = [flat(getattr(mnp.linalg, name)(*args)) for name, args in LINALG]
    evaluate([tensor for results in found for tensor in results])
    for (name, args), results in zip(LINALG, found, strict=True):
        own: Any = getattr(np.linalg, name, None) or (lambda x: np.linalg.svd(x)[1])
        wanted: list[Array] = list(map(np.asarray, flat(own(*args))))
        for x, y in zip(results, wanted, strict=True):
            np.testing.assert_allclose(x.numpy(), y, 2e-4, 1e-4, err_msg=name)


def test_factors_of_matrices_multiply_to_them() -> None:
    q, r = mnp.linalg.qr(A)
    u, s, vh = mnp.linalg.svd(A, full_matrices=False)
    values, vectors = mnp.linalg.eigh(P)
    products = [q @ r, (u * s) @ vh, (vectors * values[:, None, :]) @ vectors.mT]
    evaluate(products)
    for product, matrix in zip(products, (A, A, P), strict=True):
        np.testing.assert_allclose(product.numpy(), matrix, 1e-4, 1e-4)


def test_shapes_that_hang_on_data_need_a_size_while_traced() -> None:
    def places(x: Tensor) -> Tensor:
        return mnp.flatnonzero(x, size=4, fill_value=-1)

    assert jit(places)(Tensor(np.array([0, 3, 0, 5, 6]))).tolist() == [1, 3, 4, -1]
    for function in (mnp.flatnonzero, mnp.unique, mnp.bincount):
        with pytest.raises(TracingError, match=r"test_functions\.py.*depends on values"):
            jit(function)(Tensor(V))


def test_named_extents() -> None:
    graph = Graph("g")
    x = graph.input("x", ("batch", 5))
    graph.output(mnp.arange(x.shape[0]), "count")
    graph.output(mnp.zeros((x.shape[0], 2)), "zeros")
    graph.output(mnp.einsum("bi,bj->bij", x, x), "outer")
    graph.output(mnp.where(x > 0, x, mnp.zeros_like(x)), "positive")
    graph.output(mnp.asarray(x.shape[0]), "rows")
    found = graph.compile().run({"x": A})
    assert found["count"].tolist() == [0, 1, 2, 3]
    assert found["zeros"].shape == (4, 2)
    np.testing.assert_allclose(found["outer"], np.einsum("bi,bj->bij", A, A), 1e-6)
    np.testing.assert_array_equal(found["positive"], np.maximum(A, 0))
    assert found["rows"] == 4


WRONG: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("einsum", ("ij,jk", A), "2 terms for 1 operands"),
    ("stack", ([A, B],), "different shapes"),
    ("concatenate", ([],), "concatenate of nothing"),
    ("reshape", (A, (3, -1)), r"20 elements have no shape \(3, -1\)"),
    ("squeeze", (A, 0), "has 4 elements, not 1"),
    ("transpose", (A, (0, 0)), "repeat one"),
    ("sum", (A, 2), "there is no axis 2 among 2"),
    ("split", (A, 3), "no 3 equal parts"),
    ("max", (np.ones((0, 2)),), "no elements"),
    ("broadcast_to", (A, (4, 6)), "do not broadcast"),
    ("matmul", (A, A), "MatMul"),
)


@pytest.mark.parametrize(("name", "args", "message"), WRONG, ids=[name for name, _, _ in WRONG])
def test_messages(name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ModelError, match=rf"test_functions\.py:\d+.*{message}"):
        getattr(mnp, name)(*args)
