"""Schedules read back from their text, and what is none is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcc.schedule.group_schedule import (
    GroupAttention,
    GroupProduct,
    GroupReduction,
    GroupRowProduct,
    GroupRows,
    GroupScatter,
    GroupTranspose,
    GroupWindows,
    ListedScatter,
    Pointwise,
    TensorProduct,
)
from modelcc.schedule.schedule import (
    ComputeAt,
    LibraryCall,
    Parts,
    RowBlocks,
    Rows,
    RowSums,
    Schedule,
    ScheduleError,
    StraightRows,
    Tiled,
)
from modelcc.schedule.text import parse_schedule, print_schedule

NUMBERS = st.integers(1, 64)
LOOPS = st.sampled_from(["a0", "a1b", "a12", "a3vb", "unit"])
FACTORS = st.lists(st.tuples(LOOPS, NUMBERS), max_size=3).map(tuple)
TILED = st.builds(
    Tiled,
    vector=st.one_of(st.just(""), LOOPS),
    lanes=NUMBERS,
    tile=FACTORS,
    unroll=FACTORS,
    blocks=FACTORS,
    by_input=st.booleans(),
    exchange=st.sampled_from(["", "load", "store", "runs"]),
    dots=st.booleans(),
    folded=st.booleans(),
    padded=st.booleans(),
    parallel=NUMBERS,
)
ROWS = st.builds(Rows, NUMBERS, NUMBERS, NUMBERS)
TILES = st.lists(TILED, max_size=3).map(tuple)
STEPS = st.lists(st.one_of(TILED, ROWS), max_size=3).map(tuple)
PART = st.one_of(TILED, ROWS, st.builds(StraightRows, TILES, st.booleans()))
REDUCTION = st.builds(GroupReduction, NUMBERS, NUMBERS, st.booleans())
GROUP_ROWS = st.builds(GroupRows, NUMBERS, NUMBERS, NUMBERS)
SCHEDULES = st.one_of(
    st.builds(Parts, st.lists(PART, max_size=3).map(tuple)),
    st.builds(ComputeAt, TILES, st.booleans()),
    st.builds(
        RowBlocks,
        NUMBERS,
        st.integers(0, 512),
        st.booleans(),
        *[st.one_of(st.none(), TILED)] * 2,
        STEPS,
    ),
    st.builds(RowSums, NUMBERS, st.booleans(), NUMBERS, STEPS),
    st.builds(LibraryCall, LOOPS, LOOPS),
    st.builds(Pointwise, NUMBERS, NUMBERS),
    st.builds(GroupTranspose, *[NUMBERS] * 4),
    st.builds(GroupWindows, *[NUMBERS] * 5),
    REDUCTION,
    GROUP_ROWS,
    st.builds(GroupRowProduct, GROUP_ROWS, REDUCTION),
    st.builds(GroupProduct, *[NUMBERS] * 7),
    st.builds(TensorProduct, *[NUMBERS] * 6, st.sampled_from(["mma", "mma_tf32"])),
    st.builds(GroupScatter, NUMBERS, NUMBERS),
    st.builds(ListedScatter, *[NUMBERS] * 6),
    st.builds(GroupAttention, *[NUMBERS] * 6),
)


@given(SCHEDULES)
def test_any_schedule_reads_back_equal(schedule: Schedule) -> None:
    assert parse_schedule(print_schedule(schedule)) == schedule


def test_the_text_of_a_tile() -> None:
    tiled = Tiled("a1", 8, (("a1b", 2), ("a0", 6)), (("a2", 4),), parallel=16)
    text = "tiled(vector=a1, lanes=8, tile={a1b: 2, a0: 6}, unroll={a2: 4}, parallel=16)"
    assert print_schedule(Parts((tiled,))) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is no schedule"),
        ("tiled(lanes=8", "this is no schedule at column"),
        ("tiles(lanes=8)", "column 1: 'tiles' is none of tiled, rows"),
        ("tiled(8)", "column 7: name what this is"),
        ("tiled(lanes=eight)", "column 13: lanes is a number"),
        ("tiled(lanes=True)", "column 13: lanes is a number"),
        ("tiled(dots=1)", "column 12: dots is True or False"),
        ("tiled(tile={a0: x})", "column 17: expected a loop and a number"),
        ("library(name=openblas)", "column 1: library needs symbol"),
        ("tiled(tile=4)", "tile is {loop: number, …}"),
        ("tiled(depth=4)", "tiled has vector, lanes"),
        ("row_sums()", "column 1: row_sums needs block"),
        ("row_sums(block=8, steps=[])", "steps is [tiled(…), rows(…), …]"),
        ("row_sums(block=8, steps=[parts()])", "column 26: a step is tiled(…) or rows(…)"),
        ("row_sums(block=8, steps=tiled())", "steps is [tiled(…), rows(…), …]"),
        ("straight_rows(rows(lanes=8))", "column 15: this cannot be within another schedule"),
        ("compute_at(rows(lanes=8))", "column 12: this cannot be within another schedule"),
        ("parts(parts())", "column 7: this cannot be within another schedule"),
        ("group_row_product(rows=group_rows(threads=4))", "group_row_product needs product"),
        ("group_row_product(rows=rows(lanes=8))", "rows is group_rows(…)"),
        ("group_row_product(rows=4)", "rows is group_rows(…)"),
        ("lanes", "column 1: expected one of tiled"),
        ("tiled(**{})", "tiled has vector"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        parse_schedule(text)
    assert message in str(error.value)
