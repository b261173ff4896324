"""How waves of AMD's GPUs execute routines on fragments: the distribution of fragments over
threads, and the instructions of each routine."""

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
"""Bytes of a register."""


@dataclass(frozen=True)
class WaveLayout:
    """The distribution of fragments over ``wave`` threads.

    Thread ``l`` holds row ``l % 16`` of ``%a`` and column ``l % 16`` of ``%b``, of either the
    ``l / 16``-th part of ``operand_bytes``; if that is all of it, several threads hold the same.
    Of ``%c`` it holds, in row ``l % 16``, columns from ``first (l / 16)`` on, with stride
    ``apart``.
    """

    wave: int
    operand_bytes: int
    first: int
    apart: int = 1

    @property
    def row_threads(self) -> int:
        """Threads that hold a row of sums: every 16th."""
        return self.wave // SIDE

    @property
    def own(self) -> int:
        """Sums of a row that each of them holds."""
        return SIDE // self.row_threads

    @property
    def copies(self) -> int:
        """Threads that hold the same part of an operand."""
        return self.wave * self.operand_bytes // (SIDE * DEPTH_BYTES)

    def row(self, lane: Index) -> Index:
        """The row of sums of which a thread holds elements."""
        return mod(lane, SIDE)

    def column(self, lane: Index, number: int = 0) -> Index:
        """The column of a thread's element with this ``number``."""
        return self.first * floordiv(lane, SIDE) + self.apart * number

    def element(self, lane: Index, number: int = 0) -> Index:
        """The index of that element in a fragment of sums."""
        return SIDE * self.row(lane) + self.column(lane, number)

    def byte(self, offset: Index, lane: Index) -> int | None:
        """The byte offset among a thread's registers of element ``offset`` of fragments of sums;
        None if the thread is not known to hold it."""
        place = offset - self.element(lane)
        if not isinstance(place, int):
            return None
        fragment, column = divmod(place, SIDE * SIDE)
        number, between = divmod(column, self.apart)
        return None if between or number >= self.own else (fragment * self.own + number) * REGISTER

    def registers(self, elements: int, dtype: DType) -> int:
        """Registers of a thread for so many ``elements``: sums have 32 bits."""
        copies = self.copies if dtype.bits < 32 else 1
        return copies * elements * dtype.bytes // (REGISTER * self.wave)


@dataclass(frozen=True)
class WaveLoad:
    """Contiguous bytes of a row by one load of each thread; with ``apart``, elements a row apart by
    one load each, where a thread's columns have stride ``every``."""

    apart: bool
    every: int = 1


@dataclass(frozen=True)
class WaveMultiply:
    """Consecutive instructions, each of operands of LLVM type ``operand``, of ``bits``, out of a
    thread's part of a fragment; ``sums`` is the type of its sums.  ``given`` lists the
    instruction's arguments: ``b`` and ``a``, in this order, sums ``c``, and constants."""

    intrinsic: str
    operand: str
    bits: int
    sums: str
    given: tuple[str, ...] = ("b", "a", "c")


@dataclass(frozen=True)
class WaveOperand:
    """Sums as an operand: where threads hold whole rows of operands, they exchange their own
    sums."""


@dataclass(frozen=True)
class WaveClear:
    """Zeros."""


@dataclass(frozen=True)
class WaveScale:
    """A row of f32 times its factor from memory."""


@dataclass(frozen=True)
class WaveStore:
    """Neighbours of a row at once, or with stride ``every``."""

    every: int = 1


@dataclass(frozen=True)
class WaveBoundary:
    """LLVM moves nothing across it."""


WaveInstruction: TypeAlias = (
    WaveBoundary | WaveLoad | WaveMultiply | WaveOperand | WaveClear | WaveScale | WaveStore
)


@dataclass(frozen=True)
class WaveMatrices:
    """Matrix instructions of a GPU: the ``layout`` of fragments, and how a wave executes
    ``routines`` on them."""

    layout: WaveLayout
    routines: Mapping[Function, WaveInstruction]


def wave_matrices(
    layout: WaveLayout,
    products: Mapping[DType, WaveMultiply],
    deep: Mapping[DType, WaveMultiply],
    together: int = 1,
) -> WaveMatrices:
    """The instructions of a chip that multiplies operands by ``products``, and ``together``
    fragments at once by ``deep`` ones."""
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
