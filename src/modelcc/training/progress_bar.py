"""Terminal progress of a training run: epoch, steps, latest values, and the remaining time."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@dataclass
class TrainingBar:
    """The bar of a run of ``epochs`` epochs, None if unknown."""

    bar: Progress
    task: TaskID
    epochs: int | None

    def shows(self, epoch: int, batch: int, batches: int | None, text: str) -> None:
        """``batch`` of ``batches`` of an epoch are done."""
        of = "" if self.epochs is None else f"/{self.epochs}"
        self.bar.update(
            self.task,
            description=f"epoch {epoch + 1}{of}",
            completed=batch,
            total=batches,
            numbers=text,
            visible=True,
        )

    def says(self, text: str) -> None:
        """Prints a line above the bar."""
        self.bar.console.print(text, markup=False, highlight=False)

    def restart(self) -> None:
        """Restarts timing for a new epoch."""
        self.bar.reset(self.task)


@contextmanager
def training_bar(
    shown: bool, epochs: int | None, console: Console | None = None
) -> Generator[TrainingBar]:
    """A bar on stderr that is removed at the end; none if stderr is not a terminal."""
    console = console or Console(stderr=True)
    drawn = shown and console.is_terminal and not console.is_dumb_terminal
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24),
               MofNCompleteColumn(), TextColumn("{task.fields[numbers]}", markup=False),
               TimeElapsedColumn(), TextColumn("<"), TimeRemainingColumn())  # fmt: skip
    bar = Progress(*columns, console=console, transient=True, disable=not drawn)
    # Some versions of rich print a newline when a disabled bar exits.
    with bar if drawn else nullcontext():
        task = bar.add_task("", total=None, visible=False, numbers="")
        if not drawn:
            console.quiet = True
        yield TrainingBar(bar, task, epochs)


def numbers_text(values: Mapping[str, float]) -> str:
    """``loss 0.3127  accuracy 0.92``."""
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())
