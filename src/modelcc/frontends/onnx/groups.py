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


Group: TypeAlias = SequenceValue | OptionalValue | RecordsValue

KINDS = {SequenceValue: "a sequence", OptionalValue: "an optional value", RecordsValue: "maps"}


def refuse_group(group: Group) -> None:
    """Not supported: a tensor is wanted where there is a ``group``."""
    unsupported(f"it wants a tensor where there is {KINDS[type(group)]}")


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
        case SequenceValue(elements):
            parts = enumerate(elements)
            return tuple(structure_of(e, f"{name}[{i}]", find, leaves) for i, e in parts)
