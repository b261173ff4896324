"""Triangular factors of matrices (Golub and Van Loan, Matrix Computations, 3.4 and 4.2).

Leading axes are matrices that have nothing to do with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, call, index_number, integer, number, splat
from modelcc.ir.compute import Inputs, Outputs
from modelcc.ir.index import Index, minimum, product
from modelcc.ir.loop import Convert, Var
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.types import F32, F64, I32, I64, Array, DType, TensorType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand, numbers
from modelcc.ops.comparison import Equal, where
from modelcc.ops.factor_gradients import cholesky_adjoint, lu_adjoint
from modelcc.ops.gather_elements import ScatterElements
from modelcc.ops.generate import filled
from modelcc.ops.matrix_rows import (
    MatrixRows,
    count_of,
    dot,
    require_matrices,
    rows_of,
    subtract_scaled,
    swap,
)
from modelcc.ops.matrix_values import column
from modelcc.ops.samples import sample, tensor
from modelcc.ops.triangular_solve import TriangularSolve
from modelcc.ops.views import cast, reshaped


def _positive(*shape: int, dtype: DType = F32) -> Array:
    """Positive definite matrices."""
    a: Array = np.random.default_rng(3).normal(size=shape)
    return np.asarray(a @ np.swapaxes(a, -1, -2) + 2 * np.eye(shape[-1])).astype(dtype.numpy)


_INDEFINITE = np.array([[[4, 9, 9], [2, 5, 9], [1, 3, 1]], [[4, 0, 0], [2, 5, 0], [1, 3, 9]]])


@dataclass(frozen=True)
class Cholesky(Op):
    """The lower triangular ``l`` with ``l @ l.T`` = x [..., n, n], of which the lower triangle is
    read, and i32[...]: 0, or the order of the first leading minor that is not positive: ``l`` is
    NaN then.
    """

    samples = (
        sample(_positive(2, 5, 5)),
        sample(_positive(11, 11, dtype=F64)),
        sample(_INDEFINITE.astype(np.float32)),
        sample(np.full((1, 1), np.nan, np.float32)),
        sample(tensor(2, "n", "n")),
        sample(tensor(2, 0, 0)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require_matrices(x, "Cholesky", square=True)
        return x, TensorType(x.shape[:-2], I32)

    def reference(self, x: Array) -> tuple[Array, Array]:
        found, info = np.empty_like(x), np.zeros(x.shape[:-2], np.int32)
        for at in np.ndindex(info.shape):
            info[at] = next((k for k in range(1, x.shape[-1] + 1) if not _factored(x[at], k)), 0)
            found[at] = np.nan if info[at] else np.linalg.cholesky(x[at])
        return found, info

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """Of the triangle that is read; 0 of matrices without a factor."""
        factor, info, dy = (Value(build, name) for name in (*outputs, dys[0]))
        found = of(Equal(), info, info.lift(0.0))
        cases = reshaped(found, *found.type.shape, 1, 1)
        return (where(cases, cholesky_adjoint(factor, dy), 0.0).name,)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (y, info) = inputs, outputs
        assert x is not None
        n, count = x.shape[-1], count_of(x.type)
        with at.shared_loop(count, x.type.elements * n) as matrix:
            a, factor = rows_of(x, matrix), rows_of(y, matrix)
            bad = at.register(integer(0))
            with at.loop(0, n) as i:
                with at.loop(0, i) as j:
                    rest = call("sub", a.load(at, i, j), dot(at, factor.row(i), factor.row(j), j))
                    factor.store(at, i, j, call("div", rest, factor.load(at, j, j)))
                own = dot(at, factor.row(i), factor.row(i), i)
                square = at.let(call("sub", a.load(at, i, i), own))
                factor.store(at, i, i, call("sqrt", square))
                at.fill(y, factor.row(i).start + i + 1, n - i - 1, number(0.0, x.dtype))
                odd = call("not", call("gt", square, number(0.0, x.dtype)))
                with at.when(call("and", odd, call("eq", bad, integer(0)))):
                    at.assign(bad, index_number(i + 1))
            at.store(info, matrix, Convert(bad, I32))
            with at.when(call("ne", bad, integer(0))):
                below = call("sub", number(0.0, x.dtype), Convert(bad, x.dtype))
                none = at.let(call("sqrt", below))
                for place, lanes in at.vectors(n * n):
                    at.store(y, factor.start + place, splat(none, lanes))


def _factored(x: Array, order: int) -> bool:
    """Whether the leading block of that order has a factor."""
    try:
        return bool(np.isfinite(np.linalg.cholesky(x[:order, :order])).all())
    except np.linalg.LinAlgError:
        return False


@dataclass(frozen=True)
class Lu(Op):
    """Triangular factors with rows exchanged: of x [..., m, n] those below and above the diagonal
    in one matrix, the row that each of the first min(m, n) was exchanged with, i32[..., min(m, n)],
    and i32[...]: 0, or the number (from 1 on) of the first pivot that is 0.

    The pivot is the greatest of its column, the first of equal ones.
    """

    samples = (
        sample(tensor(2, 5, 5)),
        sample(tensor(3, 6, dtype=F64)),
        sample(tensor(7, 4)),
        sample(np.array([[0, 0, 1], [0, 0, 2], [0, 3, 4]], np.float32)),
        sample(tensor("b", "n", "n")),
        sample(tensor(2, 1, 1)),
        sample(tensor(2, 0, 3)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        require_matrices(x, "Lu")
        least = minimum(*x.shape[-2:])
        return x, TensorType((*x.shape[:-2], least), I32), TensorType(x.shape[:-2], I32)

    def reference(self, x: Array) -> tuple[Array, Array, Array]:
        y, least = x.copy(), min(x.shape[-2:])
        pivots = np.zeros((*x.shape[:-2], least), np.int32)
        info = np.zeros(x.shape[:-2], np.int32)
        for at in np.ndindex(info.shape):
            for k in range(least):
                a = y[at]
                p = k + int(np.argmax(np.abs(a[k:, k])))
                pivots[(*at, k)] = p
                a[[k, p]] = a[[p, k]]
                if a[k, k] == 0:
                    info[at] = info[at] or k + 1
                    continue
                a[k + 1 :, k] /= a[k, k]
                a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
        return y, pivots, info

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """Rows go back to where they were before they were exchanged; pivots are not moved."""
        packed, pivots, dy = (Value(build, name) for name in (*outputs[:2], dys[0]))
        turned, rank = lu_adjoint(packed, dy), packed.type.rank
        order = of(PivotPermutation(packed.type.shape[-2]), pivots)
        places = of(Expand(packed.type.shape), cast(column(order), I64))
        zero = Value(build, filled(build, turned.name))
        return (of(ScatterElements(rank - 2), zero, places, turned).name,)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (x,), (y, pivots, info) = inputs, outputs
        assert x is not None
        m, n = x.shape[-2:]
        least = minimum(m, n)
        with at.shared_loop(count_of(x.type), x.type.elements * least) as matrix:
            a = rows_of(y, matrix)
            at.copy(y, a.start, x, a.start, m * n)
            bad = at.register(integer(0))
            with at.loop(0, least) as k:
                p = at.index(_greatest(at, a, k, m))
                at.store(pivots, matrix * least + k, index_number(p, I32))
                with at.when(call("ne", index_number(p), index_number(k))):
                    swap(at, a.row(k), a.row(p), n)
                pivot = at.let(a.load(at, k, k))
                zero = at.let(call("eq", pivot, number(0.0, x.dtype)))
                with at.when(call("and", zero, call("eq", bad, integer(0)))):
                    at.assign(bad, index_number(k + 1))
                with at.when(call("not", zero)), at.loop(k + 1, m) as i:
                    factor = at.let(call("div", a.load(at, i, k), pivot))
                    a.store(at, i, k, factor)
                    rest = n - k - 1
                    subtract_scaled(at, a.row(i).after(k + 1), a.row(k).after(k + 1), factor, rest)
            at.store(info, matrix, Convert(bad, I32))


def _greatest(at: AlgorithmBuilder, a: MatrixRows, column: Index, height: Index) -> Var:
    """The row, from that of the diagonal on, that has the greatest number of a column."""
    best = at.register(index_number(column))
    most = at.register(call("abs", a.load(at, column, column)))
    with at.loop(column + 1, height) as i:
        size = at.let(call("abs", a.load(at, i, column)))
        with at.when(call("gt", size, most)):
            at.assign(most, size)
            at.assign(best, index_number(i))
    return best


@dataclass(frozen=True)
class PivotPermutation(Op):
    """The order i32[..., rows] in which rows come to lie that are exchanged one after the other:
    row i with row ``pivots[..., i]``, i32[..., k].
    """

    differentiable = False
    rows: Index
    samples = (
        sample(np.array([[2, 2, 2], [0, 3, 3]], np.int32), rows=4),
        sample(np.array([1, 1], np.int32), rows=2),
        sample(np.zeros((2, 0), np.int32), rows=3),
    )

    def infer(self, pivots: TensorType) -> tuple[TensorType]:
        require(pivots.dtype == I32 and pivots.rank > 0, f"PivotPermutation of {pivots}")
        return (TensorType((*pivots.shape[:-1], self.rows), I32),)

    def reference(self, pivots: Array) -> Array:
        (rows,) = numbers((self.rows,))
        found = np.broadcast_to(np.arange(rows, dtype=np.int32), (*pivots.shape[:-1], rows)).copy()
        for at in np.ndindex(pivots.shape):
            own, k, p = found[at[:-1]], at[-1], int(pivots[at])
            own[k], own[p] = own[p], own[k]
        return found

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (pivots,), (order,) = inputs, outputs
        assert pivots is not None
        count = pivots.shape[-1]
        with at.shared_loop(product(pivots.shape[:-1]), order.type.elements) as matrix:
            first = matrix * self.rows
            with at.loop(0, self.rows) as i:
                at.store(order, first + i, index_number(i, I32))
            with at.loop(0, count) as k:
                wanted = at.load(pivots, matrix * count + k)
                # Numbers of a caller's that are no rows stay inside.
                low = call("max", wanted, number(0, I32))
                last = index_number(self.rows - 1, I32)
                p = at.index(call("min", low, last))
                one, other = at.let(at.load(order, first + k)), at.let(at.load(order, first + p))
                at.store(order, first + k, other)
                at.store(order, first + p, one)


OPS: tuple[type[Op], ...] = (Cholesky, TriangularSolve, Lu, PivotPermutation)
