"""Orthogonal factors of matrices: by reflections, and by rotations.  Leading axes are matrices that
have nothing to do with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, add, call, index_number, integer, number
from modelcc.ir.compute import Inputs, Outputs
from modelcc.ir.index import Index, minimum
from modelcc.ir.loop import Convert, Expr, Select, Var
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.types import F64, Array, DType, TensorType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import Equal, where
from modelcc.ops.factor_gradients import qr_adjoint, reflections_adjoint, rotations_adjoint
from modelcc.ops.matrix_rows import (
    MatrixRow,
    MatrixRows,
    count_of,
    dot,
    require_matrices,
    rotate,
    rows_of,
    scale,
    subtract_scaled,
    swap,
)
from modelcc.ops.matrix_values import block, column, identity, lower, product, row, swapped, upper
from modelcc.ops.samples import sample, tensor
from modelcc.ops.shape import Concat
from modelcc.ops.triangular_solve import solved
from modelcc.ops.views import part

SWEEPS = 40
"""Sweeps over all pairs of rows at most; matrices of 64 rows take about ten."""


@dataclass(frozen=True)
class HouseholderQr(Op):
    """Reflections that make x [..., m, n] upper triangular, as LAPACK's geqrf gives them.

    The triangle, below it the vectors ``v`` of the reflections ``1 - tau v v.T``, whose first
    element is 1, and ``tau`` [..., min(m, n)].
    """

    samples = (
        sample(tensor(2, 5, 3)),
        sample(tensor(4, 4, dtype=F64)),
        sample(tensor(3, 19)),
        sample(np.array([[0, 1], [0, 2], [0, 2]], np.float32)),
        sample(tensor("b", "m", 3)),
        sample(tensor(1, 1)),
        sample(tensor(2, 0, 3)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require_matrices(x, "HouseholderQr")
        return x, TensorType((*x.shape[:-2], minimum(*x.shape[-2:])), x.dtype)

    def reference(self, x: Array) -> tuple[Array, Array]:
        if 0 in x.shape:
            return x, np.zeros((*x.shape[:-2], min(x.shape[-2:])), x.dtype)
        turned, tau = np.linalg.qr(x, "raw")
        return np.swapaxes(turned, -1, -2).astype(x.dtype), tau.astype(x.dtype)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """By way of the orthogonal columns that the reflections make.  Columns behind a square are
        ``q^T x``, turned only."""
        x, packed, tau = (Value(build, name) for name in (*inputs, *outputs))
        dy, dtau = (Value(build, name) for name in dys)
        m, n = x.type.shape[-2:]
        k = minimum(m, n)
        vectors = part(packed, -1, 0, k)
        q = of(Reflect(), vectors, tau, identity(x, m, k))
        dq = reflections_adjoint(q, vectors, part(dy, -1, 0, k), dtau)
        triangle, dtriangle = (upper(block(y, k, k)) for y in (packed, dy))
        if n - k == 0:
            return (qr_adjoint(q, triangle, dq, dtriangle).name,)
        behind, dbehind = part(x, -1, k, n - k), part(part(dy, -2, 0, k), -1, k, n - k)
        dq = dq + product(behind, swapped(dbehind))
        first = qr_adjoint(q, triangle, dq, dtriangle)
        return (of(Concat(x.type.rank - 1), first, product(q, dbehind)).name,)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (y, taus) = inputs, outputs
        assert x is not None
        m, n = x.shape[-2:]
        least, count = minimum(m, n), count_of(x.type)
        sums = at.scratch(x.dtype, count * n)
        with at.shared_loop(count, x.type.elements * least) as matrix:
            a = rows_of(y, matrix)
            at.copy(y, a.start, x, a.start, m * n)
            with at.loop(0, least) as k:
                tau = _reflection(at, a, k, m)
                at.store(taus, matrix * least + k, tau)
                right = MatrixRows(y, a.start + k + 1, n)
                _reflect(at, a, k, tau, right, m, n - k - 1, MatrixRow(sums, matrix * n))


def _reflection(at: AlgorithmBuilder, a: MatrixRows, k: Index, height: Index) -> Var:
    """Column ``k`` below the diagonal becomes a reflection's vector, which goes with the result."""
    dtype = a.buffer.dtype
    zero, one = number(0.0, dtype), number(1.0, dtype)
    rest = at.register(zero)
    with at.loop(k + 1, height) as i:
        value = at.let(a.load(at, i, k))
        at.assign(rest, add(rest, call("mul", value, value)))
    head, tau = at.let(a.load(at, k, k)), at.register(zero)
    with at.when(call("ne", rest, zero)):
        length = at.let(call("sqrt", add(rest, call("mul", head, head))))
        beta = at.let(Select(call("lt", head, zero), length, call("neg", length)))
        at.assign(tau, call("div", call("sub", beta, head), beta))
        inverse = at.let(call("div", one, call("sub", head, beta)))
        with at.loop(k + 1, height) as i:
            a.store(at, i, k, call("mul", a.load(at, i, k), inverse))
        a.store(at, k, k, beta)
    return tau


def _reflect(
    at: AlgorithmBuilder, a: MatrixRows, k: Index, tau: Expr, c: MatrixRows, height: Index,
    width: Index, sums: MatrixRow,
) -> None:  # fmt: skip
    """``c`` reflected by column ``k`` of ``a``; ``sums`` is room for ``width`` numbers."""
    at.copy(sums.buffer, sums.start, c.buffer, c.row(k).start, width)
    with at.loop(k + 1, height) as i:
        subtract_scaled(at, sums, c.row(i), at.let(call("neg", a.load(at, i, k))), width)
    scale(at, sums, tau, width)
    subtract_scaled(at, c.row(k), sums, number(1.0, a.buffer.dtype), width)
    with at.loop(k + 1, height) as i:
        subtract_scaled(at, c.row(i), sums, at.let(a.load(at, i, k)), width)


@dataclass(frozen=True)
class Reflect(Op):
    """The product of reflections, as :class:`HouseholderQr` gives them, and c [..., m, n].

    Operands: their vectors below the diagonal [..., m, k], tau [..., k], and c.  ``transposed``
    takes the first reflection first, which is the transpose of the product.
    """

    transposed: bool = False
    samples = (
        *(
            sample(tensor(2, 5, 3), tensor(2, 3), tensor(2, 5, 4), transposed=transposed)
            for transposed in (False, True)
        ),
        sample(tensor(3, 2, dtype=F64), tensor(2, dtype=F64), tensor(3, 19, dtype=F64)),
        sample(tensor("b", "m", 3), tensor("b", 3), tensor("b", "m", 2)),
        sample(tensor(2, 3, 0), tensor(2, 0), tensor(2, 3, 2)),
    )

    def infer(self, a: TensorType, tau: TensorType, c: TensorType) -> tuple[TensorType]:
        require_matrices(a, "Reflect")
        fits = (
            (*a.shape[:-2], a.shape[-1]) == tau.shape and a.shape[:-1] == c.shape[:-1]
        ) and a.dtype == tau.dtype == c.dtype
        require(fits, f"Reflect of {a}, {tau} and {c}, which do not fit")
        return (c,)

    def reference(self, a: Array, tau: Array, c: Array) -> Array:
        m, count = a.shape[-2:]
        y = c.astype(np.float64)
        for k in range(count) if self.transposed else reversed(range(count)):
            head = np.eye(m, dtype=a.dtype)[k]
            v: Array = (np.tri(m, m, -1, a.dtype)[:, k] * a[..., k] + head)[..., None]
            y = y - tau[..., k, None, None] * v * (np.swapaxes(v, -1, -2) @ y)
        return y.astype(c.dtype)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str]:
        """``c - v t v^T c`` with ``t = d (1 + s d)^-1``, where d is tau on a diagonal and s what
        ``v^T v`` has above it (Joffrain et al., "Accumulating Householder transformations,
        revisited", 2006)."""
        a, tau, c = (Value(build, name) for name in inputs)
        v = lower(a, -1) + identity(a, *a.type.shape[-2:])
        shares = upper(product(swapped(v), v), 1) * row(tau)
        seen = product(swapped(v), c)
        if self.transposed:
            found = solved(swapped(shares), column(tau) * seen, True, unit=True)
        else:
            found = column(tau) * solved(shares, seen, False, unit=True)
        return ((c - product(v, found)).name,)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (a, tau, c), (y,) = inputs, outputs
        assert a is not None and tau is not None and c is not None
        (m, n), k = c.shape[-2:], a.shape[-1]
        count = count_of(c.type)
        sums = at.scratch(c.dtype, count * n)
        with at.shared_loop(count, c.type.elements * k) as matrix:
            vectors, whole = rows_of(a, matrix), rows_of(y, matrix)
            at.copy(y, whole.start, c, whole.start, m * n)
            with at.loop(0, k) as step:
                own = step if self.transposed else k - 1 - step
                factor = at.let(at.load(tau, matrix * k + own))
                _reflect(at, vectors, own, factor, whole, m, n, MatrixRow(sums, matrix * n))


@dataclass(frozen=True)
class OrthogonalRows(Op):
    """Rotations ``q`` [..., n, n] after which the rows of x [..., n, m] are orthogonal, the longest
    first; the rows ``q @ x``, and their lengths [..., n].

    The greatest element of each row of ``q`` is positive.  With lengths as singular values this is
    Hestenes' singular value decomposition: x is ``q.T`` times the rows (Golub and Van Loan, Matrix
    Computations, 8.6.3; one-sided Jacobi).  Pairs of rows are turned for as long as some are not
    orthogonal, in at most ``SWEEPS`` sweeps: numbers that are not finite end it.
    """

    samples = (
        sample(tensor(2, 3, 5)),
        sample(tensor(4, 4, dtype=F64)),
        sample(tensor("b", 2, 9)),
        sample(tensor(1, 1)),
        sample(tensor(2, 0, 3)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        require_matrices(x, "OrthogonalRows")
        *outer, n, _ = x.shape
        return (TensorType((*outer, n, n), x.dtype), x, TensorType((*outer, n), x.dtype))

    def reference(self, x: Array) -> tuple[Array, Array, Array]:
        wide = x.astype(np.float64)
        u = np.linalg.svd(wide @ np.swapaxes(wide, -1, -2))[0]
        q = np.swapaxes(u, -1, -2)
        if q.size:
            q = q * np.sign(np.take_along_axis(q, np.abs(q).argmax(-1)[..., None], -1))
        rows = q @ wide
        found = q, rows, np.linalg.norm(rows, axis=-1)
        return found[0].astype(x.dtype), found[1].astype(x.dtype), found[2].astype(x.dtype)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """Lengths move with the rows; 0 where they are."""
        q, rows, lengths = (Value(build, name) for name in outputs)
        dq, drows, dlengths = (Value(build, name) for name in dys)
        none = of(Equal(), lengths, lengths.lift(0.0))
        each = where(none, 0.0, dlengths / where(none, 1.0, lengths))
        drows = drows + column(each) * rows
        return (rotations_adjoint(q, rows, lengths, dq, drows).name,)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (turns, rows, lengths) = inputs, outputs
        assert x is not None
        n, m = x.shape[-2:]
        with at.shared_loop(count_of(x.type), x.type.elements * n * n) as matrix:
            pair = _Turned(rows_of(turns, matrix), rows_of(rows, matrix), n, m)
            at.copy(rows, pair.rows.start, x, pair.rows.start, n * m)
            at.fill(turns, pair.turns.start, n * n, number(0.0, x.dtype))
            with at.loop(0, n) as i:
                pair.turns.store(at, i, i, number(1.0, x.dtype))
            sweeps, turned = at.register(integer(0)), at.register(integer(1))
            goes_on = call(
                "and", call("gt", turned, integer(0)), call("lt", sweeps, integer(SWEEPS))
            )
            with at.while_(goes_on):
                at.assign(turned, integer(0))
                with at.loop(0, n) as i, at.loop(i + 1, n) as j:
                    pair.turn(at, i, j, turned)
                at.assign(sweeps, add(sweeps, 1))
            pair.order(at, MatrixRow(lengths, matrix * n))


@dataclass(frozen=True)
class _Turned:
    """The ``count`` rows of ``width`` of one matrix, and the product of all rotations so far."""

    turns: MatrixRows
    rows: MatrixRows
    count: Index
    width: Index

    def turn(self, at: AlgorithmBuilder, i: Index, j: Index, turned: Var) -> None:
        """Make two rows orthogonal, the longer one first, unless they are."""
        a, b = self.rows.row(i), self.rows.row(j)
        dtype = self.rows.buffer.dtype
        one, two = number(1.0, dtype), number(2.0, dtype)
        aa, bb, ab = (dot(at, *two_, self.width) for two_ in ((a, a), (b, b), (a, b)))
        limit = call(
            "mul", _limit(self.width, dtype), call("mul", call("sqrt", aa), call("sqrt", bb))
        )
        with at.when(call("gt", call("abs", ab), limit)):
            zeta = at.let(call("div", call("sub", bb, aa), call("mul", two, ab)))
            root = call("sqrt", add(one, call("mul", zeta, zeta)))
            size = at.let(call("div", one, add(call("abs", zeta), root)))
            tangent = at.let(Select(call("lt", zeta, number(0.0, dtype)), call("neg", size), size))
            cosine = at.let(call("div", one, call("sqrt", add(one, call("mul", tangent, tangent)))))
            sine = at.let(call("mul", cosine, tangent))
            rotate(at, a, b, cosine, sine, self.width)
            rotate(at, self.turns.row(i), self.turns.row(j), cosine, sine, self.count)
            at.assign(turned, add(turned, 1))

    def order(self, at: AlgorithmBuilder, lengths: MatrixRow) -> None:
        """The longest rows first; the greatest element of each row of the rotation positive."""
        dtype = self.rows.buffer.dtype
        with at.loop(0, self.count) as i:
            own = self.rows.row(i)
            lengths.store(at, i, call("sqrt", dot(at, own, own, self.width)))
        with at.loop(0, self.count) as i:
            best = at.register(index_number(i))
            with at.loop(i + 1, self.count) as j:
                longest = lengths.load(at, at.index(best))
                with at.when(call("gt", lengths.load(at, j), longest)):
                    at.assign(best, index_number(j))
            p = at.index(best)
            swap(at, self.rows.row(i), self.rows.row(p), self.width)
            swap(at, self.turns.row(i), self.turns.row(p), self.count)
            swap(at, lengths.after(i), lengths.after(p), 1)
            most = at.register(number(0.0, dtype))
            with at.loop(0, self.count) as k:
                value = at.let(self.turns.load(at, i, k))
                with at.when(call("gt", call("abs", value), call("abs", most))):
                    at.assign(most, value)
            with at.when(call("lt", most, number(0.0, dtype))):
                scale(at, self.rows.row(i), number(-1.0, dtype), self.width)
                scale(at, self.turns.row(i), number(-1.0, dtype), self.count)


def _limit(width: Index, dtype: DType) -> Expr:
    """The cosine of an angle that counts as a right one: what sums of ``width`` may be off."""
    unit = number(2 * float(np.finfo(dtype.numpy).eps), dtype)
    root = call("sqrt", Convert(index_number(width), dtype))
    return call("mul", unit, call("add", root, number(1.0, dtype)))


OPS: tuple[type[Op], ...] = (HouseholderQr, Reflect, OrthogonalRows)
