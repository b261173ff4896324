"""Clocks, common to all engines."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

Step = Callable[[], object]
Measure = Callable[[], float]
"""Measures an opened row, in seconds."""

ROUND_SECONDS = 0.05


class MissingPeerError(Exception):
    """An engine that is not installed; it is not queried again."""


def call_seconds(step: Step) -> float:
    """Seconds of a call by the host's clock, after a warm-up call."""
    step()
    count, start = 0, perf_counter()
    while (elapsed := perf_counter() - start) < ROUND_SECONDS or not count:
        step()
        count += 1
    return elapsed / count
