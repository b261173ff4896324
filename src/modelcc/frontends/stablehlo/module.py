"""A StableHLO module as plain data: what handlers see of it, whoever has read it.

A value is a number, unique in its module.  An attribute is a number, a text, a tuple of these, an
array, or a mapping of them by name; words of an enumeration are texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelcc.ir.types import DType

Attribute = Any


@dataclass(frozen=True)
class ValueType:
    """Shape, None where an extent is not written down, and element type of a tensor.

    ``opaque`` is the spelling of a type that is no tensor modelcc knows.
    """

    shape: tuple[int | None, ...]
    dtype: DType | None
    opaque: str = ""

    def __str__(self) -> str:
        extents = "".join(f"{'?' if e is None else e}x" for e in self.shape)
        return self.opaque or f"tensor<{extents}{self.dtype}>"


@dataclass(frozen=True)
class Operation:
    """One operation; ``location`` is the line of the user's program that it stems from."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    operand_types: tuple[ValueType, ...]
    types: tuple[ValueType, ...]
    attributes: Mapping[str, Attribute]
    regions: tuple[HloBlock, ...]
    location: str


@dataclass(frozen=True)
class HloBlock:
    """Arguments and operations; the last of these returns ``results``."""

    arguments: tuple[int, ...]
    types: tuple[ValueType, ...]
    operations: tuple[Operation, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class HloFunction:
    """A function; ``labels`` are what the user calls the arguments, where that is known.

    ``sizes`` says by name which arguments are sizes of named dimensions.
    """

    name: str
    body: HloBlock
    labels: tuple[str, ...]
    result_labels: tuple[str, ...]
    sizes: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True)
class HloModule:
    """Functions by name, of which ``main`` is the model.

    ``constants`` are the sizes of :class:`HloFunction` that are known.
    """

    name: str
    functions: Mapping[str, HloFunction]
    constants: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def main(self) -> HloFunction:
        return self.functions["main"]
