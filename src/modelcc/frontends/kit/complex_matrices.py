"""Complex matrices as real ones of twice the extents, with blocks ``[[re, -im], [im, re]]``.

Sums and products of such blocks are those of the numbers.  Triangular matrices with a real diagonal
stay triangular, so triangular systems and Cholesky factors are those of the real matrices.
"""

from __future__ import annotations

from modelcc.frontends.kit import linear_algebra as la
from modelcc.frontends.kit.complex_functions import Complex, one
from modelcc.frontends.kit.matrices import diagonal, swapped
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.control import At
from modelcc.ops.matrix_values import column, lower, upper
from modelcc.ops.shape import Concat
from modelcc.ops.triangular_solve import solved
from modelcc.ops.views import reshaped


def solved_triangle(a: Complex, b: Complex, is_lower: bool, unit: bool) -> Complex:
    """``x`` with ``a @ x = b``, for one triangle of ``a``, whose rows are divided by the diagonal.

    With ``unit`` the diagonal is 1 and not read.
    """
    if not unit:
        scale = one(a) / Complex(column(diagonal(a.re)), column(diagonal(a.im)))
        a, b = a * scale, b * scale
    strict = Complex(lower(a.re, -1), lower(a.im, -1)) if is_lower else Complex(
        upper(a.re, 1), upper(a.im, 1))  # fmt: skip
    return _split(solved(_blocks(strict), _rows(b), is_lower, unit=True))


def cholesky(x: Complex, is_lower: bool = True) -> tuple[Complex, Value]:
    """The factor of the given triangle, and whether there is none: then it is NaN."""
    own = x if is_lower else adjoint(x)
    strict = lower(own.im, -1)
    whole = Complex(own.re, strict - swapped(strict))
    wide, info = la.cholesky(_blocks(whole))
    found = _split(wide, skip=2)
    return found if is_lower else adjoint(found), info


def transposed(z: Complex) -> Complex:
    return Complex(swapped(z.re), swapped(z.im))


def adjoint(z: Complex) -> Complex:
    """The transpose of the conjugate."""
    return Complex(swapped(z.re), -swapped(z.im))


def _blocks(z: Complex) -> Value:
    """Matrices [..., 2 m, 2 n] of blocks."""
    *outer, m, n = z.re.type.shape
    above, below = (_joined(a, b, len(outer) + 2) for a, b in ((z.re, -z.im), (z.im, z.re)))
    return reshaped(_joined(above, below, len(outer) + 1), *outer, 2 * m, 2 * n)


def _rows(z: Complex) -> Value:
    """The left columns [..., 2 m, n] of the blocks."""
    *outer, m, n = z.re.type.shape
    return reshaped(_joined(z.re, z.im, len(outer) + 1), *outer, 2 * m, n)


def _joined(a: Value, b: Value, axis: int) -> Value:
    """Both stacked along a new axis."""
    shape = (*a.type.shape[:axis], 1, *a.type.shape[axis:])
    return of(Concat(axis), reshaped(a, *shape), reshaped(b, *shape))


def _split(x: Value, skip: int = 1) -> Complex:
    """The complex numbers of left columns, every ``skip``-th of them."""
    *outer, m, n = x.type.shape
    apart = reshaped(x, *outer, m // 2, 2, n // skip, skip)
    first = of(At(len(outer) + 3, 0), apart)
    return Complex(of(At(len(outer) + 1, 0), first), of(At(len(outer) + 1, 1), first))
