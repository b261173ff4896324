"""Lines of complex numbers in memory, however their parts lie there, inside loop functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelcc.ir.algorithm import AlgorithmBuilder, call, number, splat
from modelcc.ir.compute import Operand
from modelcc.ir.index import Index
from modelcc.ir.loop import Buffer, Expr, Shuffle
from modelcc.ir.types import DType
from modelcc.ops.butterfly import Complex


@dataclass(frozen=True)
class Line:
    """The real part of number t is at ``start + t * step``, the imaginary one ``apart`` from it.

    Without ``apart`` numbers are real.  What is written is multiplied by ``factor`` first.
    """

    buffer: Buffer | Operand
    start: Index = 0
    step: Index = 1
    apart: Index | None = None
    factor: Expr | None = None

    @property
    def dtype(self) -> DType:
        """Of the parts."""
        return self.buffer.dtype

    def read(
        self, at: AlgorithmBuilder, place: Index, lanes: int = 1, stride: Index = 1
    ) -> Complex:
        """The numbers at ``place``, ``place + stride`` …"""
        first, stride = self.start + place * self.step, stride * self.step
        real = at.let(at.load(self.buffer, first, lanes, stride))
        if self.apart is None:
            return real, number(0.0, real.dtype, lanes)
        return real, at.let(at.load(self.buffer, first + self.apart, lanes, stride))

    def write(self, at: AlgorithmBuilder, place: Index, value: Complex, stride: Index = 1) -> None:
        """Set the numbers at ``place``, ``place + stride`` …"""
        if self.factor is not None:
            wide = splat(self.factor, value[0].lanes)
            value = at.let(call("mul", value[0], wide)), at.let(call("mul", value[1], wide))
        first = self.start + place * self.step
        if stride == 1 and self.step == 2 and self.apart in (1, -1) and value[0].lanes > 1:
            straight = self.apart == 1
            parts = value if straight else swapped(value)
            at.store(self.buffer, first if straight else first - 1, _zipped(*parts))
            return
        stride = stride * self.step
        at.store(self.buffer, first, value[0], stride)
        if self.apart is not None:
            at.store(self.buffer, first + self.apart, value[1], stride)

    def every(self, step: Index) -> Line:
        """Every ``step``-th number."""
        return replace(self, step=self.step * step)

    def times(self, factor: Expr) -> Line:
        """The line to which numbers go times ``factor``."""
        return replace(self, factor=factor)

    def pairs(self) -> Line:
        """Of real numbers: each two neighbours as one complex number."""
        return alternating(self.buffer, self.start)

    def exchanged(self) -> Line:
        """The line with the imaginary part first, of which a transform is the inverse one."""
        assert self.apart is not None
        return replace(self, start=self.start + self.apart, apart=-self.apart)


def split(buffer: Buffer | Operand, room: Index, start: Index = 0) -> Line:
    """``room`` real parts from ``start`` on, then the imaginary ones."""
    return Line(buffer, start, 1, room)


def alternating(buffer: Buffer | Operand, start: Index) -> Line:
    """Each real part before its imaginary part, from ``start`` on."""
    return Line(buffer, start, 2, 1)


@dataclass(frozen=True)
class Copies:
    """Room for two copies of the numbers of a transform, parts apart."""

    buffer: Buffer
    room: Index
    start: Index = 0

    def at(self, which: Index) -> Line:
        """The copy ``which``, 0 or 1."""
        return split(self.buffer, self.room, self.start + which * 2 * self.room)


def copied(at: AlgorithmBuilder, count: Index, source: Line, target: Line) -> None:
    """``count`` numbers from one line to the other."""
    for place, lanes in at.vectors(count):
        target.write(at, place, source.read(at, place, lanes))


def swapped(value: Complex) -> Complex:
    """The imaginary part first."""
    return value[1], value[0]


def _zipped(a: Expr, b: Expr) -> Expr:
    """Lanes of ``a`` and ``b`` in turn."""
    places = (place for lane in range(a.lanes) for place in (lane, a.lanes + lane))
    return Shuffle(a, b, tuple(places))


def interleaved(values: Sequence[Expr]) -> Expr:
    """Lanes of a power of two of vectors in turn."""
    if len(values) == 1:
        return values[0]
    return _zipped(interleaved(values[::2]), interleaved(values[1::2]))
