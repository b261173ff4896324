"""Which rows and columns of a product the threads of a warp have."""

from __future__ import annotations

import pytest

from modelcc.ir.index import Sym, evaluate
from modelcc.targets.gpu.product import WARP_COLUMNS, WARP_ROWS, interleaved

WARP = WARP_ROWS * WARP_COLUMNS


@pytest.mark.parametrize(("down", "across"), [(4, 8), (8, 16), (16, 8), (16, 32)])
def test_neighbours_share_what_they_read(down: int, across: int) -> None:
    """Two threads by whole rows, two by columns, in each warp: what shared memory answers at once
    (Greg Smith of NVIDIA, see :class:`~modelcc.targets.gpu.machine.GpuModel`)."""
    place = interleaved(Sym("t"), across)
    there = [tuple(evaluate(e, {"t": t}) for e in place) for t in range(down * across)]
    assert sorted(there) == [(row, column) for row in range(down) for column in range(across)]
    for thread, (row, column) in enumerate(there):
        assert there[thread ^ 1][0] == row and there[thread ^ 2][1] == column
    for first in range(0, len(there), WARP):
        rows, columns = (set(which) for which in zip(*there[first : first + WARP], strict=True))
        assert (len(rows), len(columns)) == (WARP_ROWS, WARP_COLUMNS)
        assert max(rows) - min(rows) == WARP_ROWS - 1
        assert max(columns) - min(columns) == WARP_COLUMNS - 1
