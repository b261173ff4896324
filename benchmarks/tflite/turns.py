"""Engines interleaved in one process on one core, in CPU time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.tflite.engines import Engine

MOST_CALLS = 20_000


@dataclass(frozen=True)
class Timing:
    """CPU microseconds of a call, one number per turn."""

    turns: tuple[float, ...]

    @property
    def least(self) -> float:
        """Over all turns."""
        return min(self.turns)

    @property
    def median(self) -> float:
        """Over all turns."""
        return statistics.median(self.turns)


def measure(engines: Mapping[str, Engine], turns: int, seconds: float) -> dict[str, Timing]:
    """Each engine's calls for about ``seconds`` per turn, every other round reversed."""
    calls = {name: _calls(engine, seconds) for name, engine in engines.items()}
    found: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(turns):
        for name in list(engines)[:: 1 if turn % 2 == 0 else -1]:
            found[name].append(_time(engines[name], calls[name]))
    return {name: Timing(tuple(times)) for name, times in found.items()}


def ratio(ours: Timing, theirs: Timing) -> float:
    """Ratio of ``theirs`` to ``ours``: the median over turns."""
    return statistics.median(b / a for a, b in zip(ours.turns, theirs.turns, strict=True))


def _calls(engine: Engine, seconds: float) -> int:
    """How many calls take about ``seconds``."""
    least = min(_time(engine, 2) for _ in range(3))
    return max(1, min(MOST_CALLS, round(1e6 * seconds / least)))


def _time(engine: Engine, calls: int) -> float:
    """Microseconds of one of ``calls`` calls, after a warm-up call."""
    engine()
    start = time.thread_time()
    for _ in range(calls):
        engine()
    return 1e6 * (time.thread_time() - start) / calls
