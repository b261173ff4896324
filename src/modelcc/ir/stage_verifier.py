"""Checks that one stage is well formed: symbols, ranks, element types, ranges of accesses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Range, compare, loop_range, symbols
from modelcc.ir.index_uses import Use, uses
from modelcc.ir.scalar_tree import outer_binds, reads, walk
from modelcc.ir.scalar_typing import verify_body
from modelcc.ir.tensor import Axis, Linear, Scatter, Stage
from modelcc.ir.tensor_ranges import misread, miswritten
from modelcc.ir.types import TensorType


@dataclass(frozen=True)
class _Names(Collection[str]):
    """Symbols of a program, possibly thousands, and ``own`` ones of a stage."""

    dims: Collection[str]
    own: frozenset[str]

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.dims

    def __iter__(self) -> Iterator[str]:
        return chain(self.dims, self.own)

    def __len__(self) -> int:
        return len(self.dims) + len(self.own)


def verify_stage(
    stage: Stage, types: Mapping[str, TensorType], dims: Mapping[str, Range], place: tuple[str, ...]
) -> None:
    """:class:`ModelError` that names ``place`` and the first rule that ``stage`` breaks."""
    _verify_axes((*stage.axes, *stage.reduce), dims, place)
    _verify_combine(stage, place)
    parallel = _Names(dims, frozenset(axis.name for axis in stage.axes))
    verify_symbols("the written position", stage.write, parallel, place)
    _verify_body(stage, types, dims, place)
    for fault in miswritten(stage, types[stage.output], dims):
        raise ModelError(fault, place)


def verify_scatter(
    item: Scatter,
    types: Mapping[str, TensorType],
    dims: Mapping[str, Range],
    place: tuple[str, ...],
) -> None:
    """As :func:`verify_stage`, for updates at indices from memory."""
    stage = item.stage
    found = dict.fromkeys((item.initial, *(read.tensor for read in reads(stage.body))))
    if set(item.inputs) != found.keys() or len(item.inputs) != len(found):
        raise ModelError(f"inputs are not %{', %'.join(found)}", place)
    target = types[stage.output]
    if types[item.initial] != target or not target.physical.is_row_major:
        message = f"%{stage.output} is {target}, no row-major copy of {types[item.initial]}"
        raise ModelError(message, place)
    if stage.reduce or stage.output in found:
        raise ModelError("an update neither reduces nor reads the result", place)
    _verify_axes(stage.axes, dims, place)
    _verify_body(stage, types, dims, place)
    binds, _ = outer_binds(stage.body)
    known = _Names(dims, frozenset((*(a.name for a in stage.axes), *(b.symbol for b in binds))))
    verify_symbols("the written position", stage.write, known, place)


def _verify_body(
    stage: Stage, types: Mapping[str, TensorType], dims: Mapping[str, Range], place: tuple[str, ...]
) -> None:
    """Rules for all stages, independent of the indices that they write."""
    target = types[stage.output]
    if len(stage.write) != target.rank:
        raise ModelError(f"writes {len(stage.write)} indices of {target}", place)
    bound = _Names(dims, frozenset(axis.name for axis in (*stage.axes, *stage.reduce)))
    found = uses(stage)
    for use in found:
        _verify_use(use, bound, types, place)
    verify_body(stage, types, place)
    _verify_rows(stage, dims, place)
    for fault in misread(stage, found, types, dims):
        raise ModelError(fault, place)


def _verify_rows(stage: Stage, dims: Mapping[str, Range], place: tuple[str, ...]) -> None:
    """Linear combinations use existing rows of their matrices."""
    found = [node for node in walk(stage.body) if isinstance(node, Linear)]
    if not found:
        return
    bounds = {**dims, **{a.name: loop_range(a.extent) for a in (*stage.axes, *stage.reduce)}}
    for node in found:
        row, rows = node.row, len(node.factors[-1])
        if not (compare(row, ">=", 0, bounds) and compare(row, "<", rows, bounds)):
            raise ModelError(f"row {row} may be outside of a matrix of {rows} rows", place)


def _verify_axes(axes: Sequence[Axis], dims: Mapping[str, Range], place: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for axis in axes:
        if axis.name in seen or axis.name in dims:
            raise ModelError(f"axis {axis.name!r} has the name of another axis or dimension", place)
        seen.add(axis.name)
        verify_symbols(f"the extent of axis {axis.name!r}", [axis.extent], dims, place)
        if compare(axis.extent, "<", 0, dims) is True:
            raise ModelError(f"axis {axis.name!r} has the negative extent {axis.extent}", place)


def _verify_combine(stage: Stage, place: tuple[str, ...]) -> None:
    if stage.reduce and stage.combine is None:
        raise ModelError("has reduction axes but does not say how to combine", place)
    if stage.combine is not None and not stage.reduce:
        raise ModelError(f"combines by {stage.combine} but has no reduction axis", place)


def _verify_use(
    use: Use, bound: _Names, types: Mapping[str, TensorType], place: tuple[str, ...]
) -> None:
    for symbol in use.gathered:
        if symbol in bound:
            raise ModelError(f"gather symbol {symbol!r} is the name of an axis", place)
    known = replace(bound, own=bound.own.union(use.gathered))
    for condition in use.conditions:
        verify_symbols("a guard", (condition.left, condition.right), known, place)
    if not all([name in known for index in use.indices for name in symbols(index)]):
        verify_symbols(use.text, use.indices, known, place)  # use.text is only for messages
    rank = types[use.tensor].rank if use.tensor is not None else len(use.indices)
    if len(use.indices) != rank:
        message = f"{use.text} has {len(use.indices)} indices for a tensor of rank {rank}"
        raise ModelError(message, place)


def verify_symbols(
    what: str, indices: Iterable[Index], known: Collection[str], place: tuple[str, ...]
) -> None:
    """:class:`ModelError` unless ``indices`` mention ``known`` symbols only."""
    for index in indices:
        unknown = sorted(name for name in symbols(index) if name not in known)
        if unknown:
            names = ", ".join(sorted(known)) or "none"
            message = f"{what} uses {unknown[0]!r} in {index}, which is not bound here"
            raise ModelError(message, place, f"bound are: {names}")
