"""Errors between a compiled model and its caller."""

from __future__ import annotations

from modelcc.ir.errors import Error, OutOfMemoryError, RunError

__all__ = ["InputError", "LoadError", "OutOfMemoryError", "RunError"]


class InputError(Error, ValueError):
    """An argument that does not fit the model: its name, expected and actual, and a remedy."""

    def __init__(self, where: str, expected: str, given: str, remedy: str) -> None:
        super().__init__(f"{where}: expected {expected}, got {given}; {remedy}")
        self.where = where
        self.expected = expected
        self.given = given
        self.remedy = remedy


class LoadError(Error):
    """Object files that cannot run in this process, and why."""
