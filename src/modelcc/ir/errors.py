"""The base class of all errors of modelcc, and those that any layer may raise."""

from __future__ import annotations

from collections.abc import Sequence


class Error(Exception):
    """Base of every error that modelcc raises on purpose.

    Errors can be pickled, so that they pass between processes.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[Error], arguments: tuple[object, ...], state: dict[str, object]) -> Error:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


class ModelError(Error):
    """A fault in the user's model or request: what, where, why and how to fix it."""

    def __init__(self, message: str, where: Sequence[str] = (), hint: str | None = None) -> None:
        place = f"{', '.join(where)}: " if where else ""
        super().__init__(place + message + (f"\n  hint: {hint}" if hint else ""))
        self.message = message
        self.where = tuple(where)
        self.hint = hint

    def at(self, *where: str) -> ModelError:
        """The same fault, located."""
        return self if self.where else ModelError(self.message, where, self.hint)


class RunError(Error, RuntimeError):
    """A model run that was aborted."""


class OutOfMemoryError(RunError, MemoryError):
    """More memory than the system has, or than is addressable."""
