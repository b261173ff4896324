"""Handlers of matrix factorisations and functions based on them, computed in f64.

Matrices without the requested factor or inverse yield NaN or infinities: PyTorch's own check of
them, where an operator has one, is another operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.kit import linear_algebra as la
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.matrices import batched, expanded, identity, swapped
from modelcc.frontends.torch.aten import Aten, Operand, table
from modelcc.ir.types import F64, I32
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.generate import Full
from modelcc.ops.linear_algebra import Lu
from modelcc.ops.matrix_values import column
from modelcc.ops.views import cast, part, reshaped


def wide(*xs: Value) -> list[Value]:
    return [cast(x, F64) for x in xs]


def narrowed(call: Aten, *xs: Value | None) -> list[Value | None]:
    """Results in PyTorch's types; absent ones are empty."""
    found: list[Value | None] = []
    for x, type in zip(xs, call.results, strict=True):
        if x is None and type is not None:
            x = call.made(Full(type.shape, 0, type.dtype))
        found.append(x if x is None or type is None else cast(x, type.dtype))
    return found


def one(call: Aten, x: Value) -> Value:
    return cast(x, call.result.dtype)


# --- Cholesky's factor


def cholesky(call: Aten, x: Value, is_upper: bool = False) -> Value:
    return one(call, la.cholesky(cast(x, F64), not is_upper)[0])


def cholesky_ex(
    call: Aten, x: Value, is_upper: bool = False, check: bool = False
) -> Sequence[Value | None]:
    return narrowed(call, *la.cholesky(cast(x, F64), not is_upper))


def cholesky_inverse(call: Aten, factor: Value, is_upper: bool = False) -> Value:
    a = cast(factor, F64)
    count = a.type.shape[-1]
    return one(call, la.solved_by_cholesky(a, identity(a, count, count), not is_upper))


def cholesky_solve(call: Aten, b: Value, factor: Value, is_upper: bool = False) -> Value:
    a, right = batched(call.bounds, *wide(factor, b))
    return one(call, la.solved_by_cholesky(a, right, not is_upper))


# --- triangular systems


def solve_triangular(
    call: Aten, a: Value, b: Value, is_upper: bool, left: bool = True, unit: bool = False
) -> Value:
    factor, right = batched(call.bounds, *wide(a, b))
    solved = la.solved if left else la.solved_right
    return one(call, solved(factor, right, not is_upper, unit))


def triangular_solve(
    call: Aten, b: Value, a: Value, is_upper: bool = True, turned: bool = False, unit: bool = False
) -> Sequence[Value | None]:
    factor, right = batched(call.bounds, *wide(a, b))
    own = swapped(factor) if turned else factor
    return narrowed(call, la.solved(own, right, is_upper == turned, unit), factor)


# --- factors of Gauss


def _pivoting(pivot: bool) -> None:
    if not pivot:
        unsupported("factors without exchanged rows")


def lu_factor(
    call: Aten, x: Value, pivot: bool = True, check: bool = False
) -> Sequence[Value | None]:
    """PyTorch's pivots are 1-based."""
    _pivoting(pivot)
    packed, pivots, info = la.results(Lu(), cast(x, F64))
    return narrowed(call, packed, pivots + 1, info)


def lu(call: Aten, x: Value, pivot: bool = True) -> Sequence[Value | None]:
    _pivoting(pivot)
    packed, pivots, _ = la.results(Lu(), cast(x, F64))
    order = la.order_of(pivots, x.type.shape[-2])
    return narrowed(call, la.permutation(packed, order), *la.triangles(packed))


def lu_unpack(
    call: Aten, packed: Value, pivots: Value, data: bool = True, orders: bool = True
) -> Sequence[Value | None]:
    order = la.order_of(cast(pivots, I32) - 1, packed.type.shape[-2])
    below, above = la.triangles(packed) if data else (None, None)
    return narrowed(call, la.permutation(packed, order) if orders else None, below, above)


def lu_solve(
    call: Aten, packed: Value, pivots: Value, b: Value, left: bool = True, adjoint: bool = False
) -> Value:
    factors, right = batched(call.bounds, *wide(packed, b))
    places = expanded(cast(pivots, I32) - 1, (*factors.type.shape[:-2], pivots.type.shape[-1]))
    if left:
        return one(call, la.solved_by_lu(factors, places, right, adjoint))
    found = la.solved_by_lu(factors, places, swapped(right), not adjoint)
    return one(call, swapped(found))


def inverse(call: Aten, x: Value, check: bool = False) -> Sequence[Value | None]:
    a = cast(x, F64)
    count = a.type.shape[-1]
    packed, pivots, info = la.results(Lu(), a)
    found = la.solved_by_lu(packed, pivots, identity(a, count, count))
    return narrowed(call, found, info)


def solve(
    call: Aten, a: Value, b: Value, left: bool = True, check: bool = False
) -> Sequence[Value | None]:
    """``b`` is vectors if it has one axis, or the shape of the rows of ``a``."""
    rank, shape = b.type.rank, b.type.shape
    vectors = rank == 1 or (rank == a.type.rank - 1 and shape == a.type.shape[:-1])
    left_side, right = batched(call.bounds, *wide(a, column(b) if vectors else b))
    packed, pivots, info = la.results(Lu(), left_side)
    if left:
        found = la.solved_by_lu(packed, pivots, right)
    else:
        found = swapped(la.solved_by_lu(packed, pivots, swapped(right), turned=True))
    found = reshaped(found, *call.extents())
    expected = [t for t in call.results[1:] if t is not None]
    factors = (packed, pivots + 1, info)
    kept = [x if x.type.shape == t.shape else None for x, t in zip(factors, expected, strict=True)]
    return narrowed(call, found, *kept)


def determinant(call: Aten, x: Value) -> Sequence[Value | None]:
    a = _as_factored(call, x)
    packed, pivots, _ = la.results(Lu(), a)
    return narrowed(call, la.determinant(a), packed, pivots + 1)


def sign_and_logarithm(call: Aten, x: Value) -> Sequence[Value | None]:
    a = _as_factored(call, x)
    packed, pivots, _ = la.results(Lu(), a)
    return narrowed(call, *la.sign_and_logarithm(a), packed, pivots + 1)


def _as_factored(call: Aten, x: Value) -> Value:
    """The matrix whose factors PyTorch's gradient of a determinant expects: the transpose if it is
    row-major, for LAPACK is column-major."""
    given = call.given[0]
    a = cast(x, F64)
    return swapped(a) if given.is_contiguous() and not given.is_complex() else a


# --- orthogonal factors


def qr(call: Aten, x: Value, mode: str = "reduced") -> Sequence[Value | None]:
    q, r = la.qr(cast(x, F64), mode == "complete")
    return narrowed(call, None if mode == "r" else q, r)


def geqrf(call: Aten, x: Value) -> Sequence[Value | None]:
    return narrowed(call, *la.results(la.HouseholderQr(), cast(x, F64)))


def householder_product(call: Aten, vectors: Value, tau: Value) -> Value:
    a, factors = wide(vectors, tau)
    (m, n), count = a.type.shape[-2:], factors.type.shape[-1]
    return one(call, la.reflected(part(a, -1, 0, count), factors, identity(a, m, n)))


def product_with_reflections(
    call: Aten, vectors: Value, tau: Value, c: Value, left: bool = True, turned: bool = False
) -> Value:
    """``q @ c``, or from the right ``c @ q``, with ``q`` transposed if ``turned``."""
    a, factors, other = wide(vectors, tau, c)
    own = part(a, -1, 0, factors.type.shape[-1])
    if left:
        return one(call, la.reflected(own, factors, other, turned))
    return one(call, swapped(la.reflected(own, factors, swapped(other), not turned)))


def svd(
    call: Aten, x: Value, whole: bool = False, vectors: bool = True, driver: str | None = None
) -> Sequence[Value | None]:
    u, values, v = la.svd(cast(x, F64), whole, call.bounds)
    return narrowed(call, u if vectors else None, values, v if vectors else None)


def eigh(call: Aten, x: Value, triangle: str = "L", vectors: bool = True) -> Sequence[Value | None]:
    values, found = la.eigh(cast(x, F64), triangle.upper() == "L")
    return narrowed(call, values, found if vectors else None)


def pseudo_inverse(
    call: Aten, x: Value, least: Operand | None = None, share: Operand | None = None,
    symmetric: bool = False,
) -> Value:  # fmt: skip
    """Without a given relative tolerance, one unit of precision per row or column, if no absolute
    one is given."""
    a = cast(x, F64)
    m, n = a.type.shape[-2:]
    if 0 in (m, n):
        return call.made(Full(call.extents(), 0, call.result.dtype))
    unit = 2.0**-23 if x.type.dtype.bits == 32 else 2.0**-52
    many = of(ew.Max(), *(call.as_value(extent, F64) for extent in (m, n))) * unit
    low = many.lift(0.0) if least is None else call.as_value(least, F64)
    if share is not None:
        high = call.as_value(share, F64)
    else:
        high = of(ew.Where(), of(ew.Greater(), low, low.lift(0.0)), low.lift(0.0), many)
    return one(call, la.pseudo_inverse(a, low, high, symmetric, call.bounds))


def exponential(call: Aten, x: Value) -> Value:
    return one(call, la.exponential(cast(x, F64)))


LINEAR_ALGEBRA = table(
    cholesky=cholesky,
    linalg_cholesky_ex=cholesky_ex,
    cholesky_inverse=cholesky_inverse,
    cholesky_solve=cholesky_solve,
    linalg_solve_triangular=solve_triangular,
    triangular_solve=triangular_solve,
    linalg_lu_factor_ex=lu_factor,
    linalg_lu=lu,
    lu_unpack=lu_unpack,
    linalg_lu_solve=lu_solve,
    linalg_inv_ex=inverse,
    _linalg_solve_ex=solve,
    _linalg_det=determinant,
    _linalg_slogdet=sign_and_logarithm,
    linalg_qr=qr,
    geqrf=geqrf,
    linalg_householder_product=householder_product,
    ormqr=product_with_reflections,
    _linalg_svd=svd,
    _linalg_eigh=eigh,
    linalg_pinv=pseudo_inverse,
    linalg_matrix_exp=exponential,
)
