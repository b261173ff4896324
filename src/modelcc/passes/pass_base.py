"""What a pass is: a frozen dataclass that maps a level's program to a better one.

Its name is that of its class, its options are its fields.  ``__call__`` is a pure function and
the result passes the level's verifier.
"""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol, TypeVar

Level = TypeVar("Level")


class Pass(Protocol[Level]):
    """A transformation of one level; implementations are frozen dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    def __call__(self, program: Level, /) -> Level:
        """The transformed program."""
        ...


def pass_text(step: Pass[Any]) -> str:
    """Name and options of a pass as they are written in Python, e.g. ``Cse()``."""
    options = ", ".join(f"{f.name}={getattr(step, f.name)!r}" for f in fields(step))
    return f"{type(step).__name__}({options})"
