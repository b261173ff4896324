"""The class that all errors of modelcc are of, and those that any layer may meet."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """What modelcc tells its user: every error it raises on purpose is one.

    Errors can be pickled, so that they pass between processes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[Error], arguments: tuple[object, ...], state: dict[str, object]) -> Error:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


class RunError(Error, RuntimeError):
    """A model that stopped before the end."""


class OutOfMemoryError(RunError, MemoryError):
    """More memory than the system has, or than can be addressed."""
