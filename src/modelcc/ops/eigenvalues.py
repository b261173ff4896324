"""Eigenvalues of matrices that need not be symmetric, by the QR algorithm on complex numbers
(Golub and Van Loan, Matrix Computations, 7.4 to 7.6).  Leading axes are matrices that have nothing
to do with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, add, call, index_number, integer, number
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.index import Index
from modelcc.ir.loop import Buffer, Expr, Var
from modelcc.ir.op import Op, require
from modelcc.ir.types import F64, Array, DType, TensorType
from modelcc.ops.complex_matrix import (
    ComplexLine,
    ComplexNumber,
    ComplexSquare,
    Rotation,
    rotation,
    turn_lines,
)
from modelcc.ops.matrix_rows import MatrixRow, count_of, require_matrices, swap
from modelcc.ops.samples import sample, tensor

TURNS = 30
"""Turns of the QR algorithm for each eigenvalue at most; about three are usual."""
UNUSUAL = 10
"""So many turns without an eigenvalue are followed by one with another shift."""
HUGE = 1e9
"""Elements of an eigenvector beyond this are scaled, so that no square overflows."""


@dataclass(frozen=True)
class Eigen(Op):
    """Eigenvalues [..., n] and eigenvectors [..., n, n], as rows, of complex matrices, whose real
    and imaginary parts are the operands; real and imaginary parts of values, then of vectors.

    Values fall by ``re + im / 2``; a vector has length 1, and its greatest element is positive.
    All is NaN where ``TURNS`` do not suffice, which is not to be expected of finite numbers.
    """

    differentiable = False
    samples = (
        sample(tensor(2, 4, 4, dtype=F64), tensor(2, 4, 4, dtype=F64)),
        sample(tensor(7, 7, dtype=F64), np.zeros((7, 7))),
        sample(tensor(3, 3), tensor(3, 3)),
        sample(np.array([[2.0, 1, 0], [0, 3, 5], [0, 0, -1]]), np.zeros((3, 3))),
        sample(tensor("b", "n", "n", dtype=F64), tensor("b", "n", "n", dtype=F64)),
        sample(tensor(1, 1), tensor(1, 1)),
    )

    def infer(self, re: TensorType, im: TensorType) -> tuple[TensorType, ...]:
        require_matrices(re, "Eigen", square=True)
        require(re == im, f"Eigen of {re} with imaginary parts {im}")
        values = TensorType(re.shape[:-1], re.dtype)
        return values, values, re, re

    def reference(self, re: Array, im: Array) -> tuple[Array, ...]:
        found: tuple[Array, Array] = np.linalg.eig(re.astype(np.float64) + 1j * im)
        order = np.argsort(-(_real(found[0]) + _imaginary(found[0]) / 2), -1, kind="stable")
        values: Array = np.take_along_axis(found[0], order, -1)
        rows: Array = np.take_along_axis(np.swapaxes(found[1], -1, -2), order[..., None], -2)
        if rows.size:
            most = np.take_along_axis(rows, np.abs(rows).argmax(-1)[..., None], -1)
            rows = rows * np.abs(most) / most
        parts = (_real(values), _imaginary(values), _real(rows), _imaginary(rows))
        return tuple(part.astype(re.dtype) for part in parts)

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (re, im), (values_re, values_im, rows_re, rows_im) = inputs, outputs
        assert re is not None and im is not None
        n, count = re.shape[-1], count_of(re.type)
        h_re, h_im, z_re, z_im = (at.scratch(re.dtype, count * n * n) for _ in range(4))
        spare = [at.scratch(re.dtype, count * n) for _ in range(4)]
        with at.shared_loop(count, re.type.elements * n * 10) as matrix:
            first, line = matrix * n * n, matrix * n
            at.copy(h_re, first, re, first, n * n)
            at.copy(h_im, first, im, first, n * n)
            h, z = ComplexSquare(h_re, h_im, first, n), ComplexSquare(z_re, z_im, first, n)
            turns = ComplexLine(spare[0], spare[1], line), ComplexLine(spare[2], spare[3], line)
            own = _Schur(at, h, z, n, *turns)
            own.begin()
            own.hessenberg()
            unsolved = own.triangle()
            values = ComplexLine(values_re, values_im, line)
            rows = ComplexSquare(rows_re, rows_im, first, n)
            with at.loop(0, n) as k:
                values.store(at, k, h.row(k).load(at, k))
                own.vector(k, turns[0], rows.row(k))
            _ordered(at, values, rows)
            with at.when(call("gt", unsolved, integer(0))):
                none = at.let(call("sqrt", number(-1.0, re.dtype)))
                with at.loop(0, n) as k:
                    values.store(at, k, ComplexNumber(at, none, none))


@dataclass(frozen=True)
class _Schur:
    """A matrix ``h`` that becomes triangular, and ``z``, whose rows are turned as columns are."""

    at: AlgorithmBuilder
    h: ComplexSquare
    z: ComplexSquare
    n: Index
    cosines: ComplexLine
    sines: ComplexLine

    @property
    def dtype(self) -> DType:
        return self.h.re.dtype

    def constant(self, value: float) -> ComplexNumber:
        return ComplexNumber(self.at, number(value, self.dtype), number(0.0, self.dtype))

    def begin(self) -> None:
        """Nothing is turned yet."""
        with self.at.loop(0, self.n) as i:
            with self.at.loop(0, self.n) as j:
                self.z.row(i).store(self.at, j, self.constant(0.0))
            self.z.row(i).store(self.at, i, self.constant(1.0))

    def _turn_rows(self, i: Index, j: Index, turn: Rotation, start: Index) -> None:
        back = turn[0].conjugate, turn[1].conjugate
        turn_lines(self.at, self.h.row(i), self.h.row(j), back, (start, self.n))

    def _turn_columns(self, i: Index, j: Index, turn: Rotation, stop: Index) -> None:
        turn_lines(self.at, self.h.column(i), self.h.column(j), turn, (0, stop))
        turn_lines(self.at, self.z.row(i), self.z.row(j), turn, (0, self.n))

    def hessenberg(self) -> None:
        """Zeros below the first diagonal under the main one."""
        at = self.at
        with at.loop(0, self.n - 2) as k, at.loop(k + 2, self.n) as i:
            column = self.h.column(k)
            turn = rotation(at, column.load(at, k + 1), column.load(at, i))
            self._turn_rows(k + 1, i, turn, k)
            column.store(at, i, self.constant(0.0))
            self._turn_columns(k + 1, i, turn, self.n)

    def triangle(self) -> Var:
        """Zeros below the diagonal; the number of the last row that has none, 0 if all have."""
        at = self.at
        last = at.register(index_number(self.n - 1))
        turns, total = at.register(integer(0)), at.register(integer(0))
        most = index_number(self.n * TURNS)
        with at.while_(call("and", call("gt", last, integer(0)), call("lt", total, most))):
            first = self._block(last)
            done = at.let(call("eq", first, last))
            with at.when(done):
                at.assign(last, add(last, -1))
                at.assign(turns, integer(0))
            with at.otherwise():
                at.assign(turns, add(turns, 1))
                at.assign(total, add(total, 1))
                unusual = call("eq", call("mod", turns, integer(UNUSUAL)), integer(0))
                self._step(at.index(first), at.index(last), at.let(unusual))
        return last

    def _block(self, last: Var) -> Var:
        """The first row of the block that ends with ``last``: a zero is before it."""
        at, unit = self.at, number(float(np.finfo(self.dtype.numpy).eps), self.dtype)
        first, going = at.register(last), at.register(integer(1))
        with at.while_(call("and", call("gt", first, integer(0)), call("eq", going, integer(1)))):
            i = at.index(first)
            row, before = self.h.row(i), self.h.row(i - 1)
            sizes = call("add", row.load(at, i).size, before.load(at, i - 1).size)
            large = at.let(call("gt", row.load(at, i - 1).size, call("mul", unit, sizes)))
            with at.when(large):
                at.assign(first, add(first, -1))
            with at.otherwise():
                row.store(at, i - 1, self.constant(0.0))
                at.assign(going, integer(0))
        return first

    def _step(self, first: Index, last: Index, unusual: Expr) -> None:
        """One turn of the algorithm on the rows from ``first`` to ``last``."""
        at, shift = self.at, self._shift(last, unusual)
        with at.loop(first, last + 1) as i:
            self.h.row(i).store(at, i, self.h.row(i).load(at, i) - shift)
        with at.loop(first, last) as k:
            column = self.h.column(k)
            turn = rotation(at, column.load(at, k), column.load(at, k + 1))
            self._turn_rows(k, k + 1, turn, k)
            self.cosines.store(at, k, turn[0])
            self.sines.store(at, k, turn[1])
        with at.loop(first, last) as k:
            turn = self.cosines.load(at, k), self.sines.load(at, k)
            self._turn_columns(k, k + 1, turn, k + 2)
        with at.loop(first, last + 1) as i:
            self.h.row(i).store(at, i, self.h.row(i).load(at, i) + shift)

    def _shift(self, last: Index, unusual: Expr) -> ComplexNumber:
        """The eigenvalue of the last two rows and columns that is closer to the last element."""
        at, half = self.at, number(0.5, self.dtype)
        above, below = self.h.row(last - 1), self.h.row(last)
        end, under = below.load(at, last), below.load(at, last - 1)
        half_gap = (above.load(at, last - 1) - end).scaled(half)
        crossed = above.load(at, last) * under
        root = (half_gap * half_gap + crossed).root()
        plus, minus = half_gap + root, half_gap - root
        great = plus.where(call("gt", plus.size, minus.size), minus)
        none = at.let(call("eq", great.size, number(0.0, self.dtype)))
        usual = end - crossed / self.constant(1.0).where(none, great)
        other = end + ComplexNumber(at, under.size, number(0.0, self.dtype))
        return other.where(unusual, usual)

    def vector(self, k: Index, x: ComplexLine, row: ComplexLine) -> None:
        """The eigenvector of number ``k`` on the diagonal, by way of that of the triangle."""
        at = self.at
        x.store(at, k, self.constant(1.0))
        with at.loop(0, k) as step:
            self._solve(k - 1 - step, k, x)
        with at.loop(0, self.n) as j:
            row.store(at, j, self.constant(0.0))
        with at.loop(0, k + 1) as i:
            factor = x.load(at, i)
            with at.loop(0, self.n) as j:
                row.store(at, j, row.load(at, j) + factor * self.z.row(i).load(at, j))
        _normalise(at, row, self.n)

    def _solve(self, i: Index, k: Index, x: ComplexLine) -> None:
        """Element ``i`` of an eigenvector of a triangle; equal eigenvalues count as close ones."""
        at, zero = self.at, number(0.0, self.dtype)
        re, im = at.register(zero), at.register(zero)
        with at.loop(i + 1, k + 1) as j:
            term = self.h.row(i).load(at, j) * x.load(at, j)
            at.assign(re, call("add", re, term.re))
            at.assign(im, call("add", im, term.im))
        unit = self.constant(float(np.finfo(self.dtype.numpy).eps))
        gap = self.h.row(k).load(at, k) - self.h.row(i).load(at, i)
        gap = gap.where(call("gt", gap.size, unit.re), unit)
        found = ComplexNumber(at, re, im) / gap
        x.store(at, i, found)
        with at.when(call("gt", found.size, number(HUGE, self.dtype))), at.loop(i, k + 1) as j:
            x.store(at, j, x.load(at, j).scaled(number(1 / HUGE, self.dtype)))


def _normalise(at: AlgorithmBuilder, row: ComplexLine, n: Index) -> None:
    """Length 1, the greatest element positive."""
    zero, one = number(0.0, row.re.dtype), number(1.0, row.re.dtype)
    squares, most = at.register(zero), at.register(zero)
    re, im = at.register(one), at.register(zero)
    with at.loop(0, n) as j:
        value = row.load(at, j)
        size = value.size
        at.assign(squares, call("add", squares, call("mul", size, size)))
        with at.when(call("gt", size, most)):
            at.assign(most, size)
            at.assign(re, call("div", value.re, size))
            at.assign(im, call("div", value.im, size))
    length = at.let(call("sqrt", squares))
    factor = ComplexNumber(at, re, im).conjugate.scaled(call("div", one, length))
    with at.loop(0, n) as j:
        row.store(at, j, row.load(at, j) * factor)


def _real(x: Array) -> Array:
    return np.real(x)


def _imaginary(x: Array) -> Array:
    return np.imag(x)


def _ordered(at: AlgorithmBuilder, values: ComplexLine, rows: ComplexSquare) -> None:
    """By falling ``re + im / 2``."""
    half = number(0.5, values.re.dtype)

    def key(place: Index) -> Var:
        value = values.load(at, place)
        return at.let(call("add", value.re, call("mul", value.im, half)))

    with at.loop(0, rows.n) as i:
        best, most = at.register(index_number(i)), at.register(key(i))
        with at.loop(i + 1, rows.n) as j:
            own = key(j)
            with at.when(call("gt", own, most)):
                at.assign(most, own)
                at.assign(best, index_number(j))
        p = at.index(best)
        for own, all_values in ((rows.re, values.re), (rows.im, values.im)):
            swap(at, *_both(own, rows.start + i * rows.n, rows.start + p * rows.n), rows.n)
            swap(at, *_both(all_values, values.start + i, values.start + p), 1)


def _both(buffer: Buffer | Operand, one: Index, other: Index) -> tuple[MatrixRow, MatrixRow]:
    return MatrixRow(buffer, one), MatrixRow(buffer, other)


OPS: tuple[type[Op], ...] = (Eigen,)
