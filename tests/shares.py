"""Shares of large matrices of tests: ``@pytest.mark.share(3, "kind", "mode")``.

Values of a parameter are numbered, and a run takes the cases whose numbers, of the parameters that
are named, add up to a multiple of three.  So every value of a parameter occurs if another has three
values or more, and every pair of two if a third one has.

Of what is left of a test in ``costly.txt``, a run takes a quarter, drawn by the names of the cases,
and at least one.

``--turn N`` takes other shares, so that runs with one number after another see all cases;
continuous integration counts commits.  Such a run takes every second of the tests in
``costly.txt`` that have one case.  ``--all-ops`` takes all cases, and so does naming a test as
``file.py::test`` on the command line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

import pytest

MARKER = "share(n, *names): every n-th case by the sum of these parameters' numbers"
COSTLY = 4
"""Of so many cases of a costly test a run takes one."""

SINGLE = 2
"""Of so many costly tests of one case a run with ``--turn`` takes one."""

T = TypeVar("T")


@dataclass(frozen=True)
class Turn:
    """Which share of every matrix a run takes; all of them without a number."""

    number: int | None

    def of(self, cases: Sequence[T], n: int, first: int = 0) -> Sequence[T]:
        """Every ``n``-th case, one if there are few; from another one for another ``first``."""
        if self.number is None:
            return cases
        return cases[(first + self.number) % max(1, min(n, len(cases))) :: n]


ALL = Turn(None)


def in_share(n: int, names: Sequence[str], numbers: Mapping[str, int], turn: int = 0) -> bool:
    """Whether the case whose parameters have these numbers is taken."""
    return (sum(numbers[name] for name in names) - turn) % n == 0


def drawn(cases: Sequence[str], turn: int) -> frozenset[str]:
    """One of ``COSTLY`` cases of a test."""
    order = sorted(cases, key=lambda case: crc32(case.encode()))
    return frozenset(Turn(turn).of(order, COSTLY))


def has_turn(test: str, turn: int) -> bool:
    """Whether it is the turn of a costly test of one case."""
    return (crc32(test.encode()) - turn) % SINGLE == 0


def thinned(cases: Sequence[T], n: int, turn: int) -> Sequence[T]:
    """Every ``n``-th of all that a run has; from another one when a share comes again."""
    return cases[(turn + turn // n + turn // n**2) % n :: n]


def wants_all(config: pytest.Config) -> bool:
    """Whether nothing is left out."""
    return bool(config.getoption("--all-ops")) or any("::" in place for place in config.args)


def turn_of(config: pytest.Config) -> Turn:
    """What the command line says."""
    return Turn(None if wants_all(config) else config.getoption("--turn") or 0)


def left_out(
    items: Sequence[pytest.Item], turn: Turn, costly: Collection[str], singles: bool
) -> list[pytest.Item]:
    """The cases that shares do not have; ``items`` are all of each matrix, and ``singles`` tells
    whether tests of one case take turns, too."""
    if turn.number is None:
        return []
    matrices: dict[str, list[pytest.Item]] = {}
    for item in items:
        matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    found: list[pytest.Item] = []
    for name, cases in matrices.items():
        mark = cases[0].get_closest_marker("share")
        n, *names = mark.args if mark else (1,)
        taken = _marked(cases, n, names, turn.number)
        if name in costly:  # by another number, for else two shares of three were the same one
            chosen = drawn([case.nodeid for case in taken], turn.number // n)
            taken = [case for case in taken if case.nodeid in chosen]
            if singles and len(cases) == 1 and not has_turn(name, turn.number):
                taken = []
        among = set(taken)
        found += [case for case in cases if case not in among]
    return found


def _marked(
    cases: Sequence[pytest.Item], n: int, names: Sequence[str], turn: int
) -> list[pytest.Item]:
    known: dict[str, dict[int, int]] = {name: {} for name in names}
    found: list[pytest.Item] = []
    for case in cases:
        numbers: dict[str, int] = {}
        for name, values in known.items():
            assert isinstance(case, pytest.Function)
            numbers[name] = values.setdefault(id(case.callspec.params[name]), len(values))
        if in_share(n, names, numbers, turn):
            found.append(case)
    return found
