"""A lazy value: an op and its operands, and its array once it is computed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from modelcc.ir.builder import infer_types
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Range
from modelcc.ir.op import Op
from modelcc.ir.types import Array, DType, TensorType, dtype_of
from modelcc.ops.arithmetic import Cast

FREE, RECORDED, TRACED = range(3)
"""Phases of a value: no history needed; recorded for a gradient; traced, without contents."""

PACKAGE = str(Path(__file__).parent.parent)


@dataclass(frozen=True)
class Placeholder:
    """The maker of a value without contents: an input called ``name``."""

    name: str
    bounds: tuple[tuple[str, Range], ...] = ()


@dataclass(frozen=True)
class Projection:
    """One of several results of an op."""

    number: int


@dataclass(frozen=True)
class Alias:
    """The operand itself, where a gradient begins: values computed from it are recorded.

    It is ``open`` until the function to differentiate has returned.
    """

    open: bool = True


@dataclass(frozen=True)
class Literal:
    """A literal in the program's text, constant at its location."""


LITERAL = Literal()

Maker = Op | Placeholder | Projection | Alias | Literal
"""What makes a node."""


class TracingError(ModelError):
    """Python asked for the contents of a value that has none while a function is traced."""


class Lazy:
    """A node of a graph under construction.

    ``op`` and ``operands`` are its maker (None and empty once it is computed and free); ``held`` is
    its array, if it is computed.  A node of several results has no array: each of these is a
    :class:`Projection` of it.
    """

    __slots__ = ("__weakref__", "held", "op", "operands", "phase", "source", "type")

    op: Maker | None
    operands: tuple[Any, ...]
    type: TensorType
    held: Array | None
    phase: int
    source: tuple[str, ...]

    @classmethod
    def made(
        cls,
        op: Maker | None,
        operands: tuple[Any, ...],
        type: TensorType,
        phase: int,
        held: Array | None = None,
    ) -> Self:
        """A node with these fields."""
        node = object.__new__(cls)  # without the conversions of a subclass
        node.op = op
        node.operands = operands
        node.type = type
        node.held = held
        node.phase = phase
        node.source = ()
        return node

    @classmethod
    def of_array(cls, array: Array) -> Self:
        """A node that holds ``array``, which must not change any more."""
        return cls.made(None, (), array_type(array.shape, array.dtype), FREE, array)

    @classmethod
    def placeholder(
        cls, name: str, type: TensorType, bounds: tuple[tuple[str, Range], ...] = ()
    ) -> Self:
        """An input of a function that is traced."""
        return cls.made(Placeholder(name, bounds), (), type, TRACED)

    def results(self, op: Op, *operands: Lazy | None) -> tuple[Self, ...]:
        """Results of ``op``; :class:`ModelError` with the caller's line if operands do not fit."""
        return apply(type(self), op, operands)

    def of_elements(self, op: Op) -> Self:
        """The result of an elementwise ``op``, which maps floats to floats of the same type."""
        mine, phase = self.type, self.phase
        if phase != TRACED and mine.dtype.kind == "float" and mine.dtype.bits > 8:
            return self.made(op, (self,), mine, phase)
        return self.unary(op)

    def unary(self, op: Op) -> Self:
        """The result of an ``op`` with one operand and one result."""
        if self.phase == TRACED:
            return self.result(op, self)
        try:
            op, (made,) = _application(op, (self.type,))
        except ModelError as error:
            raise _located(error, op, (self.type,)) from error
        return self.made(op, (self,), made, self.phase)

    def result(self, op: Op, *operands: Lazy | None) -> Self:
        """The single result of ``op``."""
        (made,) = apply(type(self), op, operands)
        return made

    def cast(self, dtype: DType) -> Self:
        """The same values as ``dtype``."""
        return self if self.type.dtype == dtype else self.result(Cast(dtype), self)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents: numbers, or named dimensions while a function is traced."""
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)


@lru_cache(65536)
def unique(type: TensorType) -> TensorType:
    """The unique object for equal types, so that ``is`` compares types."""
    return type


@lru_cache(65536)
def array_type(shape: tuple[int, ...], dtype: np.dtype[Any]) -> TensorType:
    """The type of an array."""
    return unique(TensorType(shape, dtype_of(dtype)))


@lru_cache(65536)
def _application(op: Op, types: tuple[TensorType | None, ...]) -> tuple[Op, tuple[TensorType, ...]]:
    """The unique object for ops equal to ``op``, and the types of its results."""
    return op, tuple(map(unique, infer_types(op, types)))


Kind = TypeVar("Kind", bound=Lazy)


def apply(
    kind: type[Kind], op: Op, operands: Sequence[Lazy | None], source: tuple[str, ...] | None = None
) -> tuple[Kind, ...]:
    """Results of ``op`` as nodes of ``kind``, from ``source`` or the line that is running."""
    types = tuple([None if x is None else x.type for x in operands])
    try:
        op, made = _application(op, types)
    except ModelError as error:
        raise _located(error, op, types) from error
    phase = FREE
    for x in operands:
        if x is not None and x.phase > phase:
            phase = x.phase
    node = kind.made(op, tuple(operands), made[0], phase)
    if phase == TRACED:
        node.source = callers_line() if source is None else source
    return (node,) if len(made) == 1 else parts(node)


def parts(node: Kind) -> tuple[Kind, ...]:
    """All results of a node; itself if it is the only one."""
    types = tuple([None if x is None else x.type for x in node.operands])
    assert isinstance(node.op, Op)
    _, made = _application(node.op, types)
    if len(made) == 1:
        return (node,)
    return tuple(node.made(Projection(i), (node,), t, node.phase) for i, t in enumerate(made))


def _located(error: ModelError, op: Op, types: Sequence[TensorType | None]) -> ModelError:
    given = ", ".join("absent" if type is None else str(type) for type in types)
    place = (*callers_line(), f"{type(op).__name__}({given})")
    return ModelError(error.message, place, error.hint)


def callers_line() -> tuple[str, ...]:
    """File and line of the Python code outside of this package that is running."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return (f"{frame.f_code.co_filename}:{frame.f_lineno}",)
        frame = frame.f_back
    return ()
