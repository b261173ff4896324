"""What commands print: results to stdout, progress and notes to stderr."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from shutil import get_terminal_size

import click
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from modelcc.cli.verbosity import is_default, is_quiet
from modelcc.report.progress import Bars, progress_bars

PIPED_WIDTH = 200
"""Columns where stdout is no terminal: a file or a pager has room for whole names of kernels."""


def output_console() -> Console:
    """Tables and summaries: stdout."""
    return _Output(highlight=False, width=get_terminal_size((PIPED_WIDTH, 24)).columns)


class _Output(Console):
    """Leaves a reader that has gone (``| head``) to the command's end, which is no failure."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def right(*names: str) -> Iterable[Column]:
    """Columns of numbers."""
    return (Column(name, justify="right") for name in names)


def note(text: str) -> None:
    """A line for the person at the terminal: stderr, unless that is to be quiet."""
    if not is_quiet():
        click.echo(text, err=True)


def print_pairs(rows: Iterable[tuple[str, str]]) -> None:
    """Names and values in two columns on stdout; long values are folded."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    output_console().print(table)


def print_json(data: Mapping[str, object]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(data, indent=1, default=str))


@contextmanager
def progress_of() -> Generator[Bars]:
    """A progress callback drawn as bars on stderr, if that is a terminal and lines do not come."""
    with progress_bars(is_default()) as report:
        yield report
