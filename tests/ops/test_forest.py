"""Tables of forests that lead out of themselves, or nowhere, are refused before there is code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.types import F32, I32, Array, TensorType
from modelcc.ops.feature_keys import keys_of
from modelcc.ops.forest import Forest
from modelcc.passes.tensor.from_graph import lower_graph

LISTED = next(s for s in Forest.samples if s.operands[4] is not None)
"""A sample with lists of weights: keys, roots, nodes, target, first, weights."""


def lowered(tables: list[Array], fixed: bool = True) -> None:
    build = GraphBuilder("one")
    keys = build.input("keys", TensorType((4, 3), I32))
    if fixed:
        names = [build.constant(table) for table in tables]
    else:
        names = [build.input(f"t{i}", TensorType(t.shape, I32 if t.dtype == np.int32 else F32))
                 for i, t in enumerate(tables)]  # fmt: skip
    attributes: Any = LISTED.attributes
    lower_graph(build.build(build.add(Forest(**attributes), keys, *names)))


def copies() -> list[Array]:
    return [np.array(table) for table in LISTED.operands[1:]]  # type: ignore[arg-type]


def test_the_sample_is_taken() -> None:
    lowered(copies())


def _set(table: int, place: int | tuple[int, int], value: int) -> Callable[[list[Array]], None]:
    def change(tables: list[Array]) -> None:
        tables[table][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(0, 1, 8), "roots"),
        (_set(0, 0, -1), "roots"),
        (_set(1, (0, 1), 7 << 2), "children"),
        (_set(1, (0, 1), -4), "links"),
        (_set(1, (0, 1), 1), "nodes of Forest come after their children"),
        (_set(1, (0, 1), 2 << 2 | 3), "columns"),
        (_set(1, (2, 0), 5), "leaves"),
        (_set(2, 0, 2), "targets"),
        (_set(3, 5, 5), "first weights"),
    ],
)
def test_what_leads_out_of_the_tables_is_refused(
    change: Callable[[list[Array]], None], message: str
) -> None:
    tables = copies()
    change(tables)
    with pytest.raises(ModelError, match=message):
        lowered(tables)


def test_tables_that_are_no_constants_are_refused() -> None:
    with pytest.raises(ModelError, match="must be constants"):
        lowered(copies(), fixed=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keys_are_ordered_as_numbers_are(dtype: type[np.generic]) -> None:
    random = np.random.default_rng(0)
    bits = random.integers(-(1 << 31), 1 << 31, 500)
    single = bits.astype(np.int32).view(np.float32).astype(np.float64)
    found = [*single[~np.isnan(single)], *(bits / 7), 0.0, -0.0, np.inf, -np.inf]
    numbers: Array = np.array(found).astype(dtype)
    keys = keys_of(numbers)
    assert np.array_equal(keys[:, None] < keys, numbers[:, None] < numbers)
    assert np.array_equal(keys[:, None] == keys, numbers[:, None] == numbers)
