"""Assignments of numbers to names that satisfy conditions, found by backtracking.

There may be thousands of names, so the search is iterative; each condition is tested once the last
of its names has a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from modelcc.ir.condition import Condition
from modelcc.ir.index import symbols

Candidates: TypeAlias = Callable[
    [str, Mapping[str, int], Iterable[Sequence[Condition]]], Iterable[int]
]
"""Numbers to try for a name, given those of earlier names and groups of the conditions that are
still to be satisfied."""


def assignments(
    names: Sequence[str],
    candidates: Candidates,
    conditions: Sequence[Condition],
    known: Mapping[str, int],
) -> Iterator[dict[str, int] | None]:
    """``known`` with numbers for ``names`` that satisfy ``conditions``; None for each dead end."""
    groups = _by_last_name(names, conditions)
    values = dict(known)
    if not all(c.holds(values) for c in groups[0]):
        yield None
        return
    if not names:
        yield values
        return
    tried = [iter(candidates(names[0], values, islice(groups, 1, None)))]
    while tried:
        place = len(tried)
        values.pop(names[place - 1], None)
        number = next(tried[-1], None)
        if number is None:
            tried.pop()
            continue
        values[names[place - 1]] = number
        if not all(c.holds(values) for c in groups[place]):
            yield None
        elif place == len(names):
            yield dict(values)
        else:
            later = islice(groups, place + 1, None)
            tried.append(iter(candidates(names[place], values, later)))


def _by_last_name(names: Sequence[str], conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Conditions that use none of ``names``, then for each name those whose last name it is."""
    place = {name: n for n, name in enumerate(names, start=1)}
    found: list[list[Condition]] = [[] for _ in range(len(names) + 1)]
    for c in conditions:
        own = symbols(c.left) | symbols(c.right)
        found[max((place.get(name, 0) for name in own), default=0)].append(c)
    return found
