"""Structures of pending operations, as graphs: with the offsets of slices, or for any offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.types import I64, TensorType
from modelcc.ops.arithmetic import Identity
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.slicing import ReplaceSlice, Slice, Unslice
from modelcc.tensor.lazy import Alias, Projection

Part = Slice | Unslice | ReplaceSlice
"""Ops with an offset along each axis."""

ABSENT = -1
"""The number of an absent operand."""


@dataclass(frozen=True)
class Structure:
    """Nodes by number: a step is a type if it has an array, else an op and numbers.

    ``outputs`` are the numbers of the nodes to compute.  If slices have no ``starts``, these are a
    last input, of ``places`` elements.
    """

    steps: tuple[Any, ...]
    outputs: tuple[int, ...]
    places: int = 0


def without_places(structure: Structure) -> tuple[Structure, list[int]]:
    """``structure`` for slices at any offsets, and its own offsets; none if it has no slices.

    Slices with steps are unchanged.
    """
    places: list[int] = []
    steps: list[Any] = []
    for step in structure.steps:
        starts: Sequence[int] = () if isinstance(step, TensorType) else _starts(step[0])
        places += starts
        general: Any = step
        steps.append((replace(general[0], starts=()), *general[1:]) if starts else general)
    return Structure(tuple(steps), structure.outputs, len(places)), places


def _starts(op: object) -> Sequence[int]:
    """Offsets of a slice without steps along each axis, if these are numbers."""
    if not isinstance(op, Part):
        return ()
    steps = () if isinstance(op, ReplaceSlice) else op.steps
    starts = [start for start in op.starts if isinstance(start, int)]
    return starts if len(starts) == len(op.starts) and all(s == 1 for s in steps) else ()


def graph_of_structure(structure: Structure) -> Graph:
    """The graph of a structure; its inputs are the steps that are types, then the offsets."""
    build = GraphBuilder("tensors")
    steps = structure.steps
    inputs = {n: build.input(f"x{n}", t) for n, t in enumerate(steps) if isinstance(t, TensorType)}
    names: Sequence[str] = tuple(f"place{n}" for n in range(structure.places))
    if names:
        build.emit(ReadSize(tuple(names)), build.input("places", TensorType((len(names),), I64)))
    results: list[tuple[str, ...]] = []
    for number, step in enumerate(steps):
        if number in inputs:
            results.append((inputs[number],))
            continue
        op: Any = step[0]
        operands: tuple[int, ...] = step[1:]
        if isinstance(op, Projection):
            results.append((results[operands[0]][op.number],))
        elif isinstance(op, Alias):
            results.append(results[operands[0]])
        else:
            given = ["" if n == ABSENT else results[n][0] for n in operands]
            if structure.places and isinstance(op, Part):
                op, names = _placed(build, op, given[0], given[-1], names)
            results.append(build.add(op, *given))
    return build.build([build.emit(Identity(), results[n][0]) for n in structure.outputs])


def _placed(
    build: GraphBuilder, op: Part, first: str, last: str, names: Sequence[str]
) -> tuple[Part, Sequence[str]]:
    """``op`` at offsets that are read, the first of ``names``; and the remaining names."""
    if op.starts:
        return op, names
    whole = op.shape if isinstance(op, Unslice) else build.type_of(first).shape
    counts = op.extents if isinstance(op, Slice) else build.type_of(last).shape
    starts: list[Index] = []
    for name, extent, count in zip(names, whole, counts, strict=False):
        room = extent - count
        most = room if isinstance(room, int) else None
        build.dimension(name, Range(0, most))
        starts.append(0 if most == 0 else Sym(name))
    return replace(op, starts=tuple(starts)), names[len(starts) :]
