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
    """A ``progress`` callback: a bar for each text, which goes away when all its parts are done."""

    bar: Progress
    drawn: bool
    tasks: dict[str, TaskID] = field(default_factory=dict[str, TaskID])

    def __call__(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` parts of ``what``."""
        self._update(what, what, done, total)

    def whole(self, text: str, done: int, total: int) -> None:
        """The one bar of all the work, whose text says how that stands."""
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
    """Bars that go away when the work is done.

    Nothing is drawn if stderr is no terminal that can move its cursor, or not ``shown``.
    """
    console = Console(stderr=True)
    drawn = shown and console.is_terminal and not console.is_dumb_terminal
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False),
               BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())  # fmt: skip
    bar = Progress(*columns, console=console, transient=True, disable=not drawn)
    # Some versions of rich end a line when they leave what was disabled.
    with bar if drawn else nullcontext():
        yield Bars(bar, drawn)
