"""Shares of large matrices of tests: ``@pytest.mark.share(3, "kind", "mode")``.

Values of a parameter are numbered, and a run takes the cases whose numbers, of the parameters that
are named, add up to a multiple of three.  So every value of a parameter occurs if another has three
values or more, and every pair of two if a third one has.  ``--all-ops`` takes all cases, and so
does naming a test as ``file.py::test`` on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

MARKER = "share(n, *names): every n-th case by the sum of these parameters' numbers"


def in_share(n: int, names: Sequence[str], numbers: Mapping[str, int]) -> bool:
    """Whether the case whose parameters have these numbers is taken."""
    return sum(numbers[name] for name in names) % n == 0


def wants_all(config: pytest.Config) -> bool:
    """Whether nothing is left out."""
    return bool(config.getoption("--all-ops")) or any("::" in place for place in config.args)


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The cases that shares do not have; ``items`` are all of each matrix."""
    known: dict[tuple[str, str], dict[int, int]] = {}
    found: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker("share")
        if mark is None or not isinstance(item, pytest.Function):
            continue
        n, *names = mark.args
        matrix, numbers = item.nodeid.partition("[")[0], dict[str, int]()
        for name in names:
            values = known.setdefault((matrix, name), {})
            numbers[name] = values.setdefault(id(item.callspec.params[name]), len(values))
        if not in_share(n, names, numbers):
            found.append(item)
    return found
