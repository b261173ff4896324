"""Sequences, optional values and maps: at import they are tuples of tensors, known one by one.

Nothing of them is left in the graph.  What a model takes or returns of them is told by the graph's
interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.structure import Records, Structure
from modelcc.ir.types import DType


@dataclass(frozen=True)
class GroupValue:
    """A value that is no tensor: of a ``kind``, and made of the values ``parts``."""

    kind: ClassVar[str]

    @property
    def parts(self) -> tuple[str, ...]:
        """The values that it consists of."""
        return ()

    def of(self, parts: Sequence[str]) -> GroupValue:
        """The same structure of as many other values."""
        return self


@dataclass(frozen=True)
class SequenceValue(GroupValue):
    """A sequence of known length: its elements' values."""

    elements: tuple[str, ...]
    kind = "a sequence"

    @property
    def parts(self) -> tuple[str, ...]:
        return self.elements

    def of(self, parts: Sequence[str]) -> GroupValue:
        return SequenceValue(tuple(parts))


@dataclass(frozen=True)
class OptionalValue(GroupValue):
    """An optional value: a tensor or sequence, or ``""`` where there is none."""

    value: str
    kind = "an optional value"

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.value,) if self.value else ()

    def of(self, parts: Sequence[str]) -> GroupValue:
        return OptionalValue(*parts) if parts else self


@dataclass(frozen=True)
class RecordsValue(GroupValue):
    """A sequence of maps with the same keys: row i of the value of shape [n, len(keys)]."""

    keys: tuple[str | int, ...]
    value: str
    kind = "maps"

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.value,)

    def of(self, parts: Sequence[str]) -> GroupValue:
        return RecordsValue(self.keys, *parts)


@dataclass(frozen=True)
class MapValue(GroupValue):
    """A map that the caller gives as input ``name``, from anything to ``dtype``."""

    name: str
    dtype: DType
    kind = "a map"


def refuse_group(group: GroupValue) -> None:
    """Not supported: a tensor is wanted where there is a ``group``."""
    unsupported(f"it wants a tensor where there is {group.kind}")


def structure_of(
    value: str, name: str, find: Callable[[str], GroupValue | None], leaves: list[tuple[str, str]]
) -> Structure:
    """The structure of ``value``, called ``name``; its tensors' values and names go to ``leaves``.

    Elements of sequence ``xs`` are called ``xs[0]``, ``xs[1]`` and so on.
    """
    group = find(value)
    match group:
        case None:
            leaves.append((value, name))
            return name
        case OptionalValue(inner):
            return structure_of(inner, name, find, leaves) if inner else None
        case RecordsValue(keys, table):
            leaves.append((table, name))
            return Records(keys, name)
        case MapValue():
            unsupported(f"it gives a map that it was given, as {name!r}")
        case _:
            parts = enumerate(group.parts)
            return tuple(structure_of(e, f"{name}[{i}]", find, leaves) for i, e in parts)
