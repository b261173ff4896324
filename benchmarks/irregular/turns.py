"""Interleaved timing of engines in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

SECONDS = 0.6
"""Measurement time per size of each model."""

PAUSE = 0.1
"""Seconds before an engine's turn on several threads.  ONNX Runtime's threads keep spinning for
tens of milliseconds, and would occupy the cores of the next engine."""

TURN = 5
"""Timed runs of a turn on several threads, after one that wakes the engine's threads."""


@dataclass(frozen=True)
class Turns:
    """How engines are interleaved: ``pause`` seconds before each turn, ``idle`` untimed runs, then
    ``timed`` ones."""

    clock: Callable[[], float]
    pause: float = 0.0
    idle: int = 0
    timed: int = 1

    def times(self, runs: Sequence[Callable[[], object]]) -> list[float]:
        """Median seconds of each."""
        for run in runs:
            run()
        start = self.clock()
        for run in runs:
            run()
        each = (self.clock() - start) * (self.idle + self.timed) + self.pause * len(runs)
        rounds = min(2000, max(9, int(SECONDS / max(1e-6, each))))
        found: list[list[float]] = [[] for _ in runs]
        for _ in range(rounds):
            for run, times in zip(runs, found, strict=True):
                times += self._turn(run)
        return [median(times) for times in found]

    def _turn(self, run: Callable[[], object]) -> Iterator[float]:
        time.sleep(self.pause)
        for _ in range(self.idle):
            run()
        for _ in range(self.timed):
            start = self.clock()
            run()
            yield self.clock() - start


def turns_on(threads: int) -> Turns:
    """On one thread, other load does not count."""
    if threads == 1:
        return Turns(time.process_time)
    return Turns(time.perf_counter, PAUSE, idle=1, timed=TURN)
