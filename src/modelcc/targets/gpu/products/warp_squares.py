"""Threads of a warp in 2 by 2 squares, for shared memory to serve pairs of them at once.

T and T^1 have the same row, T and T^2 the same column, so that a warp's loads of 16 bytes along
either are 2 requests instead of 4 (:attr:`~modelcc.targets.gpu.machine.GpuModel.paired`; CUTLASS
arranges lanes like this as ``RowMajorInterleaved<2>``)::

    0  1  4  5  8  9 12 13
    2  3  6  7 10 11 14 15
   16 17 20 21 24 25 28 29
   18 19 22 23 26 27 30 31
"""

from __future__ import annotations

from modelcc.ir.index import Index, floordiv, mod

WARP = 32


def interleaves(down: int, across: int, columns: int) -> bool:
    """Whether ``down`` by ``across`` threads are warps with ``columns`` in a row, in squares."""
    rows = WARP // columns
    return WARP % columns == 0 == columns % 2 and rows % 2 == 0 == down % rows == across % columns


def interleaved(thread: Index, across: int, columns: int) -> tuple[Index, Index]:
    """Row and column of ``thread``, with ``across`` in a row, of which a warp has ``columns``."""
    rows, squares = WARP // columns, columns // 2
    row = mod(floordiv(thread, 2), 2) + mod(floordiv(thread, 2 * columns), rows // 2) * 2
    column = mod(thread, 2) + mod(floordiv(thread, 4), squares) * 2
    warps, warp = across // columns, floordiv(thread, WARP)
    return row + floordiv(warp, warps) * rows, column + mod(warp, warps) * columns


def in_a_row(columns: int) -> tuple[int, ...]:
    """XOR masks between the lanes of a warp in a row of ``columns``, a power of two: the farthest
    first."""
    return (*(4 << bit for bit in reversed(range(columns.bit_length() - 2))), 1)
