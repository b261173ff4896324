"""Sequences, optional values and maps: tuples of tensors at import, individually tracked.

They do not occur in the graph.  The graph's interface describes those that a model takes or
returns.
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
    """A value that is not a tensor: its ``kind``, and its component values ``parts``."""

    kind: ClassVar[str]

    @property
    def parts(self) -> tuple[str, ...]:
        """Its component values."""
        return ()

    def of(self, parts: Sequence[str]) -> GroupValue:
        """The same structure with other values."""
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
    """An optional value: a tensor or sequence, or ``""`` if empty."""

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
    """A map passed by the caller as input ``name``, from any type to ``dtype``."""

    name: str
    dtype: DType
    kind = "a map"


def refuse_group(group: GroupValue) -> None:
    """Not supported: a ``group`` where a tensor is required."""
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
