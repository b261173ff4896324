"""Packed constants are streamed front to back by the loops they are packed for."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from modelcc.ir.index import Index, Sym, evaluate
from modelcc.ir.pack import pack
from modelcc.ir.tensor import Read
from modelcc.ir.types import F32
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.packing import packed_layout

BLOCK, LANE = LoopVar("b", 3, "o", 8), LoopVar("l", 8, "o")
CHANNEL: Index = Sym("b") * 8 + Sym("l")


@pytest.mark.parametrize("tile", [1, 3])
def test_elements_follow_the_loops(tile: int) -> None:
    """w[o, i, a]: tiles of blocks of o, then i, a, then the blocks of a tile, then lanes."""
    i, a = LoopVar("i", 5, "i"), LoopVar("a", 3, "a")
    read = Read("w", (CHANNEL, Sym("i"), Sym("a")), F32)
    layout = packed_layout(read, (BLOCK, i, a), "b", (LANE,), tile, (24, 5, 3))
    assert layout is not None
    data = np.arange(24 * 5 * 3, dtype=np.float32).reshape(24, 5, 3)
    packed = pack(data, layout).reshape(-1)
    expected = [
        data[evaluate(CHANNEL, {"b": tiles * tile + block, "l": lane}), i, a]
        for tiles, i, a, block, lane in product(
            range(3 // tile), range(5), range(3), range(tile), range(8)
        )
    ]
    np.testing.assert_array_equal(packed, expected)


def test_blocked_reductions_are_digits_too() -> None:
    outer, inner = LoopVar("io", 2, "i", 16), LoopVar("iv", 16, "i")
    read = Read("w", (CHANNEL, Sym("io") * 16 + Sym("iv")), F32)
    layout = packed_layout(read, (BLOCK, outer, inner), "b", (LANE,), 1, (24, 32))
    assert layout is not None
    assert layout.physical_shape((24, 32)) == (3, 2, 16, 8)


@pytest.mark.parametrize("tile", [1, 2])
def test_loops_over_a_padded_block_find_padding(tile: int) -> None:
    """12 channels of a block of 16, of which vectors have 4."""
    blocks, lanes = LoopVar("b", 4, "o", 4), LoopVar("l", 4, "o")
    read = Read("w", (Sym("b") * 4 + Sym("l"),), F32)
    layout = packed_layout(read, (blocks,), "b", (lanes,), tile, (12,))
    assert layout is not None
    packed = pack(np.arange(1, 13, dtype=np.float32), layout).reshape(-1)
    np.testing.assert_array_equal(packed, [*range(1, 13), 0, 0, 0, 0])


@pytest.mark.parametrize("tile", [1, 2, 3])
def test_every_element_has_its_place_in_blocks_within_blocks(tile: int) -> None:
    """Blocks of 16 channels, of which vectors have 4: a tile of 3 vectors does not divide them."""
    outer, blocks = LoopVar("a", 2, "o", 16), LoopVar("b", 4, "o", 4)
    lanes = LoopVar("l", 4, "o")
    channel: Index = Sym("a") * 16 + Sym("b") * 4 + Sym("l")
    read = Read("w", (channel,), F32)
    layout = packed_layout(read, (blocks, outer), "b", (lanes,), tile, (20,))
    assert layout is not None
    packed = pack(np.arange(1, 21, dtype=np.float32), layout).reshape(-1)
    found = [packed[int(evaluate(layout.offset((c,), (20,)), {}))] for c in range(20)]
    assert found == [*range(1, 21)]


@pytest.mark.parametrize("phase", [0, 1])
def test_phases_of_a_walk_in_steps_are_planes(phase: int) -> None:
    """w[o, 2*i + phase], as a transposed convolution of stride 2 reads it."""
    i = LoopVar("i", 2, "i")
    read = Read("w", (CHANNEL, Sym("i") * 2 + phase), F32)
    layout = packed_layout(read, (BLOCK, i), "b", (LANE,), 1, (24, 4))
    assert layout is not None
    data = np.arange(24 * 4, dtype=np.float32).reshape(24, 4)
    plane = pack(data, layout)[phase]
    np.testing.assert_array_equal(plane, data[:, phase::2].reshape(3, 8, 2).transpose(0, 2, 1))


@pytest.mark.parametrize("number", [Sym("t"), 3 - Sym("t"), Sym("t") * 2])
def test_iterations_of_a_loop_around_are_planes(number: Index) -> None:
    """w[t, o, i] for any t, as the experts of a mixture or layers of a loop read their weights."""
    i = LoopVar("i", 2, "i")
    read = Read("w", (number, CHANNEL, Sym("i")), F32)
    layout = packed_layout(read, (BLOCK, i), "b", (LANE,), 1, (4, 24, 2))
    assert layout is not None
    data = np.arange(4 * 24 * 2, dtype=np.float32).reshape(4, 24, 2)
    wanted = data.reshape(4, 3, 8, 2).transpose(0, 1, 3, 2)
    np.testing.assert_array_equal(pack(data, layout), wanted)


def test_rows_at_places_from_memory_stay_where_they_are() -> None:
    read = Read("w", (Sym("found"), CHANNEL), F32)
    assert packed_layout(read, (BLOCK,), "b", (LANE,), 1, (4, 24), ("found",)) is None


@pytest.mark.parametrize(
    "indices",
    [
        (CHANNEL, Sym("i") + 1),
        (CHANNEL, Sym("i") * 2 + 3),
        (CHANNEL + Sym("i"), Sym("i")),
        (Sym("i"), Sym("a")),
    ],
)
def test_other_walks_are_not_packed(indices: tuple[Index, ...]) -> None:
    loops = (BLOCK, LoopVar("i", 5, "i"), LoopVar("a", 3, "a"))
    assert (
        packed_layout(Read("w", indices, F32), loops, "b", (LANE,), 1, (24,) * len(indices)) is None
    )
