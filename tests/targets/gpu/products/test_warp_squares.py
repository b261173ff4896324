"""Which rows and columns the threads of a warp have where these are squares."""

from __future__ import annotations

import pytest

from modelcc.ir.index import Sym, evaluate
from modelcc.targets.gpu.products.warp_squares import WARP, in_a_row, interleaved, interleaves


@pytest.mark.parametrize(
    ("down", "across", "columns"), [(4, 8, 8), (8, 16, 8), (16, 32, 8), (2, 16, 16), (32, 2, 2)]
)
def test_neighbours_share_what_they_read(down: int, across: int, columns: int) -> None:
    """Two threads by whole rows, two by columns, in each warp: what shared memory answers at once
    (Greg Smith of NVIDIA, see :class:`~modelcc.targets.gpu.machine.GpuModel`)."""
    assert interleaves(down, across, columns)
    place = interleaved(Sym("t"), across, columns)
    there = [tuple(evaluate(e, {"t": t}) for e in place) for t in range(down * across)]
    assert sorted(there) == [(row, column) for row in range(down) for column in range(across)]
    for thread, (row, column) in enumerate(there):
        assert there[thread ^ 1][0] == row and there[thread ^ 2][1] == column
        for bit in in_a_row(columns):
            assert there[thread ^ bit][0] == row
    for first in range(0, len(there), WARP):
        rows, values = (set(which) for which in zip(*there[first : first + WARP], strict=True))
        assert max(rows) - min(rows) + 1 == len(rows) == WARP // columns
        assert max(values) - min(values) + 1 == len(values) == columns


def test_all_threads_of_a_row_are_reached() -> None:
    for columns in (2, 4, 8, 16):
        reached = {0}
        for bit in in_a_row(columns):
            reached |= {thread ^ bit for thread in reached}
        assert len(reached) == columns
    assert in_a_row(8) == (8, 4, 1)


@pytest.mark.parametrize("shape", [(4, 4, 8), (3, 8, 8), (2, 32, 32), (32, 1, 1)])
def test_others_have_no_squares(shape: tuple[int, int, int]) -> None:
    assert not interleaves(*shape)
