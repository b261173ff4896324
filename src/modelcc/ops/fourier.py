"""Fourier transforms along rows: mixed radix, and by a convolution for prime factors beyond 7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    call,
    convert,
    index_number,
    integer,
    number,
    predicate,
)
from modelcc.ir.compute import Inputs, Operand, Outputs
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Index, floordiv
from modelcc.ir.loop import Expr, Shuffle
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.types import F32, F64, Array, TensorType
from modelcc.ops.bluestein import chirped, filtered, unchirped
from modelcc.ops.butterfly import Complex, minus, plus, scaled, times, turned_back
from modelcc.ops.complex_line import Copies, Line, alternating, copied, split
from modelcc.ops.fourier_tables import FourierLengths as FourierLengths
from modelcc.ops.fourier_tables import FourierTables as FourierTables
from modelcc.ops.fourier_tables import tables
from modelcc.ops.padding import Pad
from modelcc.ops.samples import sample, tensor
from modelcc.ops.shape import Reshape, Slice
from modelcc.ops.stockham import DYNAMIC, dynamic_stages, radices_of, stages

PASSES = 2
"""Passes over the numbers, at least, that a transform is worth."""


@dataclass(frozen=True)
class FourierTransform(Op):
    """``result[r, k] = sum over t of x[r, t] exp(-2 pi i t k / length)``, with real parts first.

    Operands: x [rows, length, 2] or, if ``real``, [rows, length]; the tables that
    :func:`~modelcc.ops.fourier_tables.tables` gives for the length, or
    :class:`~modelcc.ops.fourier_tables.FourierTables` for one known at run time.  The result is
    [rows, length, 2], or of a ``real`` operand its first half [rows, length // 2 + 1, 2], which
    the other one mirrors.  ``inverse`` conjugates the factors, ``divided`` divides by the length.
    """

    length: Index
    inverse: bool = False
    divided: bool = False
    real: bool = False
    samples = (
        *(
            sample(tensor(2, n, 2), *tables(n, F32), length=n)
            for n in (1, 2, 8, 12, 15, 22, 60, 64, 128)
        ),
        sample(tensor(3, 40, 2), *tables(40, F32), length=40, inverse=True),
        sample(tensor(1, 26, 2), *tables(26, F32), length=26, inverse=True, divided=True),
        *(
            sample(tensor(2, n), *tables(n, F32), length=n, real=True)
            for n in (1, 2, 9, 24, 34, 80)
        ),
    )

    def infer(
        self,
        x: TensorType,
        factors: TensorType,
        filter: TensorType | None = None,
        chirp: TensorType | None = None,
    ) -> tuple[TensorType]:
        require(x.dtype in (F32, F64), f"FourierTransform of {x.dtype}, which is not f32 or f64")
        empty = isinstance(self.length, int) and self.length < 1
        require(not empty, f"FourierTransform of {self.length} numbers")
        require(not (self.real and self.inverse), "FourierTransform of real numbers is forward")
        shape = (self.length,) if self.real else (self.length, 2)
        require(x.rank > 0 and x.shape[1:] == shape, f"FourierTransform of {self.length} in {x}")
        given = [t for t in (factors, filter, chirp) if t is not None]
        fits = all(t.dtype == x.dtype and t.rank == 2 and t.shape[0] == 2 for t in given)
        require(fits, f"FourierTransform of {x} with tables {', '.join(map(str, given))}")
        return (TensorType((x.shape[0], self.count, 2), x.dtype),)

    def shape_constraints(self, *operands: TensorType | None) -> Constraints:
        return ((self.length, ">=", 1),)

    @property
    def count(self) -> Index:
        """How many numbers a row of the result has."""
        return floordiv(self.length, 2) + 1 if self.real else self.length

    def reference(
        self, x: Array, factors: Array, filter: Array | None = None, chirp: Array | None = None
    ) -> Array:
        wide = x.astype(np.float64)
        if self.real:
            found = np.fft.rfft(wide, axis=1)
        else:
            numbers = wide[..., 0] + 1j * wide[..., 1]
            found = np.fft.ifft(numbers) * x.shape[1] if self.inverse else np.fft.fft(numbers)
        if self.divided:
            found = found / x.shape[1]
        return np.stack([found.real, found.imag], -1).astype(x.dtype)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, *tables = inputs
        back = FourierTransform(self.length, not self.inverse, self.divided)
        dy = dys[0]
        if self.real:
            dy = build.emit(Pad((0, 0, 0), (0, self.length - self.count, 0)), dy)
        dx = build.emit(back, dy, *tables)
        if self.real:
            rows = build.type_of(x).shape[0]
            parts = build.emit(Slice((0, 0, 0), (rows, self.length, 1), (1, 1, 1)), dx)
            dx = build.emit(Reshape((rows, self.length)), parts)
        return dx, *(None for _ in tables)

    # --- loops

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        x, factors, filter, chirp = (*inputs, None, None)[:4]
        assert x is not None and factors is not None
        rows, work = x.shape[0], PASSES * x.type.elements
        short = rows == 1 or at.capacity.is_little(work)
        blocks = 1 if short else at.capacity.blocks(rows)
        room = factors.shape[1]
        memory = at.scratch(x.dtype, 4 * room * blocks)
        with at.shared_loop(blocks, work) as block:
            copies = Copies(memory, room, block * 4 * room)
            with at.loop(block * rows // blocks, (block + 1) * rows // blocks) as row:
                source, target = self._source(x, row), self._target(at, outputs[0], row)
                self._row(at, source, target, copies, (factors, filter, chirp))

    def _source(self, x: Operand, row: Index) -> Line:
        if self.real:
            return Line(x, row * self.length)
        line = alternating(x, row * 2 * self.length)
        return line.exchanged() if self.inverse else line

    def _target(self, at: AlgorithmBuilder, y: Operand, row: Index) -> Line:
        line = alternating(y, row * self.count * 2)
        if self.divided:
            extent = convert(index_number(self.length), y.dtype)
            line = line.times(at.let(call("div", number(1.0, y.dtype), extent)))
        return line.exchanged() if self.inverse else line

    def _row(
        self, at: AlgorithmBuilder, source: Line, target: Line, copies: Copies, tables: _Tables
    ) -> None:
        n, count = self.length, self.count
        factors = _table(tables[0])
        if not isinstance(n, int):
            with at.when(predicate(n, ">", 0)):
                _dynamic_row(at, self, source, target, copies, tables)
        elif tables[1] is not None:
            _filtered_row(at, n, count, source, target, copies, tables)
        elif self.real and n % 2 == 0:
            found = _within(at, n // 2, source.pairs(), copies, factors.every(2))
            half_spectrum(at, n // 2, found, target, factors)
        elif self.real:
            copied(at, count, _within(at, n, source, copies, factors), target)
        else:
            stages(at, _radices(n), source, target, (copies.at(0), copies.at(1)), factors)


_Tables = tuple[Operand, Operand | None, Operand | None]
"""Factors, filter, chirp."""


def _table(operand: Operand | None) -> Line:
    if operand is None:
        raise ValueError("a table is missing")
    return split(operand, operand.shape[1])


def _radices(length: Index) -> tuple[int, ...]:
    found = radices_of(length) if isinstance(length, int) else None
    assert found is not None, length
    return found


def _within(
    at: AlgorithmBuilder, length: Index, source: Line, copies: Copies, factors: Line
) -> Line:
    """The transform in one of the copies."""
    radices = _radices(length)
    target = copies.at(len(radices) % 2)
    stages(at, radices, source, target, (copies.at(0), copies.at(1)), factors)
    return target


def _filtered_row(
    at: AlgorithmBuilder,
    length: Index,
    count: Index,
    source: Line,
    target: Line,
    copies: Copies,
    tables: _Tables,
) -> None:
    """By a convolution, of a length that is given."""
    factors, filter, chirp = map(_table, tables)
    fast = copies.room
    chirped(at, length, fast, source, chirp, copies.at(0))
    found = _within(at, fast, copies.at(0), copies, factors)
    filtered(at, fast, found, filter, copies.at(0))
    found = _within(at, fast, copies.at(0), copies, factors)
    unchirped(at, count, found, chirp, target)


def _dynamic_row(
    at: AlgorithmBuilder,
    op: FourierTransform,
    source: Line,
    target: Line,
    copies: Copies,
    tables: _Tables,
) -> None:
    """Of a length known at run time: one transform, or two around a convolution."""
    factors, filter, chirp = map(_table, tables)
    terms = cast(Operand, tables[2]).shape[1]
    room, first = copies.room, copies.at(0)
    which, rounds = at.register(integer(0)), at.register(integer(1))
    size, step = at.register(index_number(room)), at.register(integer(1))
    with at.when(predicate(terms, ">", 0)):
        at.assign(rounds, integer(2))
        chirped(at, op.length, room, source, chirp, first)
    with at.otherwise():
        copied(at, op.length, source, first)
        if op.real:
            with at.when(predicate(op.length % 2, "==", 0)):
                at.assign(size, index_number(op.length // 2))
                at.assign(step, integer(2))
                copied(at, op.length // 2, source.pairs(), first)
    fast, stride = at.index(size), at.index(step)
    with at.loop(0, at.index(rounds)) as done:
        dynamic_stages(at, fast, copies, factors.every(stride), which, DYNAMIC)
        with at.when(predicate(done + 1, "<", at.index(rounds))):
            filtered(at, room, copies.at(at.index(which)), filter, first)
    found = copies.at(at.index(which))
    with at.when(predicate(terms, ">", 0)):
        unchirped(at, op.count, found, chirp, target)
    with at.otherwise():
        with at.when(predicate(stride, "==", 2)):
            half_spectrum(at, op.length // 2, found, target, factors)
        with at.otherwise():
            copied(at, op.count, found, target)


def half_spectrum(
    at: AlgorithmBuilder, half: Index, source: Line, target: Line, factors: Line
) -> None:
    """Frequencies 0 … ``half`` of 2 * ``half`` real numbers.

    ``source`` has the transform of every pair of neighbours taken as a complex number, and
    ``factors`` is the table for 2 * ``half`` (Sorensen and others, "Real-valued fast Fourier
    transform algorithms", 1987).
    """
    real, imaginary = source.read(at, 0)
    none = number(0.0, real.dtype)
    target.write(at, 0, (at.let(call("add", real, imaginary)), none))
    target.write(at, half, (at.let(call("sub", real, imaginary)), none))
    for place, lanes in at.vectors(half // 2):
        low = 1 + place
        high = half - low - (lanes - 1)
        own = source.read(at, low, lanes)
        other = _conjugate(at, _reversed(source.read(at, high, lanes)))
        even = scaled(at, plus(at, own, other), 0.5)
        odd = scaled(at, minus(at, own, other), 0.5)
        odd = turned_back(at, times(at, odd, factors.read(at, low, lanes)))
        target.write(at, low, plus(at, even, odd))
        target.write(at, high, _reversed(_conjugate(at, minus(at, even, odd))))


def _conjugate(at: AlgorithmBuilder, value: Complex) -> Complex:
    return value[0], at.let(call("neg", value[1]))


def _reversed(value: Complex) -> Complex:
    return _backwards(value[0]), _backwards(value[1])


def _backwards(value: Expr) -> Expr:
    if value.lanes == 1:
        return value
    return Shuffle(value, value, tuple(reversed(range(value.lanes))))


OPS: tuple[type[Op], ...] = (FourierLengths, FourierTables, FourierTransform)
