"""Matrix functions under the names of ``numpy.linalg``, on the last two axes; others are batch
axes.

Results are infinite or NaN where NumPy raises an error: for a singular system, or the Cholesky
factor of a matrix that is not positive definite.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple, cast

import ml_dtypes

from modelcc.frontends.kit import linear_algebra as kit
from modelcc.frontends.kit.matrices import batched, identity
from modelcc.ir.errors import ModelError
from modelcc.ir.types import F32, F64
from modelcc.numpy.arrays import asarray, eye
from modelcc.numpy.pairs import both
from modelcc.numpy.products import matmul as matmul
from modelcc.numpy.products import multi_dot as multi_dot
from modelcc.ops.arithmetic import Value
from modelcc.ops.broadcast import dim_bounds
from modelcc.ops.linear_algebra import Lu
from modelcc.tensor.axes import Axes, axes_of
from modelcc.tensor.builder import applied
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import is_complex
from modelcc.tensor.tensor import Tensor


class EighResult(NamedTuple):
    """Ascending eigenvalues, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """Orthogonal columns, and a triangular matrix."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors as columns, descending singular values, right singular vectors as
    rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


def _matrices(a: Any, square: bool = True) -> Tensor:
    """``a`` in f32 or f64; :class:`ModelError` if it is not a matrix."""
    x = asarray(a)
    if x.ndim < 2:
        raise ModelError(f"{x.type} is no matrix", callers_line(), "give at least two axes")
    if square and x.shape[-1] != x.shape[-2]:
        raise ModelError(f"{x.type} is not square", callers_line(), "give as many rows as columns")
    return x if x.dtype in (F32, F64) else x.cast(F64)


def cholesky(a: Any, upper: bool = False) -> Tensor:
    """The lower (or upper) triangular factor; NaN if ``a`` is not positive definite."""
    x = _matrices(a)
    factor, _ = applied(partial(kit.cholesky, is_lower=not upper), x)
    return factor


def qr(a: Any, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Orthogonal columns and an upper triangular matrix whose product is ``a``."""
    if mode not in ("reduced", "complete"):
        raise ModelError(f"mode {mode!r} of qr", callers_line(), "'reduced' or 'complete'")
    x = _matrices(a, square=False)
    return QRResult(*applied(partial(kit.qr, whole=mode == "complete"), x))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """The singular value decomposition; only the values if not ``compute_uv``."""
    x = _matrices(a, square=False)
    bounds = dim_bounds(x.shape)
    found = applied(partial(kit.svd, whole=full_matrices and compute_uv, bounds=bounds), x)
    return SVDResult(*found) if compute_uv else found[1]


def svdvals(x: Any) -> Tensor:
    """Descending singular values."""
    return svd(x, compute_uv=False)


def eigh(a: Any, UPLO: Literal["L", "U"] = "L") -> EighResult:  # noqa: N803
    """Eigenvalues and eigenvectors of symmetric matrices, of which one triangle is read."""
    x = _matrices(a)
    return EighResult(*applied(partial(kit.eigh, is_lower=UPLO == "L"), x))


def eigvalsh(a: Any, UPLO: Literal["L", "U"] = "L") -> Tensor:  # noqa: N803
    """Ascending eigenvalues of symmetric matrices."""
    return eigh(a, UPLO).eigenvalues


def solve(a: Any, b: Any) -> Tensor:
    """``x`` with ``a @ x = b``; a ``b`` of one axis is a vector."""
    x, right = both(a, b)
    x, right = _matrices(x), right if right.dtype in (F32, F64) else right.cast(F64)
    if right.ndim == 1:
        return solve(x, right.expand_dims(1)).squeeze(-1)
    bounds = dim_bounds(x.shape, right.shape)

    def solved(m: Value, r: Value) -> Value:
        m, r = batched(bounds, m, r)
        packed, pivots, _ = kit.results(Lu(), m)
        return kit.solved_by_lu(packed, pivots, r)

    (found,) = applied(solved, x, right)
    return found


def inv(a: Any) -> Tensor:
    """The inverse."""

    def inverse(m: Value) -> Value:
        packed, pivots, _ = kit.results(Lu(), m)
        one = identity(m, m.type.shape[-1], m.type.shape[-1])
        return kit.solved_by_lu(packed, pivots, one)

    (found,) = applied(inverse, _matrices(a))
    return found


def det(a: Any) -> Tensor:
    """The determinant."""
    (found,) = applied(kit.determinant, _matrices(a))
    return found


def slogdet(a: Any) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its absolute value."""
    return SlogdetResult(*applied(kit.sign_and_logarithm, _matrices(a)))


def pinv(a: Any, rcond: float | None = None) -> Tensor:
    """The pseudo-inverse, without singular values below ``rcond`` times the largest."""
    x = _matrices(a, square=False)
    share = _rounding(x) if rcond is None else rcond
    bounds = dim_bounds(x.shape)
    limits = [x.of_number(limit, x.dtype).broadcast_to(x.shape[:-2]) for limit in (0.0, share)]

    def inverse(m: Value, least: Value, part: Value) -> Value:
        return kit.pseudo_inverse(m, least, part, False, bounds)

    (found,) = applied(inverse, x, *limits)
    return found


def _rounding(x: Tensor) -> float:
    """NumPy's default relative tolerance of singular values."""
    limits: Any = cast(Any, ml_dtypes.finfo)(x.dtype.numpy)
    return max([e for e in x.shape[-2:] if isinstance(e, int)], default=1) * float(limits.eps)


def matrix_rank(a: Any, rtol: float | None = None) -> Tensor:
    """The number of singular values above ``rtol`` times the largest."""
    values = svdvals(a)
    share = _rounding(_matrices(a, square=False)) if rtol is None else rtol
    return (values > values.max(-1, keepdims=True) * share).sum(-1)


def matrix_power(a: Any, n: int) -> Tensor:
    """``a`` to the power ``n``, by repeated squaring; of the inverse for negative ``n``."""
    x = inv(a) if n < 0 else asarray(a)
    count = abs(n)
    result: Tensor | None = None
    while count:
        if count % 2:
            result = x if result is None else result @ x
        count //= 2
        x = x @ x if count else x
    return eye(x.shape[-1], dtype=x.dtype).broadcast_to(x.shape) if result is None else result


def norm(x: Any, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Vector norms along one axis, matrix norms along two; without ``axis`` of all elements."""
    value = _sizes(x)
    if axis is None and ord is None:
        return value.square().sum(None, keepdims=keepdims).sqrt()
    axes = axes_of(axis, value.ndim)
    if len(axes) == 1:
        return vector_norm(value, 2 if ord is None else ord, axes, keepdims)
    if len(axes) != 2:
        raise ModelError(f"norm over {len(axes)} axes", callers_line(), "give one or two axes")
    matrix = asarray(x) if ord in ("nuc", 2, -2) else value
    found = _matrix_norm(matrix.moveaxis(axes, (-2, -1)), ord)
    return found.expand_dims(sorted(axes)) if keepdims else found


def _sizes(x: Any) -> Tensor:
    """``x`` as floats; magnitudes of complex numbers."""
    return asarray(x).abs() if is_complex(x) else asarray(x).floats()


def vector_norm(x: Any, ord: float = 2, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The ``ord``-th root of the sum of powers.

    For ``inf`` it is the largest magnitude, for ``-inf`` the smallest, for 0 the number of
    nonzeros.
    """
    size = _sizes(x).abs()
    if ord == float("inf"):
        return size.max(axis, keepdims)
    if ord == -float("inf"):
        return size.min(axis, keepdims)
    if ord == 0:
        return (size != 0).cast(size.dtype).sum(axis, keepdims=keepdims)
    if ord == 1:
        return size.sum(axis, keepdims=keepdims)
    if ord == 2:
        return size.square().sum(axis, keepdims=keepdims).sqrt()
    return (size ** float(ord)).sum(axis, keepdims=keepdims) ** (1.0 / ord)


def _matrix_norm(x: Tensor, ord: Any) -> Tensor:
    match ord:
        case None | "fro":
            return x.square().sum((-2, -1)).sqrt()
        case "nuc":
            return svdvals(x).sum(-1)
        case 2:
            return svdvals(x).max(-1)
        case -2:
            return svdvals(x).min(-1)
        case 1 | -1:
            sums = x.abs().sum(-2)
        case _ if ord in (float("inf"), -float("inf")):
            sums = x.abs().sum(-1)
        case _:
            raise ModelError(f"a matrix norm of order {ord!r}", callers_line(),
                             "1, 2, inf, -1, -2, -inf, 'fro' or 'nuc'")  # fmt: skip
    return sums.max(-1) if ord > 0 else sums.min(-1)


def lstsq(a: Any, b: Any, rcond: float | None = None) -> Tensor:
    """The least squares solution ``x`` of ``a @ x = b``, the shortest if there are several."""
    x, right = both(a, b)
    if right.ndim == 1:
        return lstsq(x, right.expand_dims(1), rcond).squeeze(-1)
    return pinv(x, rcond) @ right


def cond(x: Any, p: Any = None) -> Tensor:
    """The condition number: the norm times that of the inverse."""
    if p in (None, 2):
        values = svdvals(x)
        return values.max(-1) / values.min(-1)
    value = _matrices(x)
    return _matrix_norm(value, p) * _matrix_norm(inv(value), p)
