"""Which of two runs is faster, by made-up times of a noisy machine."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from modelcc.tune.turns import LONGEST, MOST, Run, Turns, Verdict, in_turns


def run_of(seconds: float) -> Run:
    return lambda: seconds


def noisy(seed: int, spread: float) -> Callable[[Run], float]:
    """A clock of a machine whose speed drifts, and that others interrupt every tenth time."""
    draw, drift = random.Random(seed), 1.0

    def seconds(run: Run) -> float:
        nonlocal drift
        drift *= draw.lognormvariate(0, 0.01)
        late = draw.uniform(1, 2) if draw.random() < 0.1 else 1.0
        own = run()
        assert isinstance(own, float)
        return own * drift * draw.lognormvariate(0, spread) * late

    return seconds


def taken(gain: float, spread: float) -> int:
    """How often of 200 times the second run, ``gain`` times as fast, is found to be faster."""
    found = (in_turns(run_of(1e-3), run_of(1e-3 / gain), noisy(s, spread))[1] for s in range(200))
    return sum(found)


@pytest.mark.parametrize("spread", [0.002, 0.01, 0.03, 0.1])
def test_noise_is_no_gain(spread: float) -> None:
    assert taken(1.0, spread) <= 4
    assert taken(0.98, spread) <= 2


@pytest.mark.parametrize("spread", [0.002, 0.01, 0.02])
def test_a_gain_of_two_percent_is_taken(spread: float) -> None:
    assert taken(1.02, spread) >= 190


def test_what_is_unclear_is_measured_for_longer_but_not_for_ever() -> None:
    calm, noise = (in_turns(run_of(1e-3), run_of(0.98e-3), noisy(1, s))[0] for s in (0.002, 0.2))
    assert len(calm.times) < len(noise.times) <= MOST
    long = in_turns(run_of(2.0), run_of(1.99), noisy(1, 0.2))[0]
    assert sum(a + b for a, b in long.times) < 3 * LONGEST


def test_few_turns_of_great_gain_are_none() -> None:
    assert Turns([(2.0, 1.0)] * 8 + [(1.0, 1.01)] * 7).verdict() is not Verdict.faster
    assert Turns([(2.0, 1.0)] * 15).verdict() is Verdict.faster
    assert Turns([(1.005, 1.0)] * 60).verdict() is Verdict.not_faster


CLOCKS = """
import time
from modelcc.tune.turns import clock_for
print(*(clock_for(threads)(lambda: time.sleep(0.05)) for threads in (1, 2)))
"""


def test_only_runs_on_several_threads_are_timed_while_they_wait() -> None:
    """In a process of its own, as threads that other tests have left would count."""
    run = subprocess.run([sys.executable, "-c", CLOCKS], check=True, capture_output=True, text=True)
    one, several = map(float, run.stdout.split())
    assert one < 0.04 < several
