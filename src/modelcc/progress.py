"""Progress of long work, drawn as bars on stderr."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

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


@contextmanager
def progress_bars(shown: bool = True) -> Generator[Callable[[str, int, int], None]]:
    """A ``progress`` callback whose bars go away when the work is done.

    Nothing is drawn if stderr is no terminal that can move its cursor, or not ``shown``.
    """
    console = Console(stderr=True)
    drawn = shown and console.is_terminal and not console.is_dumb_terminal
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30),
               MofNCompleteColumn(), TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not drawn) as bar:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if not drawn:
                return
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
                bar.refresh()
            bar.update(tasks[what], completed=done, total=total, visible=done < total)

        yield report
