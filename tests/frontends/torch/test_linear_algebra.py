"""Factors of matrices give what PyTorch gives, vectors up to their signs."""

from __future__ import annotations

from typing import Any

import pytest

from modelcc.frontends.kit.errors import UnsupportedModel
from tests.frontends.torch.comparison import check, compiled, torch

pytestmark = pytest.mark.filterwarnings("ignore")

L = torch.linalg
_RANDOM = torch.Generator().manual_seed(2)
A = torch.randn(2, 4, 4, generator=_RANDOM) + 2 * torch.eye(4)
B = torch.randn(4, 3, generator=_RANDOM)
P = A @ A.mT + torch.eye(4)
WIDE, TALL = torch.randn(2, 3, 5, generator=_RANDOM), torch.randn(5, 3, generator=_RANDOM)


def rebuilt(x: Any) -> Any:
    u, values, v = L.svd(x, full_matrices=False)
    return u @ torch.diag_embed(values) @ v, values


def rebuilt_symmetric(x: Any) -> Any:
    values, vectors = L.eigh(x)
    return vectors @ torch.diag_embed(values) @ vectors.mT, values


CASES: dict[str, tuple[Any, ...]] = {
    "cholesky": (lambda x: (L.cholesky(x), *L.cholesky_ex(x, upper=True)), P),
    "cholesky of one triangle": (lambda x: L.cholesky(x.tril()), P),
    "by cholesky": (lambda x, b: (torch.cholesky_solve(b, L.cholesky(x)),
                                  torch.cholesky_inverse(L.cholesky(x))), P, B),
    "triangular": (lambda a, b: (L.solve_triangular(a, b, upper=True),
                                 L.solve_triangular(a, b.mT, upper=False, left=False),
                                 torch.triangular_solve(b, a, transpose=True)[0]), A, B),
    "lu": (lambda x: (*L.lu(x), *L.lu_factor(x)), WIDE),
    "by lu": (lambda x, b: (L.lu_solve(*L.lu_factor(x), b, adjoint=True),
                            L.lu_solve(*L.lu_factor(x), b.mT, left=False)), A, B),
    "solve": (lambda x, b: (L.solve(x, b), L.solve(x[0], b[:, 0]),
                            L.solve(x, b.mT, left=False)), A, B),
    "inverse": (lambda x: (L.inv(x), L.inv_ex(x), L.det(x), *L.slogdet(x)), A[0]),
    "qr": (lambda x: (*L.qr(x), *L.qr(x, mode="complete"), *torch.geqrf(x)), TALL),
    "reflections": (lambda x, b: (L.householder_product(*torch.geqrf(x)),
                                  torch.ormqr(*torch.geqrf(x), b, transpose=True)), A[0], B),
    "svd": (rebuilt, WIDE),
    "svd of a tall one": (rebuilt, TALL),
    "of values": (lambda x: (L.svdvals(x), L.cond(x), L.matrix_rank(x), L.pinv(x)), WIDE),
    "eigh": (rebuilt_symmetric, P),
    "symmetric": (lambda x: (L.eigvalsh(x), L.pinv(x, hermitian=True)), P),
    "exponential": (lambda x: L.matrix_exp(x), A),
    "of zeros": (lambda x: (L.svdvals(x), L.pinv(x), L.matrix_exp(x)), torch.zeros(3, 3)),
    "of none": (lambda x: (L.inv(x), L.cholesky(x), L.det(x), L.qr(x)[1]), torch.zeros(0, 3, 3)),
}  # fmt: skip


def flat(function: Any) -> Any:
    """``function`` with a tuple of tensors as its result."""

    def tensors(*xs: Any) -> Any:
        return tuple(torch.utils._pytree.tree_leaves(function(*xs)))

    return tensors


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_torch_computes(case: str) -> None:
    function, *xs = CASES[case]
    check(flat(function), *xs, rtol=2e-4)
    check(flat(function), *(x.double() for x in xs), rtol=1e-10)


def eigenvalues(x: Any) -> Any:
    """In an order that PyTorch does not give, and what vectors must be; some have but one."""
    values, vectors = L.eig(x)
    order = (values.real + values.imag / 2).argsort(-1)
    apart = x.to(values.dtype) @ vectors - vectors * values[..., None, :]
    lengths = L.vector_norm(vectors, dim=-2)
    return (
        torch.view_as_real(values.gather(-1, order)),
        apart.abs() < 1e-4,
        lengths,
        L.eigvals(x).real.sum(-1),
    )


def test_eigenvalues_of_any_matrices() -> None:
    def of_several(x: Any, wrong: Any) -> Any:
        found = map(eigenvalues, (x, torch.complex(x, x.mT), wrong))
        return tuple(y for results in found for y in results)

    check(of_several, A, torch.eye(4) + torch.ones(4, 4).triu(1), rtol=2e-4)


def test_factors_that_are_not_there_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="ldl_factor_ex"):
        compiled(lambda x: L.ldl_factor_ex(x)[0], [A])


def test_compiled_it_raises_where_pytorch_does() -> None:
    """PyTorch runs its own checks between what is compiled, and gradients have factors, too."""
    torch._dynamo.reset()
    fast = torch.compile(lambda x: L.inv(x) @ L.cholesky(x @ x.mT), backend="modelcc")
    x = A[0].clone().requires_grad_()
    found, wanted = fast(x), L.inv(x) @ L.cholesky(x @ x.mT)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    ours, theirs = (torch.autograd.grad(y.sum(), x)[0] for y in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    with pytest.raises(RuntimeError, match="singular"):
        fast(torch.zeros(4, 4))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("function", [L.det, lambda x: L.slogdet(x)[1], lambda x: L.solve(x, B)])
def test_gradients_solve_with_factors_of_the_layout(function: Any, turned: bool) -> None:
    def loss(x: Any) -> Any:
        return function(x.mT if turned else x).square().sum()

    torch._dynamo.reset()
    x = A.clone().requires_grad_()
    ours, theirs = (
        torch.autograd.grad(f(x), x)[0] for f in (torch.compile(loss, backend="modelcc"), loss)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
