"""Factors that Fourier transforms multiply with: in NumPy, and in loops for dynamic lengths."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import numpy as np

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    integer,
    number,
    predicate,
    splat,
)
from modelcc.ir.compute import Inputs, Outputs
from modelcc.ir.index import Index, Sym, minimum
from modelcc.ir.loop import Expr, IndexOf, Select, Var
from modelcc.ir.op import Op, require
from modelcc.ir.types import F32, F64, I64, Array, DType, TensorType
from modelcc.ops.bluestein import clear
from modelcc.ops.broadcast import numbers
from modelcc.ops.butterfly import Complex, times
from modelcc.ops.complex_line import Copies, Line, copied, split
from modelcc.ops.samples import sample
from modelcc.ops.stockham import CONVOLVED, divides, dynamic_stages, radices_of

PRIMES = (2, 3, 5, 7)
FRACTIONS = ((15, 16), (3, 4), (5, 8), (9, 16))
"""Of powers of two: longer lengths beside these, for whose factors there are stages."""


STEP = 64
"""Neighbouring roots that are one root times the first ones."""


def tables(length: int, dtype: DType) -> tuple[Array, ...]:
    """What :class:`~modelcc.ops.fourier.FourierTransform` of this length multiplies with.

    ``exp(-2 pi i t / n)``, as [2, n] real and imaginary parts.  Where the length has a prime factor
    beyond 7: that for the longer length of a convolution, its filter, and the chirp.
    """
    if radices_of(length) is not None:
        return (_parts(_roots(length), dtype),)
    fast = fast_length(length)
    chirp = np.exp(1j * _chirp_angles(length))
    return tuple(_parts(a, dtype) for a in (_roots(fast), _filter(chirp, fast), chirp))


def fast_length(length: int) -> int:
    """Room for the convolution of a transform of ``length``, a multiple of 8."""
    fast = -(-(2 * length - 1) // 8) * 8
    while radices_of(fast) is None:
        fast += 8
    return fast


def _dynamic_fast_length(length: int) -> int:
    """The same among powers of two and :data:`FRACTIONS` of them."""
    power = 1 << (2 * length - 2).bit_length()
    fractions = (power * part // whole for part, whole in FRACTIONS)
    return min(n for n in (power, *fractions) if n >= 2 * length - 1 and n % 8 == 0)


def _roots(length: int) -> Array:
    places = np.arange(length)
    return np.exp(-2j * np.pi * (places - length * (2 * places > length)) / length)


def _chirp_angles(length: int) -> Array:
    places = np.arange(length, dtype=np.int64)
    turns = places * places % (2 * length)
    return -np.pi * (turns - 2 * length * (turns > length)) / length


def _parts(values: Array, dtype: DType) -> Array:
    return np.stack([np.real(values), np.imag(values)]).astype(dtype.numpy)


@dataclass(frozen=True)
class FourierLengths(Op):
    """How many numbers each table for a dynamic ``length`` has: i64[3].

    Factors, filter, chirp: as :func:`tables` has them, but for the longer length, a power of two or
    one of the :data:`FRACTIONS` of one.
    """

    differentiable = False
    length: Index
    samples = tuple(sample(length=n) for n in (1, 7, 11, 64, 65, 67, 127, 257, 4096, 4099))

    def infer(self) -> tuple[TensorType]:
        return (TensorType((3,), I64),)

    def reference(self) -> Array:
        (length,) = numbers((self.length,))
        if radices_of(length) is not None:
            return np.array([length, 0, 0])
        fast = _dynamic_fast_length(length)
        return np.array([fast, fast, length])

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (found,), whole = outputs, at.let(index_number(self.length))
        rest, fast = at.register(whole), at.register(whole)
        filter, chirp = at.register(integer(0)), at.register(integer(0))
        for prime in PRIMES:
            with at.while_(divides(rest, prime)):
                at.assign(rest, call("div", rest, integer(prime)))
        with at.when(call("gt", rest, integer(1))):
            at.assign(fast, integer(1))
            with at.while_(call("lt", fast, index_number(2 * self.length - 1))):
                at.assign(fast, call("mul", fast, integer(2)))
            power = at.let(fast)
            for part, of in FRACTIONS:
                share = at.let(call("div", call("mul", power, integer(part)), integer(of)))
                fits = call("ge", share, index_number(2 * self.length - 1))
                with at.when(call("and", fits, divides(share, 8))):
                    at.assign(fast, share)
            at.assign(filter, fast)
            at.assign(chirp, whole)
        for place, value in enumerate((fast, filter, chirp)):
            at.store(found, place, value)


@dataclass(frozen=True)
class FourierTables(Op):
    """The tables of a dynamic ``length``, as [2, numbers]: factors, filter, chirp.

    ``sizes`` says how many numbers they have (:class:`FourierLengths`).
    """

    differentiable = False
    length: Index
    sizes: tuple[Index, Index, Index]
    dtype: DType = F32
    samples = (
        *(sample(length=n, sizes=(n, 0, 0)) for n in (1, 12, 130)),
        *(
            sample(length=n, sizes=(m, m, n))
            for n, m in ((11, 32), (13, 32), (67, 144), (73, 160), (97, 240))
        ),
        sample(length=Sym("n"), sizes=(Sym("n"), 0, 0), dtype=F64),
    )

    def infer(self) -> tuple[TensorType, TensorType, TensorType]:
        require(self.dtype in (F32, F64), f"FourierTables of {self.dtype}, not f32 or f64")
        factors, filter, chirp = (TensorType((2, size), self.dtype) for size in self.sizes)
        return factors, filter, chirp

    def reference(self) -> tuple[Array, Array, Array]:
        length, fast, filter, chirp = numbers((self.length, *self.sizes))
        turns = np.exp(1j * _chirp_angles(length)) if chirp else np.zeros(0)
        parts = (_roots(fast), _filter(turns, filter), turns)
        found = [_parts(a, self.dtype) for a in parts]
        return found[0], found[1], found[2]

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        factors, filter, chirp = (split(y, y.shape[1]) for y in outputs)
        fast, size, _ = self.sizes
        unit_roots(at, fast, factors)
        with at.when(predicate(size, ">", 0)):
            self._chirp(at, chirp)
            self._filter(at, chirp, factors, filter)

    def _chirp(self, at: AlgorithmBuilder, chirp: Line) -> None:
        """``exp(-pi i k^2 / length)``; vectors go from square to square by sums."""
        whole = at.let(index_number(2 * self.length))
        squares = _Squares.of(at, whole) if at.lanes > 1 else None
        for place, lanes in at.vectors(self.sizes[2]):
            if squares is not None and lanes > 1:
                turn: Expr = squares.turn
            else:
                number_ = at.let(index_number(place))
                turn = at.let(call("mod", call("mul", number_, number_), whole))
            chirp.write(at, place, narrowed(at, root(at, turn, whole), self.dtype))
            if squares is not None and lanes > 1:
                squares.move(at)

    def _filter(self, at: AlgorithmBuilder, chirp: Line, factors: Line, filter: Line) -> None:
        size = self.sizes[1]
        copies = Copies(at.scratch(self.dtype, 4 * size), size)
        first = copies.at(0)
        clear(at, 0, size, first)
        with at.loop(0, self.sizes[2]) as k:
            real, imaginary = chirp.read(at, k)
            value = real, at.let(call("neg", imaginary))
            first.write(at, k, value)
            with at.when(predicate(k, ">", 0)):
                first.write(at, size - k, value)
        which = at.register(integer(0))
        dynamic_stages(at, size, copies, factors, which, CONVOLVED)
        share = call("div", number(1.0, self.dtype), convert(index_number(size), self.dtype))
        copied(at, size, copies.at(at.index(which)), filter.times(at.let(share)))


@dataclass(frozen=True)
class _Squares:
    """Registers: squares of neighbouring numbers modulo ``whole``, and how far they are from those
    of the next vector."""

    turn: Var
    apart: Var
    whole: Expr
    more: Expr

    @classmethod
    def of(cls, at: AlgorithmBuilder, whole: Expr) -> _Squares:
        """Those of the first numbers: ``(k + n)^2 = k^2 + 2 k n + n^2`` for vectors of n."""
        lanes = at.lanes
        wide = splat(whole, lanes)
        places = at.let(IndexOf(0, I64, lanes, 1))
        twice = call("mul", places, number(2 * lanes, I64, lanes))
        apart = add(twice, lanes * lanes)
        turn, apart = (call("mod", n, wide) for n in (call("mul", places, places), apart))
        more = splat(at.let(call("mod", integer(2 * lanes * lanes), whole)), lanes)
        return cls(at.register(turn), at.register(apart), wide, more)

    def move(self, at: AlgorithmBuilder) -> None:
        """On to the next vector."""
        for register, step in ((self.turn, self.apart), (self.apart, self.more)):
            total = at.let(add(register, step))
            over = call("ge", total, self.whole)
            at.assign(register, Select(over, call("sub", total, self.whole), total))


def _filter(chirp: Array, size: int) -> Array:
    """The transform of the chirp's conjugates, also those of places below 0, over ``size``."""
    wrapped = np.zeros(size, np.complex128)
    wrapped[: len(chirp)] = chirp.conj()
    wrapped[size - len(chirp) + 1 :] = chirp[:0:-1].conj()
    return np.fft.fft(wrapped) / size if size else wrapped


def root(at: AlgorithmBuilder, turn: Expr, whole: Expr) -> Complex:
    """``exp(-2 pi i turn / whole)`` in f64, for ``turn``, in lanes perhaps, below ``whole``.

    Angles beyond half a turn are taken from behind, which halves their rounding error.
    """
    lanes = turn.lanes
    step = splat(at.let(call("div", number(-2 * pi, F64), convert(whole, F64))), lanes)
    whole = splat(whole, lanes)
    late = call("gt", add(turn, turn), whole)
    signed = Select(late, call("sub", turn, whole), turn)
    angle = at.let(call("mul", convert(signed, F64), step))
    return at.let(call("cos", angle)), at.let(call("sin", angle))


def unit_roots(at: AlgorithmBuilder, count: Index, target: Line) -> None:
    """All ``count`` roots of that order, by one sine for each ``STEP`` of them.

    Each is the product, in f64, of the root at a multiple of ``STEP`` and one of the first.
    """
    first = split(at.scratch(F64, 2 * STEP), STEP)
    whole = at.let(index_number(count))
    with at.loop(0, minimum(STEP, count)) as t:
        first.write(at, t, root(at, at.let(index_number(t)), whole))
    blocks = count // STEP
    with at.loop(0, blocks) as block:
        _neighbours(at, block * STEP, STEP, first, whole, target)
    if blocks * STEP != count:
        _neighbours(at, blocks * STEP, count - blocks * STEP, first, whole, target)


def _neighbours(
    at: AlgorithmBuilder, start: Index, count: Index, first: Line, whole: Expr, target: Line
) -> None:
    """``count`` roots from ``start`` on: the root there times the ``first`` ones."""
    real, imaginary = root(at, at.let(index_number(start)), whole)
    for t, lanes in at.vectors(count):
        wide = (splat(real, lanes), splat(imaginary, lanes))
        value = times(at, first.read(at, t, lanes), wide)
        target.write(at, start + t, narrowed(at, value, target.dtype))


def narrowed(at: AlgorithmBuilder, value: Complex, dtype: DType) -> Complex:
    """The parts of ``value`` in another type."""
    return at.let(convert(value[0], dtype)), at.let(convert(value[1], dtype))
