"""Sequences, optional values and maps: at import they are tuples of tensors, known one by one.

Nothing of them is left in the graph.  What a model takes or returns of them is told by the graph's
interface.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from modelcc.frontends.onnx.errors import unsupported
from modelcc.ir.structure import Records, Structure
from modelcc.ir.types import DType


@dataclass(frozen=True)
class SequenceValue:
    """A sequence of known length: its elements' values."""

    elements: tuple[str, ...]


@dataclass(frozen=True)
class OptionalValue:
    """An optional value: a tensor or sequence, or ``""`` where there is none."""

    value: str


@dataclass(frozen=True)
class RecordsValue:
    """A sequence of maps with the same keys: row i of the value of shape [n, len(keys)]."""

    keys: tuple[str | int, ...]
    value: str


@dataclass(frozen=True)
class MapValue:
    """A map that the caller gives as input ``name``, from anything to ``dtype``."""

    name: str
    dtype: DType


Group: TypeAlias = SequenceValue | OptionalValue | RecordsValue | MapValue

KINDS = {
    SequenceValue: "a sequence",
    OptionalValue: "an optional value",
    RecordsValue: "maps",
    MapValue: "a map",
}


def refuse_group(group: Group) -> None:
    """Not supported: a tensor is wanted where there is a ``group``."""
    unsupported(f"it wants a tensor where there is {KINDS[type(group)]}")


def mapped(group: Group, change: Callable[[str], str]) -> Group:
    """The same structure of other values."""
    match group:
        case SequenceValue(elements):
            return SequenceValue(tuple(map(change, elements)))
        case OptionalValue(value):
            return OptionalValue(change(value) if value else "")
        case RecordsValue(keys, value):
            return RecordsValue(keys, change(value))
        case MapValue():
            return group


def structure_of(
    value: str, name: str, find: Callable[[str], Group | None], leaves: list[tuple[str, str]]
) -> Structure:
    """The structure of ``value``, called ``name``; its tensors' values and names go to ``leaves``.

    Elements of sequence ``xs`` are called ``xs[0]``, ``xs[1]`` and so on.
    """
    match find(value):
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
        case SequenceValue(elements):
            parts = enumerate(elements)
            return tuple(structure_of(e, f"{name}[{i}]", find, leaves) for i, e in parts)
