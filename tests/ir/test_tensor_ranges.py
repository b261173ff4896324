"""When a border can stand for a guard."""

from __future__ import annotations

import pytest

from modelcc.ir.condition import Condition
from modelcc.ir.index import Range, Sym
from modelcc.ir.tensor import Read
from modelcc.ir.tensor_ranges import implied_by_range
from modelcc.ir.types import F32

U, V, N = Sym("i"), Sym("j"), Sym("n")
BOUNDS = {"i": Range(0, 9), "j": Range(0, 9), "n": Range(0, None)}


@pytest.mark.parametrize(
    ("conditions", "indices", "shape", "told"),
    [
        ([Condition(0, "<=", U - 1), Condition(U - 1, "<", N)], (U - 1,), (N,), True),
        ([Condition(U, ">", 0), Condition(U, "<=", N)], (U - 1,), (N,), True),
        ([Condition(0, "<=", U - 1)], (U,), (N,), False),
        ([Condition(U, "<", 4)], (4 * V + U,), (40,), False),
        ([Condition(U, "==", 0)], (U,), (1,), True),
        ([Condition(U, "!=", 0)], (U - 1,), (N,), False),
        ([Condition(U, "<=", 9)], (V,), (N,), True),
    ],
)
def test_conditions_that_hold_wherever_the_read_is_in_range(
    conditions: list[Condition], indices: tuple[Sym, ...], shape: tuple[Sym, ...], told: bool
) -> None:
    read = Read("x", indices, F32)
    assert implied_by_range(conditions, read, shape, BOUNDS) is told
