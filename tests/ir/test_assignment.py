"""Numbers for names that meet conditions, against all combinations there are."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from modelcc.ir.assignment import assignments
from modelcc.ir.condition import Condition
from modelcc.ir.index import Sym

NUMBERS = (2, 0, 1)
SIDES = st.sampled_from([Sym("a"), Sym("b") + Sym("c"), 2 * Sym("c"), Sym("b") - 1, 1, Sym("k")])
CONDITIONS = st.lists(st.builds(Condition, SIDES, st.sampled_from(["==", "<="]), SIDES), max_size=4)


def any_number(
    name: str, known: Mapping[str, int], later: Iterable[Sequence[Condition]]
) -> Sequence[int]:
    return NUMBERS


@given(CONDITIONS)
def test_all_that_meet_the_conditions_are_found_in_order(conditions: list[Condition]) -> None:
    names, known = ("a", "b", "c"), {"k": 2}
    every = [{**known, **dict(zip(names, v, strict=True))} for v in product(NUMBERS, repeat=3)]
    wanted = [values for values in every if all(c.holds(values) for c in conditions)]
    assert [v for v in assignments(names, any_number, conditions, known) if v] == wanted


def test_names_may_be_more_than_the_stack_is_deep() -> None:
    names = [f"n{k}" for k in range(sys.getrecursionlimit() + 100)]
    constraints = [Condition(Sym(name), "<=", 1) for name in names]
    found = next(v for v in assignments(names, any_number, constraints, {}) if v)
    assert found == dict.fromkeys(names, 0)
