"""Gathers at places of equal distance are slices, others stay."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.types import I64, Array
from modelcc.ops.arithmetic import of
from modelcc.ops.gather import Gather
from modelcc.passes.graph.regular_gathers import RegularGathers
from tests.passes.graph.examples import assert_same_meaning
from tests.passes.graph.formulas import constant, f32, graph_of, op_names

SLICES: list[tuple[Array, int, list[str]]] = [
    (np.arange(6).reshape(2, 3, 1), 1, ["Reshape"]),
    (np.array(2), 1, ["Slice", "Reshape"]),
    (np.array([-2, -1]), 1, ["Slice", "Reshape"]),
    (np.array([[0, 3]]), 1, ["Slice", "Reshape"]),
    (np.array([-4, 3, 4]), 1, ["Slice", "Reshape"]),
    (np.array([[0], [1]], np.int32), 2, ["Reshape"]),
]
OTHERS: list[tuple[Array, int]] = [
    (np.array([0, 2, 3]), 1),
    (np.array([3, 2]), 1),
    (np.array([1, 1]), 1),
    (np.array([4, 5, 0]), 1),
    (np.array([5, 6]), 1),
    (np.array([-7, -6]), 1),
    (np.zeros((0,), np.int64), 1),
    (np.array([0, 1]), 0),
]


@pytest.mark.parametrize(("places", "axis", "names"), SLICES, ids=str)
def test_equal_distances(places: Array, axis: int, names: list[str]) -> None:
    before = graph_of(lambda x: of(Gather(axis), x, constant(x, places, I64)), f32("n", 6, 2))
    after = RegularGathers()(before)
    assert op_names(after) == names
    assert_same_meaning(before, after)


@pytest.mark.parametrize(("places", "axis"), OTHERS, ids=str)
def test_others_stay(places: Array, axis: int) -> None:
    before = graph_of(lambda x: of(Gather(axis), x, constant(x, places, I64)), f32("n", 6, 2))
    assert RegularGathers()(before) is before
