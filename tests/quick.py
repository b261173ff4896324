"""The slice of the tests that is for everyday work: ``pytest --quick``, ``make test-quick``.

It has every 31st case of each test, so that it has a slice of every matrix, but none of the tests
in ``costly.txt``, which take longer than a fifth of a second; of costly matrices it has the first
case.  ``make test-costs`` writes that list anew, from one case in 31 of every test.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

SLICE = 31
"""A prime, so that neighbours in the slice differ in more than one parameter of a matrix."""

LIMIT = 0.2
"""Seconds of processors, those of processes that a test starts among them."""

FILE = Path(__file__).with_name("costly.txt")


def test_of(case: str) -> str:
    """The test that a case (a node id of pytest's) is of."""
    return case.partition("[")[0]


def taken(cases: Sequence[str], costly: Collection[str]) -> list[bool]:
    """Which of ``cases``, all of each test in order, are in the slice."""
    extents, numbers = Counter(map(test_of, cases)), Counter[str]()
    found: list[bool] = []
    for case in cases:
        test = test_of(case)
        first_only = test in costly and extents[test] > SLICE
        among = numbers[test] % SLICE == 0 and test not in costly
        found.append(among or (first_only and numbers[test] == 0))
        numbers[test] += 1
    return found


def costly() -> frozenset[str]:
    """The tests that take long."""
    return frozenset(FILE.read_text("utf-8").splitlines())


def listed(seconds: Mapping[str, float]) -> str:
    """The text of the list, of the seconds of each case."""
    long = {test_of(case) for case, taken in seconds.items() if taken > LIMIT}
    return "".join(f"{test}\n" for test in sorted(long))


class Costs:
    """A plugin that measures the cases of a run in one process, and writes the list."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        """Around setup, call and teardown of a case."""
        start = _seconds()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = _seconds() - start

    def pytest_sessionfinish(self) -> None:
        """After the last case."""
        FILE.write_text(listed(self.seconds), "utf-8")


def _seconds() -> float:
    return sum(os.times()[:4])
