"""Gradients of factors of matrices.

Giles, "An extended collection of matrix derivative results" (2008); Murray, "Differentiation of the
Cholesky decomposition" (2016); Walter and Lehmann, "Algorithmic differentiation of linear algebra
functions" (2010), whose sensitivities are those of full rank.
"""

from __future__ import annotations

from modelcc.ir.index import Index, minimum
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import Equal, where
from modelcc.ops.matrix_values import (
    block,
    column,
    identity,
    lower,
    product,
    row,
    swapped,
    upper,
    zeros,
)
from modelcc.ops.shape import Concat
from modelcc.ops.triangular_solve import divided, solved
from modelcc.ops.views import part


def cholesky_adjoint(factor: Value, dy: Value) -> Value:
    """Gradient of a lower triangle by that of its factor ``l``, given in its lower triangle.

    ``s = l^-T half(l^T dl) l^-1`` with half of the diagonal (Murray, section 3); an element below
    the diagonal stands for two.
    """
    turned = swapped(factor)
    inner = _halved(product(turned, lower(dy)))
    s = solved(turned, swapped(solved(turned, inner, False)), False)
    return _halved(s + swapped(s))


def _halved(x: Value) -> Value:
    """The lower triangle with half of its diagonal."""
    return (lower(x) + lower(x, -1)) * 0.5


def lu_adjoint(packed: Value, dy: Value) -> Value:
    """Gradient of the product of both triangles that lie in ``packed`` [..., m, n].

    Of a square ``a = l u`` it is ``l^-T (below(l^T dl) + upper(du u^T)) u^-T``.  Columns behind it
    are ``l u2``, rows below it ``l2 u``.
    """
    m, n = packed.type.shape[-2:]
    k = minimum(m, n)
    square, dsquare = block(packed, k, k), block(dy, k, k)
    dl, du, right, below = dsquare, dsquare, None, None
    if n - k != 0:
        u2, du2 = (part(part(x, -2, 0, k), -1, k, n - k) for x in (packed, dy))
        right = solved(swapped(square), du2, False, unit=True)
        dl = dl - product(right, swapped(u2))
    if m - k != 0:
        l2, dl2 = (part(part(x, -1, 0, k), -2, k, m - k) for x in (packed, dy))
        below = divided(dl2, square)
        du = du - product(swapped(l2), below)
    left = lower(square, -1) + identity(square, k, k)
    inner = lower(product(swapped(left), lower(dl, -1)), -1)
    inner = inner + upper(product(upper(du), swapped(upper(square))))
    first = divided(solved(swapped(square), inner, False, unit=True), square)
    return _joined(first, right, below)


def _joined(first: Value, right: Value | None, below: Value | None) -> Value:
    """A matrix of its first block, what is beside it and what is below it."""
    rank = first.type.rank
    whole = first if right is None else of(Concat(rank - 1), first, right)
    if below is None:
        return whole
    if right is not None:
        rest = zeros(below, below.type.shape[-2], right.type.shape[-1])
        below = of(Concat(rank - 1), below, rest)
    return of(Concat(rank - 2), whole, below)


def qr_adjoint(q: Value, r: Value, dq: Value, dr: Value) -> Value:
    """Gradient of ``x = q r`` [..., m, k] with orthogonal columns ``q`` and a square triangle.

    ``(dq + q sym(m)) r^-T`` with ``m = r dr^T - dq^T q``, whose lower triangle ``sym`` mirrors
    (Walter and Lehmann, section 4).
    """
    m = product(r, swapped(dr)) - product(swapped(dq), q)
    mirrored = lower(m) + swapped(lower(m, -1))
    return divided(dq + product(q, mirrored), r)


def reflections_adjoint(q: Value, packed: Value, dy: Value, dtau: Value) -> Value:
    """Gradient of the orthogonal columns ``q`` [..., m, k] by those of the reflections that make
    them: vectors below the diagonal of ``packed`` [..., m, k], and ``tau``.

    ``q`` less ones is ``-v t v1^T``: its triangular factors are ``v`` and a triangle with ``-tau``
    on the diagonal (Ballard et al., "Reconstructing Householder vectors from tall-skinny QR",
    2014).  The last reflection of a square matrix has nothing below the diagonal, and tau is 0.
    """
    m, k = q.type.shape[-2:]
    count = minimum(m - 1, k)
    if count == 0:
        return zeros(q, m, k)
    head = block(q, count, count) - identity(q, count, count)
    triangle = upper(solved(block(packed, count, count), head, True, unit=True))
    taus = column(part(dtau, -1, 0, count)) * identity(q, count, count)
    below = _over(packed, m, count, triangle), _over(dy, m, count, -taus)
    found = lu_adjoint(*below)
    rest: Index = k - count
    return found if rest == 0 else of(Concat(q.type.rank - 1), found, zeros(q, m, rest))


def _over(x: Value, rows: Index, columns: Index, triangle: Value) -> Value:
    """What is below the diagonal of ``x``, and a triangle on it and above."""
    head = lower(block(x, columns, columns), -1) + triangle
    rest = part(part(x, -1, 0, columns), -2, columns, rows - columns)
    return of(Concat(x.type.rank - 2), head, rest)


def rotations_adjoint(q: Value, rows: Value, lengths: Value, dq: Value, drows: Value) -> Value:
    """Gradient of x by those of the eigenvectors ``q`` of ``x x^T``, and of ``rows = q x``.

    ``q^T ((k + k^T) rows + drows)`` with ``k = (dq q^T + drows rows^T) / (l_i^2 - l_j^2)``, the
    first-order change of eigenvectors (Giles, 3.1); where lengths are equal, directions are any,
    and those between them do not count.
    """
    apart = column(lengths) - row(lengths)
    sums = row(lengths) + column(lengths)
    same = of(Equal(), apart, apart.lift(0.0))
    turned = product(dq, swapped(q)) + product(drows, swapped(rows))
    k = where(same, 0.0, turned / where(same, 1.0, apart * sums))
    return product(swapped(q), product(k + swapped(k), rows) + drows)
