"""Tuning results per kernel: its default and the fastest schedule, and why that was accepted or
not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from modelcc.model_tuning.tuning import Tuning
from modelcc.schedule.text import print_schedule
from modelcc.tune.database import Measurement, State
from modelcc.tune.search import GAIN, SearchResult


@dataclass(frozen=True)
class KernelRow:
    """A distinct kernel: ``seconds`` of a call by ``default``, ``share`` of the time of all
    kernels; the ``best`` schedule measured is ``gain`` times as fast (the default itself: 1.0).

    ``measured`` and ``failed`` count candidates, including earlier runs.
    """

    key: str
    nodes: tuple[str, ...]
    calls: int
    default: str
    best: str
    seconds: float
    share: float
    gain: float
    measured: int
    failed: int
    taken: bool
    verdict: str

    @property
    def own(self) -> float:
        """Seconds of a call by the best schedule."""
        return self.seconds / self.gain

    @property
    def saved(self) -> float:
        """Seconds per run of the model that the best schedule saves by itself."""
        return self.calls * (self.seconds - self.own)


def kernel_rows(tuning: Tuning) -> tuple[KernelRow, ...]:
    """Kernels by the time saved, then by their share of the time."""
    total = sum(one.task.calls * one.seconds for one in tuning.kernels)
    rows = (_row(one, tuning, total) for one in tuning.kernels)
    return tuple(sorted(rows, key=lambda row: (not row.taken, -row.saved, -row.share)))


def set_aside(tuning: Tuning) -> Iterator[tuple[SearchResult, Measurement]]:
    """Candidates that crashed or hung, with their kernels."""
    for one in tuning.kernels:
        for measured in tuning.known.get(one.task.key, {}).values():
            if measured.state is not State.measured:
                yield one, measured


def earlier_trials(tuning: Tuning) -> Iterator[Measurement]:
    """Choices above kernels that were tried by earlier runs only."""
    own = {trial.text for trial in tuning.trials}
    yield from (m for text, m in tuning.known.get("model", {}).items() if text not in own)


def _row(found: SearchResult, tuning: Tuning, total: float) -> KernelRow:
    task = found.task
    default, known = print_schedule(task.default), tuning.known.get(task.key, {})
    best, gain, verdict = _verdict(found, tuning, known)
    return KernelRow(
        task.key,
        task.nodes,
        task.calls,
        default,
        best,
        found.seconds,
        task.calls * found.seconds / total if total else 0.0,
        gain,
        sum(one.state is State.measured for one in known.values()),
        sum(one.state is not State.measured for one in known.values()),
        task.key in tuning.schedules,
        verdict,
    )


def _verdict(
    found: SearchResult, tuning: Tuning, known: Mapping[str, Measurement]
) -> tuple[str, float, str]:
    """The best schedule, its gain, and the verdict on it."""
    default = print_schedule(found.task.default)
    if found.task.key in tuning.schedules:
        return print_schedule(found.best), found.gain, "taken"
    if found.best != found.task.default:
        reason = "faster by itself; the model was not faster with it"
        return print_schedule(found.best), found.gain, reason
    if found.doubt is not None:
        first, again = found.doubt.first, found.doubt.again
        reason = f"{first:.2f} in the search, {again:.2f} when measured again"
        return print_schedule(found.doubt.schedule), max(again, 1.0), reason
    gains = {text: one.gain or 0.0 for text, one in known.items()}
    fastest = max(gains, key=lambda text: gains[text], default=default)
    if gains.get(fastest, 0.0) >= GAIN:
        return fastest, gains[fastest], "measured in an earlier run; does not fit any more"
    return default, 1.0, "the default is the fastest" if gains else "nothing else was measured"
