"""Shares of matrices have every value of every parameter, and every pair of three."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from math import prod

import pytest

from tests.shares import ALL, COSTLY, SINGLE, Turn, drawn, has_turn, in_share


def share(n: int, extents: Mapping[str, int], turn: int = 0) -> list[dict[str, int]]:
    cases = (dict(zip(extents, c, strict=True)) for c in product(*map(range, extents.values())))
    return [case for case in cases if in_share(n, tuple(extents), case, turn)]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_one_of_so_many_with_every_value(n: int) -> None:
    extents = {"kind": 5, "mode": n}
    found = share(n, extents)
    assert len(found) == 5 * n // n
    for name, extent in extents.items():
        assert {case[name] for case in found} == set(range(extent))


@pytest.mark.parametrize("n", [2, 3])
def test_every_pair_of_three_parameters(n: int) -> None:
    extents = {"kind": 5, "mode": 4, "type": 3}
    found = share(n, extents)
    assert len(found) == prod(extents.values()) // n
    for a, b in combinations(extents, 2):
        assert len({(case[a], case[b]) for case in found}) == extents[a] * extents[b]


def test_turns_see_every_case_once() -> None:
    seen = [tuple(c.values()) for turn in (7, 8, 9) for c in share(3, {"a": 4, "b": 2}, turn)]
    assert sorted(seen) == list(product(range(4), range(2)))
    names = [f"t[{i}]" for i in range(2 * COSTLY)]
    chosen = [drawn(names, turn) for turn in range(COSTLY)]
    assert sorted(name for some in chosen for name in some) == names
    assert [len(some) for some in chosen] == [2] * COSTLY
    turns = [[has_turn(name, turn) for name in names] for turn in range(SINGLE)]
    assert all(sum(one) == 1 for one in zip(*turns, strict=True)) and all(map(any, turns))


def test_few_cases_have_one_at_least() -> None:
    assert [list(Turn(t).of("ab", 3)) for t in range(3)] == [["a"], ["b"], ["a"]]
    assert list(Turn(1).of("abcd", 2, first=1)) == ["a", "c"] and ALL.of("abc", 2) == "abc"
    assert drawn(["one"], 5) == {"one"} and list(Turn(4).of("", 3)) == []


def test_what_is_not_named_is_not_counted() -> None:
    assert in_share(2, ("a",), {"a": 2, "b": 1})
    assert not in_share(2, ("a", "b"), {"a": 2, "b": 1})
