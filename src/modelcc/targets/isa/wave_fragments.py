"""How waves of AMD's GPUs run routines on fragments: where threads have the numbers, and what each
routine becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from modelcc.ir.index import Index, floordiv, mod
from modelcc.ir.loop import Function
from modelcc.ir.types import BF16, F16, F32, I32, DType
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.targets.isa.fragments import (
    DEPTH_BYTES,
    SIDE,
    boundary,
    clear_c,
    load_a,
    load_b,
    multiply,
    operand_of,
    scale_c,
    store_c,
    sums_of,
)

REGISTER = 4
"""Bytes."""


@dataclass(frozen=True)
class WaveLayout:
    """Where numbers of fragments are, of those that ``wave`` threads have.

    Thread ``l`` has of ``%a`` row ``l % 16`` and of ``%b`` column ``l % 16``, of either the
    ``l / 16``-th part of ``operand_bytes``; where that is all of it, several threads have the same.
    Of ``%c`` it has in row ``l % 16`` column ``first (l / 16)`` and on, each so far ``apart``.
    """

    wave: int
    operand_bytes: int
    first: int
    apart: int = 1

    @property
    def row_threads(self) -> int:
        """Threads that have a row of sums: every 16th."""
        return self.wave // SIDE

    @property
    def own(self) -> int:
        """Sums of a row that each of them has."""
        return SIDE // self.row_threads

    @property
    def copies(self) -> int:
        """Threads that have the same part of an operand."""
        return self.wave * self.operand_bytes // (SIDE * DEPTH_BYTES)

    def row(self, lane: Index) -> Index:
        """The row of sums that a thread has numbers of."""
        return mod(lane, SIDE)

    def column(self, lane: Index, number: int = 0) -> Index:
        """That of such a number of its own."""
        return self.first * floordiv(lane, SIDE) + self.apart * number

    def element(self, lane: Index, number: int = 0) -> Index:
        """Where this is in a fragment of sums."""
        return SIDE * self.row(lane) + self.column(lane, number)

    def byte(self, offset: Index, lane: Index) -> int | None:
        """Where among its registers a thread has element ``offset`` of fragments of sums; None if
        it is not seen to have it."""
        place = offset - self.element(lane)
        if not isinstance(place, int):
            return None
        fragment, column = divmod(place, SIDE * SIDE)
        number, between = divmod(column, self.apart)
        return None if between or number >= self.own else (fragment * self.own + number) * REGISTER

    def registers(self, elements: int, dtype: DType) -> int:
        """Those of a thread for so many ``elements``: sums have 32 bits."""
        copies = self.copies if dtype.bits < 32 else 1
        return copies * elements * dtype.bytes // (REGISTER * self.wave)


@dataclass(frozen=True)
class WaveLoad:
    """Bytes of a row that lie side by side by one load of each thread; ``apart``, elements that are
    a row apart each by its own, where threads have every so-manieth column."""

    apart: bool
    every: int = 1


@dataclass(frozen=True)
class WaveMultiply:
    """Instructions one behind the other, each of operands of LLVM type ``operand``, of ``bits``,
    out of what a thread has of a fragment; ``sums`` is the type of what it has of these.
    ``given`` says what the instruction takes: ``b`` and ``a``, in this order, sums ``c``, and
    numbers."""

    intrinsic: str
    operand: str
    bits: int
    sums: str
    given: tuple[str, ...] = ("b", "a", "c")


@dataclass(frozen=True)
class WaveOperand:
    """Sums as an operand: where threads have whole rows of these, each gives the others its own
    ones."""


@dataclass(frozen=True)
class WaveClear:
    """Zeros."""


@dataclass(frozen=True)
class WaveScale:
    """A row of f32 by its factor from memory."""


@dataclass(frozen=True)
class WaveStore:
    """Neighbours of a row at once, or in every so-manieth place."""

    every: int = 1


@dataclass(frozen=True)
class WaveBoundary:
    """LLVM moves nothing across it."""


WaveInstruction: TypeAlias = (
    WaveBoundary | WaveLoad | WaveMultiply | WaveOperand | WaveClear | WaveScale | WaveStore
)


@dataclass(frozen=True)
class WaveMatrices:
    """What a GPU multiplies matrices by: the ``layout`` of fragments, and how a wave runs
    ``routines`` on them."""

    layout: WaveLayout
    routines: Mapping[Function, WaveInstruction]


def wave_matrices(
    layout: WaveLayout,
    products: Mapping[DType, WaveMultiply],
    deep: Mapping[DType, WaveMultiply],
    together: int = 1,
) -> WaveMatrices:
    """Those of a chip that multiplies operands by ``products``, and by ``deep`` ones so many
    fragments ``together``."""
    found: dict[Function, WaveInstruction] = {
        multiply(dtype, together=together): how for dtype, how in deep.items()
    }
    for dtype, multiplied in products.items():
        found[load_a(dtype)] = found[load_b(dtype, transposed=True)] = WaveLoad(apart=False)
        for every in (1, 2, 4):
            found[load_a(dtype, True, every)] = WaveLoad(apart=True, every=every)
            found[load_b(dtype, False, every)] = WaveLoad(apart=True, every=every)
        found[multiply(dtype, exact=True)] = multiplied
        found[clear_c(sums_of(dtype))] = WaveClear()
        if dtype in (F16, BF16):
            found[operand_of(dtype)] = WaveOperand()
    found[scale_c()] = WaveScale()
    found[boundary()] = WaveBoundary()
    for to, every in product((F32, F16, BF16), (1, 2, 4)):
        found[store_c(F32, to, every)] = WaveStore(every)
    found[store_c(I32, I32)] = WaveStore()
    routines = {expand_narrow(routine): how for routine, how in found.items()}
    return WaveMatrices(layout, routines)
