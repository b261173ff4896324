"""Runs of tiles cover their range once; guards hold in what is called interior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from modelcc.ir.index import Index, Range, Sym, evaluate
from modelcc.ir.tensor import Condition
from modelcc.schedule.segments import (
    Segment,
    element_tiles,
    even_tiles,
    guarded_segments,
    halved_tiles,
    interior_of,
    vector_tiles,
)

EXTENTS = st.integers(0, 70)
TILES = st.integers(1, 17)


def points(segments: Sequence[Segment], sizes: dict[str, int]) -> list[int]:
    """Every point of every tile, in order."""
    return [
        evaluate(s.start, sizes) + tile * s.tile + step
        for s in segments
        for tile in range(evaluate(s.count, sizes) if evaluate(s.present, sizes) else 0)
        for step in range(s.tile)
    ]


def test_tiles_are_even() -> None:
    tiles = [(s.start, s.count, s.tile) for s in even_tiles(0, 40, 14, True)]
    assert tiles == [(0, 1, 14), (14, 2, 13)]


@given(EXTENTS, TILES, st.booleans())
def test_even_tiles_cover_the_range(extent: int, tile: int, symbolic: bool) -> None:
    given: Index = Sym("n") if symbolic else extent
    segments = even_tiles(3, given, tile, False)
    assert points(segments, {"n": extent}) == list(range(3, 3 + extent))
    assert all(1 <= s.tile <= tile for s in segments)
    if not symbolic:
        assert (
            max((s.tile for s in segments), default=0) - min((s.tile for s in segments), default=0)
            <= 1
        )


@given(st.integers(0, 40), TILES, st.booleans(), st.booleans())
def test_vector_tiles_cover_the_blocks(
    blocks: int, tile: int, partial: bool, symbolic: bool
) -> None:
    assume(symbolic or blocks)
    given: Index = Sym("n") if symbolic else blocks
    segments = vector_tiles(given, tile, partial, {"n": Range(0)})
    assert points(segments, {"n": blocks}) == list(range(blocks))
    assert [s.partial for s in segments].count(True) == partial
    assert not partial or (segments[-1].partial and segments[-1].tile == 1)


@given(st.integers(0, 70), st.integers(1, 17), TILES)
def test_only_what_vectors_leave_is_partial(elements: int, lanes: int, tile: int) -> None:
    segments = element_tiles(Sym("n"), lanes, tile, {"n": Range(0, None)})
    whole, rest = divmod(elements, lanes)
    assert points(segments, {"n": elements}) == list(range(whole + (rest > 0)))
    *wholes, last = segments
    assert not any(s.partial for s in wholes)
    assert last.partial == (lanes > 1)  # nothing is left of vectors of one
    assert not last.partial or evaluate(last.present, {"n": elements}) == rest


def test_loops_that_never_run_are_left_out() -> None:
    few, more = ({"n": Range(0, most)} for most in (5, 17))
    assert [s.partial for s in element_tiles(Sym("n"), 8, 4, few)] == [True]
    assert [s.tile for s in element_tiles(Sym("n"), 8, 4, more)] == [1, 1]


def test_elements_that_are_whole_vectors_leave_none() -> None:
    segments = element_tiles(Sym("n") * 4, 2, 4, {"n": Range(0, None)})
    assert not any(s.partial for s in segments)


def test_no_vectors_at_all() -> None:
    segments = vector_tiles(Sym("n"), 4, True, {"n": Range(0, None)})
    assert points(segments[:-1], {"n": 0}) == []


AFFINE = st.tuples(st.integers(-3, 3), st.integers(0, 2), st.integers(-12, 12))


@given(st.integers(1, 20), st.integers(1, 4), st.lists(AFFINE, max_size=3), TILES)
def test_interior_against_brute_force(
    extent: int, taps: int, affine: list[tuple[int, int, int]], tile: int
) -> None:
    v, k = Sym("v"), Sym("k")
    forms = [a * v + b * k + c for a, b, c in affine]
    conditions = [Condition(form, ">=", 0) for form in forms]
    interior = interior_of(
        "v", extent, conditions, {"v": Range(0, extent - 1), "k": Range(0, taps - 1)}
    )
    moving = [(a, b, c) for a, b, c in affine if a]
    holds = [
        all(a * i + b * j + c >= 0 for a, b, c in moving for j in range(taps))
        for i in range(extent)
    ]
    if interior is None:
        assert not moving
    else:
        lo, hi = (evaluate(bound, {}) for bound in interior)
        assert [lo <= i < hi for i in range(extent)] == holds
    segments = guarded_segments(extent, tile, interior)
    assert points(segments, {}) == list(range(extent))
    for s in segments:
        if s.interior:
            assert all(holds[i] for i in points([s], {}))


@given(EXTENTS, TILES, st.booleans())
def test_halved_tiles_cover_the_range_with_few_tiles(
    extent: int, tile: int, symbolic: bool
) -> None:
    segments = halved_tiles(Sym("n") if symbolic else extent, tile)
    assert points(segments, {"n": extent}) == list(range(extent))
    assert not symbolic or tile != 6 or len(list(tiles_of(segments, extent))) <= extent // 6 + 3


def tiles_of(segments: Sequence[Segment], extent: int) -> Iterator[Segment]:
    """The segment of each tile."""
    for segment in segments:
        yield from [segment] * evaluate(segment.count, {"n": extent})
