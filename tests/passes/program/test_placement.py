"""Placement of blocks: nothing overlaps, never below the bound, near the optimum."""

from collections.abc import Sequence
from itertools import islice, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelcc.passes.program.block import LiveBlock, height, lower_bound, pairs_live
from modelcc.passes.program.placement import neighbours, place, placements
from modelcc.passes.program.stacking import stacked_offsets, stacking
from modelcc.passes.program.sweep import swept, swept_back

blocks_at = st.builds(
    lambda first, length, size: LiveBlock(first, first + length, 64 * size),
    st.integers(0, 9),
    st.integers(0, 5),
    st.integers(0, 9),
)


def overlap(a: LiveBlock, b: LiveBlock, at_a: int, at_b: int):
    in_time = a.first <= b.last and b.first <= a.last
    return in_time and at_a < at_b + b.size and at_b < at_a + a.size


def disjoint(blocks: list[LiveBlock], offsets: Sequence[int]):
    return not any(
        overlap(blocks[i], blocks[j], offsets[i], offsets[j])
        for i in range(len(blocks))
        for j in range(i)
        if blocks[i].size and blocks[j].size
    )


def best_height(blocks: list[LiveBlock]):
    return min(height(blocks, offsets) for offsets in placements(blocks))


def least_height(blocks: list[LiveBlock]):
    """Exact: some order of placing at the lowest free offset is optimal."""
    near = neighbours(blocks)
    return min(
        height(blocks, place(order, blocks, near, "first"))
        for order in permutations(range(len(blocks)))
    )


@given(st.lists(blocks_at, max_size=25))
def test_candidates_are_disjoint_and_not_below_the_bound(blocks: list[LiveBlock]) -> None:
    for offsets in placements(blocks):
        assert disjoint(blocks, offsets)
        assert height(blocks, offsets) >= lower_bound(blocks)


@settings(max_examples=40)
@given(st.lists(blocks_at, min_size=1, max_size=6))
def test_small_sets_are_placed_optimally(blocks: list[LiveBlock]) -> None:
    assert best_height(blocks) == least_height(blocks)


@given(st.lists(blocks_at, max_size=20), st.lists(st.integers(0, 9), min_size=20, max_size=20))
def test_stacking_is_disjoint_for_any_sizes(blocks: list[LiveBlock], others: list[int]) -> None:
    for offsets in islice(placements(blocks), 2):
        sizes = [b.size for b in blocks]
        stack = stacking(offsets, blocks)
        same = stacked_offsets(stack, sizes)
        assert height(blocks, same) <= height(blocks, offsets)
        changed = [LiveBlock(b.first, b.last, 64 * s) for b, s in zip(blocks, others, strict=False)]
        assert disjoint(changed, stacked_offsets(stack, [b.size for b in changed]))


def test_neighbours_are_those_live_together() -> None:
    blocks = [LiveBlock(0, 2, 64), LiveBlock(2, 3, 64), LiveBlock(3, 5, 64), LiveBlock(0, 5, 64)]
    assert neighbours(blocks) == ((1, 3), (0, 2, 3), (1, 3), (0, 1, 2))


def test_a_chain_needs_two_buffers() -> None:
    blocks = [LiveBlock(i, i + 1, 64 * (1 + i % 3)) for i in range(50)]
    assert best_height(blocks) == lower_bound(blocks) == 5 * 64


@given(st.lists(blocks_at, max_size=25))
def test_pairs_live_are_counted(blocks: list[LiveBlock]) -> None:
    assert pairs_live(blocks) == sum(map(len, neighbours(blocks))) // 2


@pytest.mark.parametrize("sweep", [swept, swept_back])
def test_blocks_that_are_all_live_lie_without_gaps_after_a_sweep(sweep: Any) -> None:
    count = 5000  # 12 million pairs
    blocks = [LiveBlock(i, 2 * count - i, 64 * (1 + i % 3)) for i in range(count)]
    assert len(list(placements(blocks))) == 2  # of the sweeps only
    assert height(blocks, sweep(blocks)) == lower_bound(blocks)
    stack = stacking(sweep(blocks), blocks)
    assert sum(map(len, stack.below)) == count - 1


@pytest.mark.parametrize("fit", ["first", "best"])
def test_fits_choose_their_gap(fit: Any) -> None:
    wide = [
        LiveBlock(0, 0, 256),
        LiveBlock(0, 9, 64),
        LiveBlock(0, 0, 64),
        LiveBlock(0, 9, 64),
        LiveBlock(5, 5, 64),
    ]
    near = neighbours(wide)
    placed = place([0, 1, 2, 3, 4], wide, near, fit)
    assert placed == (0, 256, 320, 384, 0 if fit == "first" else 320)


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6
    )
)
def test_pairs_of_a_chain_share_memory_at_their_distance(chain: list[tuple[int, int, int]]) -> None:
    blocks = [LiveBlock(n, n + 1, size) for n, (size, _, _) in enumerate(chain)]
    leads = {(n, n - 1): (before, behind) for n, (_, before, behind) in enumerate(chain) if n}
    for offsets in placements(blocks, leads):
        for (result, operand), (before, behind) in leads.items():
            apart = offsets[operand] - offsets[result]
            shared = before <= apart or behind <= -apart
            sizes = blocks[result].size, blocks[operand].size
            assert shared or apart >= sizes[0] or -apart >= sizes[1]


def test_turns_of_a_chain_do_not_add_up() -> None:
    blocks = [LiveBlock(n, n + 1, 80) for n in range(6)]
    up, down = (80, 5), (1, 80)
    leads = {(n, n - 1): up if n % 2 else down for n in range(1, 6)}
    assert min(height(blocks, offsets) for offsets in placements(blocks, leads)) == 85
