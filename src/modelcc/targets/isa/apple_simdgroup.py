"""Fragments on Apple's GPUs (from the family Apple7 on): 8 x 8 matrices that the threads of a
SIMD-group hold together (Metal Shading Language Specification, "SIMD-Group Matrix Data Types").

Metal does not specify which elements a thread holds, so threads only load, multiply and store whole
matrices.  A fragment is several of them: of sums ``%c`` and of ``%a`` those of 8 rows one after the
other, of ``%b`` those of 8 terms (K).  Products of f16 and bf16 are accumulated in f32; f32 is
multiplied exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from modelcc.ir.index import Index
from modelcc.ir.loop import Function
from modelcc.ir.types import BF16, F16, F32, DType
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.targets.isa.fragments import (
    SIDE,
    clear_c,
    depth,
    load_a,
    load_b,
    multiply,
    store_c,
)

EDGE = 8
"""Rows and columns of a matrix."""

ELEMENTS = EDGE * EDGE
_ACROSS = SIDE // EDGE
"""Matrices of a fragment along its rows, or columns."""

TYPES: Mapping[DType, str] = {F32: "float", F16: "half", BF16: "bfloat"}
"""Element types of matrices, by Metal's names."""


@dataclass(frozen=True)
class SimdPlace:
    """A matrix of a fragment begins after ``rows`` rows, which are a stride apart, and ``columns``
    elements."""

    number: int
    rows: int
    columns: int

    def offset(self, stride: Index) -> Index:
        """The offset in memory."""
        return self.rows * stride + self.columns


@dataclass(frozen=True)
class SimdLoad:
    """Matrices from ``places`` of memory, transposed if they are ``transposed`` there."""

    places: tuple[SimdPlace, ...]
    transposed: bool


@dataclass(frozen=True)
class SimdMultiply:
    """Sum, left and right matrix of each product, in order."""

    products: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class SimdClear:
    """Zeros, in ``count`` matrices."""

    count: int


@dataclass(frozen=True)
class SimdStore:
    """Matrices to ``places`` of memory."""

    places: tuple[SimdPlace, ...]


SimdInstruction: TypeAlias = SimdLoad | SimdMultiply | SimdClear | SimdStore


def _places(rows: int, columns: int, turned: bool = False) -> tuple[SimdPlace, ...]:
    """The places of a fragment's matrices; ``turned``, its columns are rows in memory."""
    every = ((i, j) for i in range(rows) for j in range(columns))
    return tuple(
        SimdPlace(n, *((EDGE * j, EDGE * i) if turned else (EDGE * i, EDGE * j)))
        for n, (i, j) in enumerate(every)
    )


def _products(terms: int) -> Iterator[tuple[int, int, int]]:
    for i in range(_ACROSS):
        for j in range(_ACROSS):
            for k in range(terms):
                yield i * _ACROSS + j, i * terms + k, k * _ACROSS + j


def _known() -> Iterator[tuple[Function, SimdInstruction]]:
    for dtype in TYPES:
        terms = depth(dtype) // EDGE
        for turned in (False, True):
            places = _places(_ACROSS, terms, turned)
            yield load_a(dtype, turned), SimdLoad(places, turned)
            places = _places(terms, _ACROSS, turned)
            yield load_b(dtype, turned), SimdLoad(places, turned)
        yield multiply(dtype, exact=True), SimdMultiply(tuple(_products(terms)))
    yield clear_c(F32), SimdClear(_ACROSS * _ACROSS)
    yield store_c(F32, F32), SimdStore(_places(_ACROSS, _ACROSS))


MATRIX_INSTRUCTIONS: Mapping[Function, SimdInstruction] = {
    expand_narrow(routine): how for routine, how in _known()
}
"""How a SIMD-group executes routines on fragments."""
