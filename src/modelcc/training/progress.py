"""Progress of training: all of its non-tensor state, for resuming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Progress:
    """``step`` updates are done, and ``batch`` batches of epoch number ``epoch``.

    ``sums`` are totals of ``count`` steps' reports since the last log; ``best`` is the best value
    that early stopping has seen, ``waited`` validations ago.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    sums: Mapping[str, float] = field(default_factory=dict[str, float])
    count: int = 0
    best: float | None = None
    waited: int = 0
    stopped: bool = False

    def after_step(self, reported: Mapping[str, float]) -> Progress:
        """The state after one more step."""
        sums = {name: self.sums.get(name, 0.0) + value for name, value in reported.items()}
        return replace(
            self, step=self.step + 1, batch=self.batch + 1, sums=sums, count=self.count + 1
        )

    def after_epoch(self) -> Progress:
        """The state at the beginning of the next epoch."""
        return replace(self, epoch=self.epoch + 1, batch=0)

    def after_log(self) -> Progress:
        """The state with nothing to log."""
        return replace(self, sums={}, count=0)

    @property
    def means(self) -> dict[str, float]:
        """Means of the reports since the last log."""
        return {name: total / self.count for name, total in self.sums.items()}


@dataclass(frozen=True)
class EarlyStopping:
    """Stop when ``metric`` of the validation has not improved for ``patience`` validations.

    Better is less, or more with ``mode="max"``, by more than ``least``.  ``restore`` returns to the
    best values at the end.
    """

    metric: str = "loss"
    patience: int = 5
    mode: str = "min"
    least: float = 0.0
    restore: bool = True

    def seen(self, progress: Progress, found: Mapping[str, float]) -> Progress:
        """The state after a validation with these metrics."""
        value = found[self.metric]
        if self.improves(progress.best, value):
            return replace(progress, best=value, waited=0)
        waited = progress.waited + 1
        return replace(progress, waited=waited, stopped=waited >= self.patience)

    def improves(self, best: float | None, value: float) -> bool:
        """Whether ``value`` is better; NaN never is."""
        if best is None:
            return value == value
        gain = best - value if self.mode == "min" else value - best
        return gain > self.least


def to_json(progress: Progress) -> dict[str, Any]:
    """A JSON object, from which :func:`from_json` restores an equal one."""
    return {**vars(progress), "sums": dict(progress.sums)}


def from_json(value: Mapping[str, Any]) -> Progress:
    """The inverse of :func:`to_json`; ``TypeError`` for other versions."""
    return Progress(**value)
