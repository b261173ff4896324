"""What commands print: results to stdout, progress and notes to stderr."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from modelcc.targets.base import Progress as Report


def output_console() -> Console:
    """Tables and summaries: stdout."""
    return Console(highlight=False)


def note(text: str) -> None:
    """A line for the person at the terminal: stderr."""
    click.echo(text, err=True)


def print_json(data: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(data, indent=1, default=str))


@contextmanager
def progress_of() -> Generator[Report]:
    """A progress callback drawn as bars on stderr, if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield report
