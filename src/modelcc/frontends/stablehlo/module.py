"""A StableHLO module as plain data, independent of the reader.

A value is a number, unique in its module.  An attribute is a number, a text, a tuple of these, an
array, or a mapping of them by name; enumeration values are texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelcc.ir.types import DType

Attribute = Any


@dataclass(frozen=True)
class ValueType:
    """Shape, None for dynamic extents, and element type of a tensor.

    ``opaque`` is the spelling of an unsupported type.
    """

    shape: tuple[int | None, ...]
    dtype: DType | None
    opaque: str = ""

    def __str__(self) -> str:
        extents = "".join(f"{'?' if e is None else e}x" for e in self.shape)
        return self.opaque or f"tensor<{extents}{self.dtype}>"


@dataclass(frozen=True)
class Operation:
    """One operation; ``location`` is its line in the user's program."""

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
    """A function; ``labels`` are the user's names of the arguments, where known.

    ``sizes`` are the arguments that are sizes of named dimensions, by name.
    """

    name: str
    body: HloBlock
    labels: tuple[str, ...]
    result_labels: tuple[str, ...]
    sizes: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True)
class HloModule:
    """Functions by name, of which ``main`` is the model.

    ``constants`` are the known sizes of :class:`HloFunction`.
    """

    name: str
    functions: Mapping[str, HloFunction]
    constants: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def main(self) -> HloFunction:
        return self.functions["main"]
