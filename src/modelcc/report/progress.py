"""Progress of long work, drawn as bars on stderr."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


@dataclass
class Bars:
    """A ``progress`` callback: a bar for each text, removed when all its parts are done."""

    bar: Progress
    drawn: bool
    tasks: dict[str, TaskID] = field(default_factory=dict[str, TaskID])

    def __call__(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` parts of ``what``."""
        self._update(what, what, done, total)

    def whole(self, text: str, done: int, total: int) -> None:
        """A single bar for all the work, whose text describes the status."""
        self._update("", text, min(done, total - 1), total)

    def _update(self, name: str, text: str, done: int, total: int) -> None:
        if not self.drawn:
            return
        if name not in self.tasks:
            self.tasks[name] = self.bar.add_task(text, total=total)
            self.bar.refresh()
        shown = done < total
        self.bar.update(
            self.tasks[name], description=text, completed=done, total=total, visible=shown
        )


@contextmanager
def progress_bars(shown: bool = True) -> Generator[Bars]:
    """Bars that are removed when the work is done.

    Nothing is drawn if stderr is not a terminal with cursor control, or not ``shown``.
    """
    console = Console(stderr=True)
    drawn = shown and console.is_terminal and not console.is_dumb_terminal
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False),
               BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())  # fmt: skip
    bar = Progress(*columns, console=console, transient=True, disable=not drawn)
    # Some versions of rich print a newline when a disabled bar exits.
    with bar if drawn else nullcontext():
        yield Bars(bar, drawn)
