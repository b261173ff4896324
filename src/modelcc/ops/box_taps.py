"""The pixels that the bins of a box see along one axis, in lists in scratch memory.

A pixel is in a bin's list once, with the sum of its weights: neighbouring points of a bin mostly
lie between the same pixels, so a bin has far fewer of these than four for each of its points.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from modelcc.ir.algorithm import AlgorithmBuilder, add, call, convert, integer
from modelcc.ir.index import Index
from modelcc.ir.loop import Buffer, Expr, Select, Var
from modelcc.ir.types import I64, DType


@dataclass(frozen=True)
class TapLists:
    """Lists for each bin and each share of the boxes: how many pixels (``counts``), the number of
    each along the axis (``pixels``), and its weight.

    Of several points' weights of one pixel the ``weights`` are the sum, or the greatest and the
    least.  A list has room for ``slot`` pixels.  ``misses`` tells which bins have points outside
    of the image, or none.
    """

    bins: int
    slot: Index
    counts: Buffer
    misses: Buffer
    pixels: Buffer
    weights: tuple[Buffer, ...]

    @staticmethod
    def of(at: AlgorithmBuilder, bins: int, slot: Index, dtype: DType, extremes: bool) -> TapLists:
        """Lists in fresh scratch memory."""
        lists = at.capacity.shares * bins
        counts, misses = at.scratch(I64, lists), at.scratch(I64, lists)
        pixels = at.scratch(I64, lists * slot)
        weights = tuple(at.scratch(dtype, lists * slot) for _ in range(2 if extremes else 1))
        return TapLists(bins, slot, counts, misses, pixels, weights)

    @property
    def dtype(self) -> DType:
        return self.weights[0].dtype

    def writer(self, at: AlgorithmBuilder, share: Index, bin: Index) -> TapWriter:
        """What makes the list of a bin anew."""
        numbers = [at.register(integer(n)) for n in (0, 0, -1, -1)]
        return TapWriter(self, share * self.bins + bin, *numbers)

    def of_bin(self, at: AlgorithmBuilder, share: Index, bin: Index) -> Taps:
        """The list of a bin."""
        place = share * self.bins + bin
        count = at.index(at.load(self.counts, place))
        missed = at.let(call("ne", at.load(self.misses, place), integer(0)))
        return Taps(self, place, count, missed)


@dataclass(frozen=True)
class TapWriter:
    """Fills the list ``place``; registers hold how many pixels and points it has, and the last
    pixel and the one before."""

    lists: TapLists
    place: Index
    pixels: Var
    points: Var
    last: Var
    before: Var

    def add(self, at: AlgorithmBuilder, pixel: Var, weight: Expr) -> None:
        """Add a pixel (i64).

        Those of ascending points come as (p, p + 1), with p ascending, both cut off at the end of
        the axis: a pixel that was there before is one of the last two.
        """
        lists = self.lists
        earlier = Select(call("eq", pixel, self.before), add(self.pixels, -2), self.pixels)
        where = at.let(Select(call("eq", pixel, self.last), add(self.pixels, -1), earlier))
        new = at.let(call("eq", where, self.pixels))
        place = self.place * lists.slot + at.index(where)
        at.store(lists.pixels, place, pixel)
        weight = at.let(weight)
        functions = ("add",) if len(lists.weights) == 1 else ("max", "min")
        for buffer, function in zip(lists.weights, functions, strict=True):
            both = call(function, at.load(buffer, place), weight)
            at.store(buffer, place, Select(new, weight, both))
        at.assign(self.before, Select(new, self.last, self.before))
        at.assign(self.last, Select(new, pixel, self.last))
        at.assign(self.pixels, add(self.pixels, convert(new, I64)))

    def point(self, at: AlgorithmBuilder) -> None:
        """Count a point inside of the image."""
        at.assign(self.points, add(self.points, 1))

    def finish(self, at: AlgorithmBuilder, points: Expr) -> None:
        """End the list of a bin of so many points."""
        at.store(self.lists.counts, self.place, self.pixels)
        missed = call("lt", self.points, call("max", points, integer(1)))
        at.store(self.lists.misses, self.place, convert(missed, I64))


@dataclass(frozen=True)
class Taps:
    """The list of a bin: ``count`` pixels."""

    lists: TapLists
    place: Index
    count: Index
    missed: Var

    @contextmanager
    def each(self, at: AlgorithmBuilder) -> Generator[tuple[Index, list[Var]]]:
        """A loop over the pixels: the number of one along the axis, and its weights."""
        with at.loop(0, self.count) as n:
            place = self.place * self.lists.slot + n
            pixel = at.index(at.load(self.lists.pixels, place))
            yield pixel, [at.let(at.load(buffer, place)) for buffer in self.lists.weights]
