"""Library functions among the callees of a program.

A library function is called by its symbol, once or for each value of a counter::

    library openblas calls cblas_sgemm(i32(101), …, f32(1.0), %x0[64*b], i32(64), …) for b < 24
    func @MatMul(%x0: f32[1536], %x1: f32[4096], %y0: mut f32[1536]) { … }

Structures are passed by address, ``cmsis_nn_dims{i32(1), i32(49), …}``; a ``header`` declares their
types and the symbol.

The loop function after it defines its semantics: the interpreter runs it, and the callee has its
name, parameters and sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from modelcc.ir.index import Index
from modelcc.ir.loop import Const, Function, IndexOf, Parameter


@dataclass(frozen=True)
class Address:
    """The address of element ``offset`` of a buffer."""

    buffer: str
    offset: Index = 0


@dataclass(frozen=True)
class Null:
    """The null pointer."""


@dataclass(frozen=True)
class Struct:
    """A structure of the library's ``type``, which is passed by address; a structure nested in
    another one is embedded in it."""

    type: str
    fields: tuple[Argument, ...]


Argument: TypeAlias = Address | Null | Const | IndexOf | Struct
"""Arguments of a symbol: addresses, and scalars by value."""


@dataclass(frozen=True)
class ExternalCall:
    """``symbol`` of ``library``, called with ``arguments`` for each ``counter`` in 0 … count - 1.

    Without a counter it is called once.  Its return value is ignored, and calls run in order.
    ``header`` declares it (empty: it is declared from its arguments).
    """

    library: str
    symbol: str
    arguments: tuple[Argument, ...]
    counter: str = ""
    count: Index = 1
    header: str = ""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All addresses that are passed, including those in structures."""
        return tuple(_addresses(self.arguments))


def _addresses(arguments: Iterable[Argument]) -> Iterator[Address]:
    for argument in arguments:
        if isinstance(argument, Address):
            yield argument
        elif isinstance(argument, Struct):
            yield from _addresses(argument.fields)


@dataclass(frozen=True)
class LibraryFunction:
    """``meaning``, a loop function without threads or checks, defines what ``call`` computes."""

    call: ExternalCall
    meaning: Function

    @property
    def name(self) -> str:
        """The name that launches use."""
        return self.meaning.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Buffer parameters."""
        return self.meaning.parameters

    @property
    def sizes(self) -> tuple[str, ...]:
        """Size parameters, which follow the buffers."""
        return self.meaning.sizes


Callee: TypeAlias = Function | LibraryFunction
"""What a step can launch, by name."""


def meaning_of(callee: Callee) -> Function:
    """The loop function that defines what ``callee`` computes."""
    return callee.meaning if isinstance(callee, LibraryFunction) else callee


def call_of(callee: Callee) -> ExternalCall | None:
    """The library call that implements it; None for a loop function."""
    return callee.call if isinstance(callee, LibraryFunction) else None


def with_meaning(callee: Callee, meaning: Function) -> Callee:
    """``callee`` with another name, parameters or body."""
    return replace(callee, meaning=meaning) if isinstance(callee, LibraryFunction) else meaning
