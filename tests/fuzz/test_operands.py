"""Operands that are made to break operators: every case works as it is, and what is wrong shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest

from fuzz.attempt import Limits, Outcome
from fuzz.operand_cases import CASES, Case
from fuzz.operands import Engines, Feeds, campaign, tried, variants
from tests.machines import chosen_options

LIMITS = Limits(20, 256 << 20)
OPTIONS = chosen_options(threads=1)


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.share(3, "case")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_engines_accept_every_case_as_it_is(case: Case) -> None:
    assert tried(Engines(case, OPTIONS), case.feeds, LIMITS).kind == "alike"


@pytest.mark.parametrize("name", ["Gather", "Trilu", "Pad edge", "OneHot", "DeformConv"])
def test_hostile_operands_of_some_operators(name: str) -> None:
    case = case_of(name)
    trials = list(campaign([replace(case, deciders=case.deciders[:1])], OPTIONS, LIMITS))
    assert len(trials) > 12
    assert [(t.change, t.outcome) for t in trials if t.is_finding] == []


def test_elements_become_extreme_alone_and_together_and_named_extents_small() -> None:
    changed = dict(variants(case_of("Gather")))
    np.testing.assert_array_equal(changed["i = 100"]["i"], [100, 100, 100])
    np.testing.assert_array_equal(changed["i[2] = -1"]["i"], [0, 3, -1])
    assert changed["h is 0"]["x"].shape == (0, 5)
    assert changed["k is 1"]["i"].shape == (1,)


class Doubled(Engines):
    """modelcc, but for its results."""

    @cached_property
    def ours(self) -> Callable[[Feeds], Feeds]:
        return lambda feeds: {"y": 2 * np.asarray(feeds["x"])}


class Nameless(Engines):
    """modelcc, but for the names of its results: what compares them fails."""

    @cached_property
    def ours(self) -> Callable[[Feeds], Feeds]:
        return lambda feeds: {}


class Failing(Engines):
    """modelcc that ends in an exception which is none of the user's."""

    @cached_property
    def ours(self) -> Callable[[Feeds], Feeds]:
        def fail(feeds: Feeds) -> Feeds:
            raise KeyError("y")

        return fail


@pytest.mark.parametrize(
    ("engines", "kind"), [(Doubled, "differs"), (Nameless, "fault"), (Failing, "fault")]
)
def test_what_is_wrong_is_a_finding(engines: type[Engines], kind: str) -> None:
    case = case_of("Clip")
    outcome: Outcome = tried(engines(case, OPTIONS), case.feeds, LIMITS)
    assert outcome.kind == kind
