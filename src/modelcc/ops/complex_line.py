"""Lines of complex numbers in memory, however their parts lie there, inside loop functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from modelcc.ir.algorithm import AlgorithmBuilder, call, number
from modelcc.ir.compute import Operand
from modelcc.ir.index import Index
from modelcc.ir.loop import Buffer, Expr, Shuffle, Splat
from modelcc.ir.types import DType
from modelcc.ops.butterfly import Complex


class Line(Protocol):
    """Complex numbers in memory."""

    @property
    def dtype(self) -> DType:
        """Of their parts."""
        ...

    def read(
        self, at: AlgorithmBuilder, place: Index, lanes: int = 1, stride: Index = 1
    ) -> Complex:
        """Those at ``place``, ``place + stride`` …"""
        ...

    def write(self, at: AlgorithmBuilder, place: Index, value: Complex, stride: Index = 1) -> None:
        """Set those at ``place``, ``place + stride`` …"""
        ...


@dataclass(frozen=True)
class Split:
    """Real parts from ``start`` on, imaginary parts ``room`` behind them."""

    buffer: Buffer | Operand
    room: Index
    start: Index = 0

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def read(
        self, at: AlgorithmBuilder, place: Index, lanes: int = 1, stride: Index = 1
    ) -> Complex:
        first = self.start + place
        real = at.let(at.load(self.buffer, first, lanes, stride))
        return real, at.let(at.load(self.buffer, first + self.room, lanes, stride))

    def write(self, at: AlgorithmBuilder, place: Index, value: Complex, stride: Index = 1) -> None:
        at.store(self.buffer, self.start + place, value[0], stride)
        at.store(self.buffer, self.start + self.room + place, value[1], stride)


@dataclass(frozen=True)
class Interleaved:
    """Each real part before its imaginary part, from ``start`` on."""

    operand: Operand
    start: Index

    @property
    def dtype(self) -> DType:
        return self.operand.dtype

    def read(
        self, at: AlgorithmBuilder, place: Index, lanes: int = 1, stride: Index = 1
    ) -> Complex:
        first = self.start + 2 * place
        real = at.let(at.load(self.operand, first, lanes, 2 * stride))
        return real, at.let(at.load(self.operand, first + 1, lanes, 2 * stride))

    def write(self, at: AlgorithmBuilder, place: Index, value: Complex, stride: Index = 1) -> None:
        first = self.start + 2 * place
        if stride == 1 and value[0].lanes > 1:
            at.store(self.operand, first, zipped(*value))
            return
        for i, part in enumerate(value):
            at.store(self.operand, first + i, part, 2 * stride)


@dataclass(frozen=True)
class RealLine:
    """Real numbers from ``start`` on."""

    operand: Operand
    start: Index

    @property
    def dtype(self) -> DType:
        return self.operand.dtype

    def read(
        self, at: AlgorithmBuilder, place: Index, lanes: int = 1, stride: Index = 1
    ) -> Complex:
        value = at.let(at.load(self.operand, self.start + place, lanes, stride))
        return value, number(0.0, value.dtype, lanes)

    def write(self, at: AlgorithmBuilder, place: Index, value: Complex, stride: Index = 1) -> None:
        at.store(self.operand, self.start + place, value[0], stride)

    def pairs(self) -> Interleaved:
        """Each two neighbours as one complex number."""
        return Interleaved(self.operand, self.start)


@dataclass(frozen=True)
class Swapped:
    """``line`` with its parts exchanged, which makes a transform of it the inverse one."""

    line: Line

    @property
    def dtype(self) -> DType:
        return self.line.dtype

    def read(
        self, at: AlgorithmBuilder, place: Index, lanes: int = 1, stride: Index = 1
    ) -> Complex:
        return swapped(self.line.read(at, place, lanes, stride))

    def write(self, at: AlgorithmBuilder, place: Index, value: Complex, stride: Index = 1) -> None:
        self.line.write(at, place, swapped(value), stride)


@dataclass(frozen=True)
class Strided:
    """Every ``step``-th number of ``line``."""

    line: Line
    step: Index

    @property
    def dtype(self) -> DType:
        return self.line.dtype

    def read(
        self, at: AlgorithmBuilder, place: Index, lanes: int = 1, stride: Index = 1
    ) -> Complex:
        return self.line.read(at, self.step * place, lanes, self.step * stride)

    def write(self, at: AlgorithmBuilder, place: Index, value: Complex, stride: Index = 1) -> None:
        self.line.write(at, self.step * place, value, self.step * stride)


@dataclass(frozen=True)
class Scaled:
    """``line``, to which numbers go times ``factor``."""

    line: Line
    factor: Expr

    @property
    def dtype(self) -> DType:
        return self.line.dtype

    def read(
        self, at: AlgorithmBuilder, place: Index, lanes: int = 1, stride: Index = 1
    ) -> Complex:
        return self.line.read(at, place, lanes, stride)

    def write(self, at: AlgorithmBuilder, place: Index, value: Complex, stride: Index = 1) -> None:
        wide = Splat(self.factor, value[0].lanes) if value[0].lanes > 1 else self.factor
        real, imaginary = (at.let(call("mul", part, wide)) for part in value)
        self.line.write(at, place, (real, imaginary), stride)


@dataclass(frozen=True)
class Copies:
    """Room for two copies of the numbers of a transform, each as :class:`Split`."""

    buffer: Buffer
    room: Index
    start: Index = 0

    def at(self, which: Index) -> Split:
        """The copy ``which``, 0 or 1."""
        return Split(self.buffer, self.room, self.start + which * 2 * self.room)


def copied(at: AlgorithmBuilder, count: Index, source: Line, target: Line) -> None:
    """``count`` numbers from one line to the other."""
    for place, lanes in at.vectors(count):
        target.write(at, place, source.read(at, place, lanes))


def swapped(value: Complex) -> Complex:
    """The imaginary part first."""
    return value[1], value[0]


def zipped(a: Expr, b: Expr) -> Expr:
    """Lanes of ``a`` and ``b`` in turn."""
    places = (place for lane in range(a.lanes) for place in (lane, a.lanes + lane))
    return Shuffle(a, b, tuple(places))


def interleaved(values: Sequence[Expr]) -> Expr:
    """Lanes of a power of two of vectors in turn."""
    if len(values) == 1:
        return values[0]
    return zipped(interleaved(values[::2]), interleaved(values[1::2]))


__all__ = [
    "Copies",
    "Interleaved",
    "Line",
    "RealLine",
    "Scaled",
    "Split",
    "Strided",
    "Swapped",
    "copied",
    "interleaved",
    "swapped",
]
