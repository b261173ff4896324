"""Matrix factorisations and what is computed from them: systems, determinants, spectra,
exponentials."""

from __future__ import annotations

from modelcc.frontends.kit.complex_functions import Complex
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.matrices import (
    beside,
    diagonal,
    identity,
    product,
    reversed_along,
    rows_in,
    swapped,
)
from modelcc.ir.index import Bounds, Index, compare, minimum
from modelcc.ir.types import I32
from modelcc.ops import elementwise as ew
from modelcc.ops import reduce as rd
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.eigenvalues import Eigen
from modelcc.ops.generate import Iota
from modelcc.ops.linear_algebra import Cholesky, Lu, PivotPermutation
from modelcc.ops.matrix_values import block, column, lower, row, upper
from modelcc.ops.orthogonal import HouseholderQr, OrthogonalRows, Reflect
from modelcc.ops.triangular_solve import solved
from modelcc.ops.views import cast, part

TERMS = 14
"""Terms of the series of an exponential for matrices of a norm up to 1/2: the truncation error is
below 2^-54 of the result."""
NOISE = 2.0**-45
"""Imaginary parts of eigenvalues up to this are rounding errors, if no element exceeds 1."""
SQUARINGS = 16
"""Matrices of a norm up to 2^15 have an exponential; beyond 2^10 few are finite in f64."""


def results(op: Cholesky | Lu | HouseholderQr | OrthogonalRows, x: Value) -> list[Value]:
    """All results of ``op``."""
    return [Value(x.build, name) for name in x.build.add(op, x.name)]


# --- triangular systems


def solved_right(a: Value, b: Value, is_lower: bool, unit: bool = False) -> Value:
    """``x`` with ``x @ a = b``, for one triangle of ``a``."""
    return swapped(solved(swapped(a), swapped(b), not is_lower, unit))


def solved_by_cholesky(factor: Value, b: Value, is_lower: bool) -> Value:
    """``x`` with ``l @ l.T @ x = b``, the factor being ``l`` or its transpose."""
    own = factor if is_lower else swapped(factor)
    return solved(swapped(own), solved(own, b, True), False)


def cholesky(x: Value, is_lower: bool = True) -> tuple[Value, Value]:
    """The factor of the given triangle, and whether there is none: then it is NaN."""
    found, info = results(Cholesky(), x if is_lower else swapped(x))
    return found if is_lower else swapped(found), info


# --- factors of Gauss


def order_of(pivots: Value, rows: Index) -> Value:
    """The row permutation given by the interchanges ``pivots`` (0-based)."""
    return of(PivotPermutation(rows), pivots)


def solved_by_lu(packed: Value, pivots: Value, b: Value, turned: bool = False) -> Value:
    """``x`` with ``a @ x = b``, or ``a.T @ x = b``, from the LU factors of ``a``."""
    order = order_of(pivots, packed.type.shape[-1])
    if not turned:
        return solved(packed, solved(packed, rows_in(order, b), True, unit=True), False)
    found = solved(swapped(packed), solved(swapped(packed), b, True), False, unit=True)
    return product(permutation(found, order), found)


def permutation(like: Value, order: Value) -> Value:
    """The matrix that undoes the row permutation ``order``."""
    count = order.type.shape[-1]
    return swapped(rows_in(order, identity(like, count, count)))


def triangles(packed: Value) -> tuple[Value, Value]:
    """Both factors, unpacked."""
    m, n = packed.type.shape[-2:]
    least = minimum(m, n)
    below = lower(block(packed, m, least), -1) + identity(packed, m, least)
    return below, upper(block(packed, least, n))


def determinant(x: Value) -> Value:
    packed, pivots, _ = results(Lu(), x)
    elements = of(rd.ReduceProd((pivots.type.rank - 1,), False), diagonal(packed))
    return elements * _parity(pivots, x)


def sign_and_logarithm(x: Value) -> tuple[Value, Value]:
    """Sign of the determinant, and logarithm of its absolute value."""
    packed, pivots, _ = results(Lu(), x)
    axes, elements = (pivots.type.rank - 1,), diagonal(packed)
    sign = of(rd.ReduceProd(axes, False), of(ew.Sign(), elements)) * _parity(pivots, x)
    return sign, of(rd.ReduceSum(axes, False), of(ew.Log(), of(ew.Abs(), elements)))


def _parity(pivots: Value, like: Value) -> Value:
    """-1 for an odd number of row interchanges, else 1."""
    build, rank = pivots.build, pivots.type.rank
    own = Value(build, build.emit(Iota(pivots.type.shape[-1:], dtype=I32)))
    moved = cast(of(ew.NotEqual(), pivots, own), like.type.dtype)
    return of(rd.ReduceProd((rank - 1,), False), moved * -2.0 + 1.0)


# --- orthogonal factors


def reflected(packed: Value, tau: Value, c: Value, turned: bool = False) -> Value:
    """The product of Householder reflections, or its transpose, times ``c``."""
    return of(Reflect(turned), packed, tau, c)


def qr(x: Value, whole: bool) -> tuple[Value, Value]:
    """Orthogonal columns, as many as x has (or rows, if ``whole`` or fewer), and the triangular
    factor."""
    packed, tau = results(HouseholderQr(), x)
    m, n = x.type.shape[-2:]
    least = minimum(m, n)
    count = m if whole else least
    q = reflected(block(packed, m, least), tau, identity(x, m, count))
    return q, upper(block(packed, count, n))


def _scale(x: Value) -> Value:
    """The largest absolute value of each matrix, 1 if it is zero, [..., 1, 1]."""
    most = of(rd.ReduceMax(_matrix_axes(x), True), of(ew.Abs(), x))
    return of(ew.Where(), of(ew.Equal(), most, most.lift(0.0)), most.lift(1.0), most)


def _matrix_axes(x: Value) -> tuple[int, int]:
    return x.type.rank - 2, x.type.rank - 1


def svd(x: Value, whole: bool, bounds: Bounds) -> tuple[Value, Value, Value]:
    """``u``, descending singular values and ``v.T``: square ones if ``whole``.

    Rotations make the rows of x orthogonal (one-sided Jacobi); a QR factorisation of them gives
    their directions, orthogonal also where rows are short or zero.
    """
    m, n = x.type.shape[-2:]
    if compare(m, "<=", n, bounds) is not True:
        if compare(m, ">=", n, bounds) is not True:
            unsupported(f"it is not known which of {m} rows and {n} columns are more")
        u, values, v = svd(swapped(x), whole, bounds)
        return swapped(v), values, swapped(u)
    if 0 in (m, n):
        zeros = part(diagonal(x), -1, 0, m)
        return identity(x, m, m), zeros, identity(x, n if whole else m, n)
    scale = _scale(x)
    turns, rows, lengths = results(OrthogonalRows(), x / scale)
    packed, tau = results(HouseholderQr(), swapped(rows))
    columns = reflected(packed, tau, identity(x, n, n if whole else m))
    head = diagonal(packed)
    signs = of(ew.Where(), of(ew.Less(), head, head.lift(0.0)), head.lift(-1.0), head.lift(1.0))
    v = block(columns, n, m) * row(signs)
    rest = part(columns, -1, m, n - m) if whole else None
    v = v if rest is None or n == m else beside(v, rest)
    return swapped(turns), lengths * _without_axes(scale, 1), swapped(v)


def _without_axes(x: Value, count: int) -> Value:
    """``x`` [..., 1, 1] without its last ``count`` axes."""
    return of(rd.ReduceSum(tuple(range(x.type.rank - count, x.type.rank)), False), x)


def eig(x: Complex, real: bool) -> tuple[Complex, Complex]:
    """Eigenvalues and eigenvectors, columns of length 1, of matrices.

    If those are ``real``, imaginary parts that are rounding errors are set to 0, also in
    eigenvectors.
    """
    if x.re.type.shape[-1] == 0:
        return Complex(diagonal(x.re), diagonal(x.im)), x
    build, most = x.re.build, _scale(of(ew.Max(), of(ew.Abs(), x.re), of(ew.Abs(), x.im)))
    names = build.add(Eigen(), (x.re / most).name, (x.im / most).name)
    re, im, rows_re, rows_im = (Value(build, name) for name in names)
    if real:
        kept = cast(of(ew.Greater(), of(ew.Abs(), im), im.lift(NOISE)), im.type.dtype)
        im, rows_im = im * kept, rows_im * column(kept)
    size = _without_axes(most, 1)
    return Complex(re * size, im * size), Complex(swapped(rows_re), swapped(rows_im))


def eigh(x: Value, is_lower: bool) -> tuple[Value, Value]:
    """Ascending eigenvalues and eigenvectors (columns) of symmetric matrices given by one triangle.

    A multiple of the identity is added to make them positive, so that singular vectors are
    eigenvectors (the sum of a row's absolute values is a bound, Gershgorin).
    """
    one = lower(x) + swapped(lower(x, -1)) if is_lower else upper(x) + swapped(upper(x, 1))
    if x.type.shape[-1] == 0:
        return diagonal(x), x
    sums = of(rd.ReduceSum((x.type.rank - 1,), True), of(ew.Abs(), one))
    bound = of(rd.ReduceMax((x.type.rank - 2,), True), sums)
    bound = of(ew.Where(), of(ew.Equal(), bound, bound.lift(0.0)), bound.lift(1.0), bound)
    count = x.type.shape[-1]
    turns, _, lengths = results(OrthogonalRows(), one / bound + identity(x, count, count))
    values = (lengths - 1.0) * _without_axes(bound, 1)
    return reversed_along(values, -1), reversed_along(swapped(turns), -1)


# --- functions


def exponential(x: Value) -> Value:
    """The series of ``x / 2^k``, squared k times (scaling and squaring; Higham, Functions of
    Matrices, 10.3)."""
    count = x.type.shape[-1]
    sums = of(rd.ReduceSum((x.type.rank - 2,), True), of(ew.Abs(), x))
    norm = of(rd.ReduceMax((x.type.rank - 1,), True), sums)
    small, one = x, identity(x, count, count)
    large = [of(ew.Greater(), norm, norm.lift(2.0 ** (k - 1))) for k in range(SQUARINGS)]
    for wanted in large:
        small = of(ew.Where(), wanted, small * 0.5, small)
    total = one
    for k in reversed(range(1, TERMS + 1)):
        total = one + product(small, total) * (1.0 / k)
    for wanted in large:
        total = of(ew.Where(), wanted, product(total, total), total)
    return total


def pseudo_inverse(x: Value, least: Value, share: Value, symmetric: bool, bounds: Bounds) -> Value:
    """Without the singular values (or eigenvalues) below ``least`` or below the fraction ``share``
    of the largest."""
    if symmetric:
        values, u = eigh(x, True)
        v = swapped(u)
    else:
        u, values, v = svd(x, False, bounds)
    sizes = of(ew.Abs(), values)
    most = of(rd.ReduceMax((values.type.rank - 1,), True), sizes)
    limit = of(ew.Max(), column(least), column(share) * most)
    kept = of(ew.Greater(), sizes, limit)
    safe = of(ew.Where(), kept, values, values.lift(1.0))
    inverse = of(ew.Where(), kept, values.lift(1.0) / safe, values.lift(0.0))
    return product(swapped(v), column(inverse) * swapped(u))
