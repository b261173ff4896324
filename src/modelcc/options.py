"""User options of the compiler: frozen, and hashed into the key of caches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from types import MappingProxyType
from typing import TypeGuard

from modelcc.checks import (
    dimensions,
    flag,
    names,
    number,
    optional_flag,
    pairs_of,
    shown,
    text,
    whole_number,
)
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Range
from modelcc.targets.cpu.machine import CpuModel, with_numbers

Dims = Mapping[str, "int | tuple[int, int | None] | Range"]
"""Named dimensions: a size, or the minimum and maximum (None: any)."""

STANDARD, STRICT = "standard", "strict"
ACCURACIES = (STANDARD, STRICT)
"""With and without algorithms that save multiplications and round differently."""

AUTO, GENERATED, LIBRARY = "auto", "generated", "library"
KERNELS = (AUTO, GENERATED, LIBRARY)
"""Implementations of kernels: whichever is estimated to be faster, generated code, or libraries
wherever possible."""

PRECISIONS = ("f32", "tf32x3", "tf32", "bf16", "f16")
"""Precisions in which products of f32 are computed."""


@dataclass(frozen=True)
class Limit:
    """Stops stage ``stage`` after ``rewrites`` rewrites, to bisect."""

    stage: str
    rewrites: int


@dataclass(frozen=True)
class Options:
    """Everything that changes the compiled result.

    ``dims`` fixes (a number) or bounds (a ``Range``) named dimensions; ``threads`` is the number of
    threads that schedules target; ``optimize`` is 0 (quick, for debugging: plain layouts and, in C,
    scalar loops) to 3;
    ``winograd`` allows Winograd's convolutions and ``strassen`` Strassen's matrix products, whose
    rounding errors may be a few times larger; None leaves this to ``accuracy``, which is
    ``standard`` (allowed) or ``strict`` (disabled: every sum is of the model's own products).
    ``precision`` is the type of operands of f32 products: ``f32``, rounded to ``tf32`` (10 bits of
    mantissa, on machines that have it) or as a sum of two such numbers (``tf32x3``: three products,
    about as exact as f32), or ``bf16`` or ``f16``, in which values between such products are
    stored, too.  Sums stay f32.
    ``schedule`` is the text of schedules for some of the kernels, as ``--emit schedule`` prints
    them; ``tuned`` uses the schedules that ``modelcc tune`` found for others on this machine.
    ``unchecked`` omits the checks of indices that come from data: one out of range is then
    undefined behaviour.
    ``machine`` has numbers of the processor's model (``{"l2_bytes": 1 << 19}``) that override the
    known ones, as :mod:`modelcc.cache.measurements` stores them.
    ``libraries`` are those that kernels may call, names with paths (empty: the default search):
    with ``kernels`` ``auto`` if a schedule requests it, or, on microcontrollers and GPUs, if that
    is estimated to take less time; with ``library`` wherever possible, with ``generated`` never
    (None: ``auto`` if libraries are named, else ``generated``).  NVIDIA's GPUs use all that are
    found if none is named.
    ``ram`` is the memory in bytes of a microcontroller for a model: rows are streamed through
    layers as far as needed to fit.
    ``skip`` names stages to omit and ``limit`` one that stops early; ``keep`` names values to
    return as outputs too.  The last three are for debugging.
    """

    target: str = "native"
    cpu: str = ""
    threads: int = 1
    optimize: int = 2
    dims: tuple[tuple[str, int | Range], ...] = ()
    accuracy: str = STANDARD
    precision: str = "f32"
    winograd: bool | None = None
    strassen: bool | None = None
    schedule: str = ""
    tuned: bool = False
    unchecked: bool = False
    machine: tuple[tuple[str, float], ...] = ()
    libraries: tuple[tuple[str, str], ...] = ()
    kernels: str | None = None
    ram: int | None = None
    skip: tuple[str, ...] = ()
    limit: Limit | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            check = _CHECKS.get(field.name, flag if field.type == "bool" else None)
            if check is not None:
                value = check(field.name, getattr(self, field.name))
                object.__setattr__(self, field.name, value)
        for name in ("winograd", "strassen"):
            if getattr(self, name) and self.accuracy == STRICT:
                what = f"{name} contradicts accuracy {STRICT!r}, which leaves it out"
                raise ModelError(what, (), "ask for one of the two")

    def allows(self, asked: bool | None) -> bool:
        """Whether an algorithm that rounds differently may be used: as ``asked``, else by
        ``accuracy``."""
        return self.accuracy != STRICT if asked is None else asked

    @property
    def kernels_by(self) -> str:
        """One of :data:`KERNELS`."""
        return self.kernels or (AUTO if self.libraries else GENERATED)

    def key(self) -> str:
        """SHA-256 of all fields, in hexadecimal."""
        text = "\n".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return hashlib.sha256(text.encode()).hexdigest()


def _machine(what: str, value: object) -> tuple[tuple[str, float], ...]:
    given = pairs_of(value)
    if given is None:
        hint = "for example {'l2_bytes': 524288}"
        raise ModelError(f"{what} must be numbers by name, not {shown(value)}", (), hint)
    hint = "the names are str"
    pairs = {text(what, k, hint): number(f"{what} {k!r}", v) for k, v in given}
    with_numbers(CpuModel(), tuple(pairs.items()))
    return tuple(sorted(pairs.items()))


def library_paths(what: str, value: object) -> tuple[tuple[str, str], ...]:
    """Paths by the names of libraries, sorted; :class:`ModelError` for any other value."""
    given = pairs_of(value)
    hint = "for example {'openblas': ''}, or a path for ''"
    if given is None:
        raise ModelError(f"{what} must be paths by name, not {shown(value)}", (), hint)
    return tuple(sorted((text(what, name, hint), text(what, path, hint)) for name, path in given))


def _kernels(what: str, value: object) -> str | None:
    return None if value is None else _one_of(KERNELS, what, value)


def _one_of(known: Sequence[str], what: str, value: object) -> str:
    hint = " or ".join(map(repr, known))
    asked = text(what, value, hint)
    if asked not in known:
        raise ModelError(f"{what} must be {hint}, not {shown(value)}")
    return asked


def _limit(what: str, value: object) -> Limit | None:
    if value is None or isinstance(value, Limit):
        return value
    if isinstance(value, str) or not _is_sequence(value):
        hint = "give the name of a stage and a number, as in limit=('SimplifyAlgebra', 3)"
        raise ModelError(f"{what} must be a stage and rewrites, not {shown(value)}", (), hint)
    if len(value) != 2:
        raise ModelError(f"{what} must have a stage and a number, not {len(value)} values")
    return Limit(text("the stage of limit", value[0]), whole_number("limit", value[1]))


def _ram(what: str, value: object) -> int | None:
    return None if value is None else whole_number(what, value, low=1)


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence)


_CHECKS: Mapping[str, Callable[[str, object], object]] = MappingProxyType(
    {
        "target": partial(text, hint="for example target='native'"),
        "cpu": partial(text, hint="for example cpu='x86-64-v3'"),
        "threads": partial(whole_number, low=1),
        "schedule": partial(text, hint="the text of schedules"),
        "optimize": partial(whole_number, low=0, high=3),
        "dims": dimensions,
        "accuracy": partial(_one_of, ACCURACIES),
        "precision": partial(_one_of, PRECISIONS),
        "winograd": optional_flag,
        "strassen": optional_flag,
        "machine": _machine,
        "libraries": library_paths,
        "kernels": _kernels,
        "ram": _ram,
        "skip": names,
        "limit": _limit,
        "keep": names,
    }
)
"""Checks by field; those of type ``bool`` are flags."""


def dimension(text: str) -> tuple[str, int | Range]:
    """``batch=8`` or ``batch=1..512`` or ``batch=1..`` as a name and a number or range.

    :class:`ModelError` otherwise.
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


def library(text: str) -> tuple[str, str]:
    """``openblas`` or ``openblas=/usr/lib/libopenblas.so`` as a name and a path."""
    name, _, path = text.partition("=")
    return name, path


def rewrite_limit(text: str) -> Limit:
    """``SimplifyAlgebra=3`` as a limit; :class:`ModelError` otherwise."""
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
