"""Physical order is what layouts say, and unpacking is the inverse of packing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelcc.ir.index import evaluate
from modelcc.ir.pack import pack, unpack
from modelcc.ir.types import Layout, Part, blocked, row_major


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], Layout]:
    """A shape and a layout with at most one split dimension, permuted, with a border."""
    shape = tuple(draw(st.lists(st.integers(1, 9), max_size=4)))
    rank = len(shape)
    if not rank:
        return shape, row_major(0)
    axis = draw(st.integers(0, rank - 1))
    plain = draw(st.sampled_from((row_major(rank), blocked(rank, axis, 4))))
    parts: tuple[Part, ...] = tuple(draw(st.permutations(plain.parts)))
    halo = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape)
    return shape, Layout(parts, halo)


@given(cases())
def test_elements_lie_at_their_offsets(case: tuple[tuple[int, ...], Layout]) -> None:
    shape, layout = case
    data = np.arange(1, int(np.prod(shape)) + 1).reshape(shape)
    physical = pack(data, layout)
    assert physical.shape == tuple(layout.physical_shape(shape))
    flat = physical.reshape(-1)
    for place in np.ndindex(*shape):
        assert flat[evaluate(layout.offset(place, shape), {})] == data[place]
    assert np.count_nonzero(flat) == data.size


@given(cases())
def test_unpacking_is_the_inverse(case: tuple[tuple[int, ...], Layout]) -> None:
    shape, layout = case
    data = np.arange(int(np.prod(shape)), dtype=np.int16).reshape(shape)
    result = unpack(pack(data, layout), layout, shape)
    assert result.shape == shape and result.flags.c_contiguous
    np.testing.assert_array_equal(result, data)
