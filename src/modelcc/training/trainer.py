"""Training over data: epochs, validation, checkpoints, early stopping and logs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.tensor.trees import flatten
from modelcc.training.batches import arguments, as_arrays
from modelcc.training.checkpoint import Checkpoint, Checkpoints, read_checkpoint, require_same_data
from modelcc.training.differences import require_same
from modelcc.training.finite import NonFiniteError
from modelcc.training.logs import Record, TrainingLog
from modelcc.training.progress import EarlyStopping, Progress
from modelcc.training.progress_bar import TrainingBar, numbers_text, training_bar
from modelcc.training.step import TrainStep


@dataclass
class Trainer:
    """Runs ``step`` over ``data``: batches that are tuples, dicts or single arrays.

    ``data`` and ``validation`` are :class:`~modelcc.training.batches.Batches`, anything that can be
    iterated anew for each epoch, or a function from the epoch number to such an iterable.  Training
    ends after ``epochs`` or ``steps``, whichever comes first.

    With a ``folder``, checkpoints are written after each epoch and after each ``checkpoint_every``
    steps, and :meth:`fit` resumes from the newest, bitwise reproducibly.  It validates after each
    epoch, or after each ``validate_every`` steps, and logs means of reports every ``log_every``
    steps.  A loss that is not finite ends the run.
    """

    step: TrainStep
    data: Any
    validation: Any = None
    epochs: int | None = None
    steps: int | None = None
    folder: str | os.PathLike[str] | None = None
    checkpoint_every: int | None = None
    validate_every: int | None = None
    log_every: int = 50
    keep: int = 2
    stopping: EarlyStopping | None = None
    logs: Sequence[TrainingLog] = ()
    show_progress: bool = True
    _best: Mapping[str, Array] | None = field(default=None, init=False, repr=False)

    def fit(self) -> Progress:
        """Train to the end; the final progress.  ``step.module`` is then the trained model."""
        if self.epochs is None and self.steps is None:
            raise ModelError("nothing says when to stop", ("Trainer",), "give epochs or steps")
        if self.stopping is not None and self.validation is None:
            raise ModelError("early stopping looks at a validation", ("Trainer",),
                             "give validation=…")  # fmt: skip
        progress, marks = self._start()
        try:
            for log, mark in zip(self.logs, marks, strict=True):
                log.start(progress.step, mark)
            with training_bar(self.show_progress, self.epochs) as bar:
                while not self._ended(progress):
                    progress = self._epoch(progress, bar)
        finally:
            for log in self.logs:
                log.close()
        self._restore(progress)
        return progress

    def evaluate(self, data: Any) -> dict[str, float]:
        """Means of loss and metrics over the samples of ``data``, in inference mode."""
        totals: dict[str, float] = {}
        samples = 0
        for batch in epoch_of(data, 0):
            args, kwargs = arguments(batch)
            size = _samples(batch)
            samples += size
            for name, value in self.step.evaluate(*args, **kwargs).items():
                totals[name] = totals.get(name, 0.0) + float(value) * size
        if not samples:
            raise ModelError("there is nothing to evaluate", ("Trainer",), "give batches")
        return {name: total / samples for name, total in totals.items()}

    # --- parts of a run

    def _epoch(self, progress: Progress, bar: TrainingBar) -> Progress:
        bar.restart()
        before, number = progress.step, progress.epoch
        for batch in epoch_of(self.data, number, progress.batch):
            progress = self._trained(progress, batch)
            text = numbers_text(progress.means)
            bar.shows(number, progress.batch, _length(self.data), text)
            progress = self._after_step(progress, bar)
            if self._ended(progress):
                return self._saved(self._seen(progress, bar))
        if progress.step == before and not progress.batch:
            raise ModelError(f"the data has no batches in epoch {number}", ("Trainer",),
                             "give what can be iterated again, as a list or Batches")  # fmt: skip
        return self._saved(self._seen(progress, bar).after_epoch())

    def _trained(self, progress: Progress, batch: Any) -> Progress:
        args, kwargs = arguments(batch)
        reported = self.step(*args, **kwargs)
        if not np.isfinite(reported["loss"]):
            raise NonFiniteError(
                f"the loss of step {progress.step} (epoch {progress.epoch}, batch "
                f"{progress.batch}) is {reported['loss']}\n  hint: TrainStep(…, check_finite=True) "
                "names the operation that made it so; a lower learning rate or a clip may help"
            )
        return progress.after_step({name: float(value) for name, value in reported.items()})

    def _after_step(self, progress: Progress, bar: TrainingBar) -> Progress:
        if progress.step % self.log_every == 0:
            progress = self._logged(progress)
        if self.validate_every and progress.step % self.validate_every == 0:
            progress = self._validated(progress, bar)
        if self.checkpoint_every and progress.step % self.checkpoint_every == 0:
            self._saved(progress)
        return progress

    def _seen(self, progress: Progress, bar: TrainingBar) -> Progress:
        """Logs and validates, at the end of an epoch or of the run."""
        if progress.count:
            progress = self._logged(progress)
        return progress if self.validate_every else self._validated(progress, bar)

    def _logged(self, progress: Progress) -> Progress:
        self._write("train", progress, progress.means)
        return progress.after_log()

    def _validated(self, progress: Progress, bar: TrainingBar) -> Progress:
        if self.validation is None:
            return progress
        found = self.evaluate(self.validation)
        self._write("validation", progress, found)
        where = f"epoch {progress.epoch + 1}, step {progress.step}"
        bar.says(f"{where}: validation {numbers_text(found)}")
        if self.stopping is None:
            return progress
        if self.stopping.metric not in found:
            known = ", ".join(found)
            raise ModelError(f"no metric is called {self.stopping.metric!r}", ("EarlyStopping",),
                             f"metrics: {known}")  # fmt: skip
        after = self.stopping.seen(progress, found)
        if after.best != progress.best:
            self._keep_best(after)
        return after

    def _write(self, part: str, progress: Progress, values: Mapping[str, float]) -> None:
        for log in self.logs:
            log.write(Record(part, progress.step, progress.epoch, values))

    def _ended(self, progress: Progress) -> bool:
        epochs = self.epochs is not None and progress.epoch >= self.epochs
        return progress.stopped or epochs or (self.steps or progress.step + 1) <= progress.step

    # --- checkpoints

    @property
    def _checkpoints(self) -> Checkpoints | None:
        return None if self.folder is None else Checkpoints(Path(self.folder), self.keep)

    def _start(self) -> tuple[Progress, Sequence[Any]]:
        """The progress to start from, and the marks of logs there."""
        nothing = [None] * len(self.logs)
        path = None if self._checkpoints is None else self._checkpoints.newest()
        if path is None or self._checkpoints is None:
            return Progress(), nothing
        self._checkpoints.clean()
        found = read_checkpoint(path)
        require_same(self.step.types, found.values, str(path))
        require_same_data(path, found, _identity(self.data))
        self.step.load(found.values)
        return found.progress, found.marks if len(found.marks) == len(self.logs) else nothing

    def _checkpoint(self, progress: Progress) -> Checkpoint:
        marks = tuple(log.mark() for log in self.logs)
        return Checkpoint(self.step.values, progress, _identity(self.data), marks)

    def _saved(self, progress: Progress) -> Progress:
        if self._checkpoints is not None:
            self._checkpoints.add(self._checkpoint(progress))
        return progress

    def _keep_best(self, progress: Progress) -> None:
        if self._checkpoints is None:
            self._best = self.step.values
        else:
            self._checkpoints.add_best(self._checkpoint(progress))

    def _restore(self, progress: Progress) -> None:
        """Restores the best values, if early stopping requests that."""
        if self.stopping is None or not self.stopping.restore or progress.best is None:
            return
        found = None if self._checkpoints is None else self._checkpoints.best()
        best = self._best if found is None else found.values
        if best is not None:
            self.step.load(best)


def epoch_of(data: Any, number: int, start: int = 0) -> Iterator[Any]:
    """Batches of an epoch of ``data`` from number ``start`` on."""
    if hasattr(data, "epoch"):
        return data.epoch(number, start)
    batches = data(number) if callable(data) else data
    return islice(cast("Iterable[Any]", batches), start, None)


def _length(data: Any) -> int | None:
    return len(data) if hasattr(data, "__len__") else None


def _identity(data: Any) -> dict[str, Any]:
    return data.identity() if hasattr(data, "identity") else {}


def _samples(batch: Any) -> int:
    leaves = flatten(as_arrays(batch))[0]
    return len(leaves[0]) if leaves and np.ndim(leaves[0]) else 1
