"""Ctrl-C of a command: the exception comes up, and what it breaks in finalizers stays silent."""

from __future__ import annotations

import sys
from signal import (
    ITIMER_REAL,
    SIGALRM,
    SIGINT,
    default_int_handler,
    getsignal,
    setitimer,
    signal,
)
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_PAUSE = 0.02
"""Seconds until an interruption that a finalizer has swallowed is sent again."""


def stop_on_interruption() -> None:
    """Have SIGINT raise ``KeyboardInterrupt``, for the rest of the process.

    It is raised between any two instructions. In a constructor, it leaves an object without
    attributes that its finalizer needs; in a finalizer or a callback of C, Python prints it and
    goes on. So, once the signal has come, errors that Python can only print are not printed, and
    an interruption among them comes again as SIGALRM. A signal that is ignored (shells have
    background jobs ignore this one) stays so.
    """
    if getsignal(SIGINT) is default_int_handler:
        signal(SIGINT, _interrupt)
        signal(SIGALRM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    sys.unraisablehook = _drop
    while frame is not None and frame.f_code is not _drop.__code__:
        frame = frame.f_back
    if frame is None:
        default_int_handler(number, frame)
    setitimer(ITIMER_REAL, _PAUSE)  # raised in _drop it would be lost


def _drop(error: UnraisableHookArgs) -> None:
    if issubclass(error.exc_type, KeyboardInterrupt):
        setitimer(ITIMER_REAL, _PAUSE)  # raised from here it would be lost as well
