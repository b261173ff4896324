"""What a user asks of the compiler: frozen, and hashed into the key of caches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields

from modelcc.ir.index import Range
from modelcc.ir.op import ModelError

Dims = Mapping[str, "int | tuple[int, int | None] | Range"]
"""Named dimensions: a size, or the least and greatest one (None: any)."""


@dataclass(frozen=True)
class Limit:
    """Stop stage ``stage`` after ``rewrites`` rewrites, to find the one at fault."""

    stage: str
    rewrites: int


@dataclass(frozen=True)
class Options:
    """Everything that changes the compiled result.

    ``dims`` fixes (a number) or bounds (a ``Range``) named dimensions; ``threads`` is the number
    of threads that schedules are laid out for; ``optimize`` is 0 (quick, for debugging) to 3;
    ``winograd`` allows Winograd's convolutions and ``strassen`` Strassen's matrix products, whose
    rounding errors are a few times larger.
    ``skip`` names stages that are left out and ``limit`` one that stops early; ``keep`` names
    values to return as outputs too.  The last three are for finding faults.
    """

    target: str = "native"
    cpu: str = ""
    threads: int = 1
    optimize: int = 2
    dims: tuple[tuple[str, int | Range], ...] = ()
    winograd: bool = True
    strassen: bool = True
    skip: tuple[str, ...] = ()
    limit: Limit | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ModelError(f"threads must be at least 1, not {self.threads}")
        if self.optimize not in (0, 1, 2, 3):
            raise ModelError(f"the optimisation level is 0, 1, 2 or 3, not {self.optimize}")

    def key(self) -> str:
        """SHA-256 of all fields, in hexadecimal."""
        text = "\n".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return hashlib.sha256(text.encode()).hexdigest()


def fixed_dims(dims: Dims | None) -> tuple[tuple[str, int | Range], ...]:
    """``dims`` as :class:`Options` wants them."""
    pairs = (dims or {}).items()
    return tuple((n, Range(*size) if isinstance(size, tuple) else size) for n, size in pairs)


def dimension(text: str) -> tuple[str, int | Range]:
    """``batch=8`` or ``batch=1..512`` or ``batch=1..`` as a name and a number or range.

    :class:`ModelError` if it is none of these.
    """
    name, equals, value = text.partition("=")
    low, dots, high = value.partition("..")
    try:
        if not name or not equals:
            raise ValueError
        if not dots:
            return name, _number(low)
        least, most = _positive(low), _positive(high) if high else None
        if most is not None and most < least:
            raise ValueError
        return name, Range(least, most)
    except ValueError as error:
        hint = "write for example batch=8, or batch=1..512 for any size in between"
        raise ModelError(f"{text!r} is no dimension", (), hint) from error


def rewrite_limit(text: str) -> Limit:
    """``SimplifyAlgebra=3`` as a limit; :class:`ModelError` if it is none."""
    stage, _, number = text.partition("=")
    if not stage or not number.isdecimal():
        raise ModelError(f"{text!r} is no limit", (), "write for example SimplifyAlgebra=3")
    return Limit(stage, int(number))


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{number} is not positive")
    return number
