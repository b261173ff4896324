"""What measures, as all engines do it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

Step = Callable[[], object]
Measure = Callable[[], float]
"""Seconds of what was opened."""

ROUND_SECONDS = 0.05


class MissingPeerError(Exception):
    """An engine that is not here; it is not asked again."""


def call_seconds(step: Step) -> float:
    """Of a call, by the processor's clock, after one that is not counted."""
    step()
    count, start = 0, perf_counter()
    while (elapsed := perf_counter() - start) < ROUND_SECONDS or not count:
        step()
        count += 1
    return elapsed / count
