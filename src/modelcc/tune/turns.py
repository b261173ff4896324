"""Whether one of two runs is faster, on a machine that others use, too: turns, a margin and a sign
test.

What disturbs a machine for longer than a turn disturbs both runs of it, and which of them goes
first alternates.  A gain counts if the median of the turns' ratios has it and so many turns were
faster that chance alone would rarely have them (Dixon & Mood, "The statistical sign test", 1946).
Where neither that nor the opposite is clear yet, more turns are taken.
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
"""Tells how many seconds a run takes."""

MARGIN = 1.01
"""How many times faster something must be: what a run's place in memory may do is no gain."""

FIRST = 15
"""Turns after which a decision is tried; then after twice as many, and so on."""

MOST = 16 * FIRST
"""Turns after which what is not clear is no gain."""

LONGEST = 60.0
"""Seconds of runs after which no more turns are taken."""

SURE = 2.8
"""Standard deviations by which faster turns must outnumber half of them: one chance in 400, for
each of a few decisions."""

UNLIKELY = 1.5
"""Standard deviations by which turns faster by the margin fall short of half of them where there
hardly is such a gain."""


class Verdict(Enum):
    """What turns tell of a gain."""

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
        """The median of how many times as long as the second the first run took."""
        return median(a / b for a, b in self.times)

    def verdict(self) -> Verdict:
        """Whether the second run is :data:`MARGIN` times as fast as the first."""
        count, ratio = len(self.times), self.ratio
        deviation = sqrt(count) / 2
        faster = sum(a > b for a, b in self.times)
        if ratio >= MARGIN and faster >= count / 2 + SURE * deviation:
            return Verdict.faster
        enough = sum(a > b * MARGIN for a, b in self.times)
        hopeless = enough <= count / 2 - UNLIKELY * deviation
        return Verdict.not_faster if hopeless else Verdict.unclear


def in_turns(first: Run, second: Run, clock: Clock) -> tuple[Turns, bool]:
    """Both runs in turns until it is clear whether the second one is :data:`MARGIN` times as fast,
    and whether it is."""
    _turn(first, second, clock, 0)  # memory that is touched for the first time
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
    """Seconds of both; every other time the second one goes first."""
    if number % 2:
        other = clock(second)
        return clock(first), other
    own = clock(first)
    return own, clock(second)


def clock_for(threads: int) -> Clock:
    """Seconds of the processor for runs on one thread: who else is on the machine counts less; of
    the wall for several, whose waiting counts."""
    now = process_time if threads == 1 else perf_counter

    def seconds(run: Run) -> float:
        start = now()
        run()
        return now() - start

    return seconds
