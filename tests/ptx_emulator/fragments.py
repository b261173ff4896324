"""What tensor cores multiply, of which registers and bytes (PTX ISA, "Matrix fragments" of
``mma``, ``ldmatrix`` and ``wgmma``, and "Matrix descriptor format")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.types import Array

WARP, WARP_GROUP = 32, 128
CHUNK, _ROW = 16, 128
"""Bytes that are swizzled together, and of rows that are."""


@dataclass(frozen=True)
class TileDescriptor:
    """What the bits of matrix descriptors say, each an array; only rows of 128 bytes that are
    swizzled are emulated."""

    start: Array
    leading: Array
    stride: Array

    @staticmethod
    def of(bits: Array) -> TileDescriptor:
        """NotImplementedError if rows are not swizzled by 128 bytes, or the base is moved."""
        words = bits.astype(np.uint64)
        if ((words >> np.uint64(62)) != 1).any() or ((words >> np.uint64(49)) & np.uint64(7)).any():
            raise NotImplementedError("descriptors of other layouts")
        fields = ((words >> np.uint64(n) & np.uint64(0x3FFF)).astype(np.int64) * CHUNK
                  for n in (0, 16, 32))  # fmt: skip
        return TileDescriptor(*fields)


def swizzled(addresses: Array) -> Array:
    """Chunks of 16 bytes lie at their number exclusive or that of their row of 128, by 8."""
    return addresses ^ (addresses >> 3 & 0x70)


def tile_chunks(tile: TileDescriptor, rows: int, terms: int, size: int, turned: bool) -> Array:
    """Where chunks of 16 bytes are: [tile, row, chunk of its terms], of elements of ``size`` bytes;
    of ``turned`` tiles [tile, term, chunk of its rows]."""
    lines, length = (terms, rows) if turned else (rows, terms)
    line, chunk = np.arange(lines)[:, None], np.arange(length * size // CHUNK)[None, :]
    start, leading, stride = (n[:, None, None] for n in (tile.start, tile.leading, tile.stride))
    part = chunk * CHUNK // _ROW * leading if turned else 0
    within = line % 8 * _ROW + chunk * CHUNK % _ROW
    return swizzled(start + line // 8 * stride + part + within)


def sum_places(columns: int, lanes: int) -> tuple[Array, Array]:
    """Row and column of each register of each thread, of 16 rows a warp and so many columns."""
    lane, register = np.arange(lanes)[None, :], np.arange(columns // 2)[:, None]
    row = lane // WARP * 16 + lane % WARP // 4 + register % 4 // 2 * 8
    return row, register // 4 * 8 + lane % 4 * 2 + register % 2


def row_places(bits: int, registers: int, lanes: int) -> tuple[Array, Array]:
    """Row and term of each element of each register of each thread of an operand with 16 rows a
    warp: [register, lane, element]."""
    count = 32 // bits
    register, lane, element = np.ogrid[:registers, :lanes, :count]
    row = lane // WARP * 16 + lane % WARP // 4 + register % 2 * 8 + 0 * element
    return row, count * (lane % 4) + element + register // 2 * 4 * count


def column_places(bits: int, registers: int) -> tuple[Array, Array]:
    """Column and term of each element of the other operand: [register, lane, element]."""
    count = 32 // bits
    register, lane, element = np.ogrid[:registers, :WARP, :count]
    column = lane // 4 + 0 * register + 0 * element
    return column, count * (lane % 4) + element + register * 4 * count


def spread(values: Array, row: Array, column: Array, shape: tuple[int, int]) -> Array:
    """Matrices of registers' ``values``: [register, matrix, lane, ...] to [matrix, *shape]."""
    found = np.zeros((values.shape[1], *shape), values.dtype)
    found[:, row, column] = np.moveaxis(values, 1, 0)
    return found


def multiplied_tf32(left: Array, right: Array, sums: Array) -> Array:
    """Sums and what rows by rows come to as an A100 adds them, four products at a time: these and
    the sum are cut off where the last bit of 24 of the greatest is, and so is the result (M. Fasi
    et al., "Numerical behavior of NVIDIA tensor cores", 2021; newer ones keep a bit more)."""
    found = sums.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, left.shape[-1], _TOGETHER):
            terms = slice(first, first + _TOGETHER)
            found = _added(left[..., terms], right[..., terms], found)
            found = found.astype(np.float32).astype(np.float64)
    return found.astype(np.float32)


def _added(left: Array, right: Array, sums: Array) -> Array:
    """Sums and a product of each term."""
    a, b = (values.astype(np.float64) for values in (left, right))
    products = a[..., :, None, :] * b[..., None, :, :]
    exponents = _exponent(a)[..., :, None, :] + _exponent(b)[..., None, :, :]
    exponents = np.where(products == 0, _LEAST, exponents)
    most = np.maximum(exponents.max(-1), np.where(sums == 0, _LEAST, _exponent(sums)))
    whole = _cut(products, most[..., None]).sum(-1) + _cut(sums, most)
    return _cut(whole, np.maximum(_exponent(whole), _LEAST))


_TOGETHER, _LEAST = 4, -126
"""Products of TF32 that are added at once, and the exponent of the least normal number of f32."""


def _exponent(values: Array) -> Array:
    return np.frexp(values)[1] - 1


def _cut(values: Array, exponents: Array) -> Array:
    """Without what is below the last of 24 bits of numbers with these exponents."""
    last = np.ldexp(1.0, exponents - 23)
    return np.where(np.isfinite(values), np.trunc(values / last) * last, values)


def multiplied(left: Array, right: Array, sums: Array) -> Array:
    """Sums and what rows by rows come to, of matrices, rounded once to f32 (integers exactly)."""
    wide = np.int64 if sums.dtype.kind in "iu" else np.float64
    products = left.astype(wide) @ np.swapaxes(right.astype(wide), -1, -2)
    return (sums.astype(wide) + products).astype(sums.dtype)
