"""Decides whether one of two runs is faster, on a shared machine: turns, a margin and a sign test.

Disturbances longer than a turn affect both of its runs, and the order within a turn alternates.  A
gain counts if the median of the turns' ratios has it and the number of faster turns is
statistically significant (Dixon & Mood, "The statistical sign test", 1946).  While neither that nor
the opposite is clear, more turns are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import sqrt
from statistics import median
from time import perf_counter, process_time

Run = Callable[[], object]
Clock = Callable[[Run], float]
"""Returns the seconds of a run."""

MARGIN = 1.01
"""Minimum speedup: effects of a run's addresses in memory are below it."""

FIRST = 15
"""Turns before the first decision; then after twice as many, and so on."""

MOST = 16 * FIRST
"""Turns after which an unclear result counts as no gain."""

LONGEST = 60.0
"""Seconds of runs after which no more turns are taken."""

SURE = 2.8
"""Standard deviations by which the number of faster turns must exceed half: a false positive
rate of 1/400 for each of a few decisions."""

UNLIKELY = 1.5
"""Standard deviations by which the number of turns faster by the margin is below half if such a
gain is unlikely."""


class Verdict(Enum):
    """The verdict of turns on a gain."""

    faster = "faster"
    not_faster = "not faster"
    unclear = "unclear"


@dataclass(frozen=True)
class Turns:
    """Seconds of both runs, turn by turn."""

    times: Sequence[tuple[float, float]]

    @property
    def first(self) -> float:
        """Median seconds of the first run."""
        return median(a for a, _ in self.times)

    @property
    def second(self) -> float:
        """Median seconds of the second run."""
        return median(b for _, b in self.times)

    @property
    def ratio(self) -> float:
        """The median ratio of seconds of the first run to the second."""
        return median(a / b for a, b in self.times)

    def verdict(self) -> Verdict:
        """Whether the second run is faster than the first by :data:`MARGIN`."""
        count, ratio = len(self.times), self.ratio
        deviation = sqrt(count) / 2
        faster = sum(a > b for a, b in self.times)
        if ratio >= MARGIN and faster >= count / 2 + SURE * deviation:
            return Verdict.faster
        enough = sum(a > b * MARGIN for a, b in self.times)
        hopeless = enough <= count / 2 - UNLIKELY * deviation
        return Verdict.not_faster if hopeless else Verdict.unclear


def in_turns(first: Run, second: Run, clock: Clock) -> tuple[Turns, bool]:
    """Runs both in turns until it is clear whether the second is faster by :data:`MARGIN`; returns
    the turns and whether it is."""
    _turn(first, second, clock, 0)  # warm-up: first touch of memory
    times: list[tuple[float, float]] = []
    while True:
        more = FIRST if not times else len(times)
        times += [_turn(first, second, clock, n) for n in range(more)]
        turns = Turns(tuple(times))
        verdict = turns.verdict()
        spent = sum(a + b for a, b in times)
        if verdict is not Verdict.unclear or len(times) >= MOST or spent > LONGEST:
            return turns, verdict is Verdict.faster


def _turn(first: Run, second: Run, clock: Clock, number: int) -> tuple[float, float]:
    """Seconds of both; the second one goes first every other turn."""
    if number % 2:
        other = clock(second)
        return clock(first), other
    own = clock(first)
    return own, clock(second)


def clock_for(threads: int) -> Clock:
    """Measures CPU time of runs on one thread, which others on the machine affect less; wall time
    of several threads, including their waits."""
    now = process_time if threads == 1 else perf_counter

    def seconds(run: Run) -> float:
        start = now()
        run()
        return now() - start

    return seconds
