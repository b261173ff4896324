"""``-v`` and ``-q``: how much of what happens is reported on stderr, by the logger ``modelcc``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import click

LOGGER = logging.getLogger("modelcc")
Command = TypeVar("Command", bound=Callable[..., object])

_QUIET, _NORMAL = logging.ERROR, logging.WARNING


def verbosity_options(command: Command) -> Command:
    """Adds the options ``-v`` and ``-q``, which set the level of the logger."""
    for option in (_QUIETER, _LOUDER):
        command = option(command)
    return command


def _louder(context: click.Context, parameter: click.Parameter, count: int) -> None:
    if count:
        LOGGER.setLevel(logging.INFO if count == 1 else logging.DEBUG)


def _quieter(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        LOGGER.setLevel(_QUIET)


_LOUDER = click.option(
    "-v", "--verbose", count=True, expose_value=False, callback=_louder,
    help="Tell of stages and caches on stderr; -vv of more.",
)  # fmt: skip
_QUIETER = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_quieter,
    help="Print results and errors only.",
)  # fmt: skip


@contextmanager
def logging_to_stderr() -> Generator[None]:
    """While it lasts, what modelcc logs goes to stderr; then all is as before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    before = LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(_NORMAL)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before[0])
        LOGGER.propagate = before[1]


def is_quiet() -> bool:
    """Whether notes and bars are not wanted."""
    return LOGGER.level > _NORMAL


def is_default() -> bool:
    """Whether bars may be drawn: they are wanted, and there are no lines they would run into."""
    return LOGGER.level == _NORMAL


class _Lines(logging.Formatter):
    """``warning: text``; below that, who says it."""

    def format(self, record: logging.LogRecord) -> str:
        warned = record.levelno >= logging.WARNING
        head = record.levelname.lower() if warned else record.name
        return f"{head}: {record.getMessage()}"
