"""One function for all copies of one extent, whatever their source and destination.

A concatenation of n parts is n copies, and a dense block has hundreds of these; a split has as
many.  They differ in the offset along one axis of the output and its extent there, in the offset
along one axis of the input, and in an extent given by a named dimension; these become size
parameters::

    y0[a0, a1 + 256, a2, a3] = x0[a0, a1, a2, a3]           y0: f32[1, 512, 14, 14]
    y0[a0, a1 + 64*offset, a2, a3] = x0[a0, a1, a2, a3]     y0: f32[1, 64*room, 14, 14]

with ``offset = 4, room = 8``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from modelcc.ir.index import DIM, Index, Range, Sym, substitute
from modelcc.ir.tensor import Axis, Read, Stage
from modelcc.ir.types import TensorType
from modelcc.schedule.canonical import CanonicalKernel, dimensions

OFFSET, ROOM = "offset", "room"
"""Offset of the destination along an axis, and the output's extent there."""
START, WHOLE = "start", "whole"
"""Offset of the source along an axis, and the input's extent there."""
COUNT = "count"
"""The copy's own extent, if symbolic."""

STEP = 64
"""The greatest common factor of offset and extent that stays constant, for blocks and alignment."""

_TO, _FROM = (OFFSET, ROOM), (START, WHOLE)
_BOUNDS: Mapping[str, Range] = {
    OFFSET: Range(0, None),
    ROOM: DIM,
    START: Range(0, None),
    WHOLE: DIM,
    COUNT: Range(0, None),
}


@dataclass(frozen=True)
class Place:
    """A part of a tensor's ``dimension``: from ``offset``, in ``room``, both multiples of the
    step."""

    dimension: int
    offset: Index
    room: Index

    @property
    def step(self) -> int:
        """The common factor of offset and room."""
        if isinstance(self.offset, int) and isinstance(self.room, int):
            return gcd(self.offset, self.room, STEP)
        return 1

    def free(
        self, indices: Sequence[Index], type_: TensorType, names: tuple[str, str]
    ) -> tuple[tuple[Index, ...], TensorType, dict[str, Index]]:
        """Indices and type with offset and room replaced by ``names``, and the values of these."""
        offset, room = names
        at, step = self.dimension, self.step
        moved, shape = list(indices), list(type_.shape)
        moved[at] = moved[at] - self.offset + step * Sym(offset)
        shape[at] = step * Sym(room)
        values = {offset: self.offset // step, room: self.room // step}
        return tuple(moved), replace(type_, shape=tuple(shape)), values


def is_copy(stages: Sequence[Stage]) -> bool:
    """Whether elements of one tensor are copied to other indices and nothing else is computed."""
    return len(stages) == 1 and isinstance(stages[0].body, Read) and not stages[0].reduce


def with_free_place(
    kernel: CanonicalKernel, everywhere: bool = False
) -> tuple[CanonicalKernel, Mapping[str, Index]]:
    """``kernel`` with size parameters for its destination, and their values; others unchanged.

    ``everywhere``: also for the source, and for named dimensions.
    """
    if not is_copy(kernel.stages) or len(kernel.inputs) != 1 or kernel.constants:
        return kernel, {}
    dims = {name for name, _ in kernel.dims}
    if not dims.isdisjoint(_BOUNDS) or (dims and not everywhere):
        return kernel, {}
    (stage,) = kernel.stages
    types = dict(kernel.types)
    values: dict[str, Index] = {}
    goes = _written(stage, types[stage.output])
    if goes is not None:
        write, types[stage.output], sizes = goes.free(stage.write, types[stage.output], _TO)
        stage = replace(stage, write=write)
        values |= sizes
    along = None if goes is None else stage.axes[goes.dimension]
    if everywhere:
        along = along or _read_along(stage, types)
        stage, types, sizes = _with_free_start(stage, types)
        values |= sizes
    if along is not None:
        stage, types, sizes = _counted(stage, types, along)
        values |= sizes
    if not values:
        return kernel, {}
    own = dimensions((stage,), tuple(types.items()))
    left = tuple((name, range_) for name, range_ in kernel.dims if name in own)
    shared = replace(
        kernel,
        stages=(stage,),
        types=tuple(types.items()),
        dims=(*left, *((name, _BOUNDS[name]) for name in values)),
    )
    return shared, values


def _with_free_start(
    stage: Stage, types: dict[str, TensorType]
) -> tuple[Stage, dict[str, TensorType], dict[str, Index]]:
    """Stage and types with a size parameter for the offset of the source, if there is one."""
    read = stage.body
    assert isinstance(read, Read)
    comes = _read(stage, read, types[read.tensor])
    if comes is None:
        return stage, types, {}
    indices, type_, values = comes.free(read.indices, types[read.tensor], _FROM)
    moved = replace(stage, body=replace(read, indices=indices))
    return moved, {**types, read.tensor: type_}, values


def _read_along(stage: Stage, types: Mapping[str, TensorType]) -> Axis | None:
    """The axis along which ``stage`` reads a part of its input, if it does."""
    read = stage.body
    assert isinstance(read, Read)
    comes = _read(stage, read, types[read.tensor])
    if comes is None:
        return None
    moves = read.indices[comes.dimension] - comes.offset
    return next((axis for axis in stage.axes if moves == Sym(axis.name)), None)


def _counted(
    stage: Stage, types: dict[str, TensorType], axis: Axis
) -> tuple[Stage, dict[str, TensorType], dict[str, Index]]:
    """Stage and types with a symbolic extent of ``axis`` called ``count``."""
    if isinstance(axis.extent, int):
        return stage, types, {}
    axes = tuple(replace(a, extent=Sym(COUNT)) if a is axis else a for a in stage.axes)

    def renamed(type_: TensorType) -> TensorType:
        shape = (Sym(COUNT) if e == axis.extent else e for e in type_.shape)
        return replace(type_, shape=tuple(shape))

    own = {name: renamed(type_) for name, type_ in types.items()}
    return replace(stage, axes=axes), own, {COUNT: axis.extent}


def _written(stage: Stage, type_: TensorType) -> Place | None:
    """The destination of ``stage``, if it fills all axes of the output but one."""
    shape = type_.shape
    if len(stage.axes) != len(shape) or any(map(any, type_.physical.halo)):
        return None
    places: list[Place] = []
    for number, (axis, index, extent) in enumerate(
        zip(stage.axes, stage.write, shape, strict=True)
    ):
        if axis.extent == extent:
            continue
        offset = _offset(index, stage)
        if offset is None or index - offset not in (Sym(axis.name), 0):
            return None
        places.append(Place(number, offset, extent))
    return places[0] if len(places) == 1 and _may_be_free(places[0], type_) else None


def _read(stage: Stage, read: Read, type_: TensorType) -> Place | None:
    """The source of ``stage``, if it does not start at 0 along exactly one dimension."""
    if type_.layout is not None:
        return None
    places: list[Place] = []
    for number, (index, extent) in enumerate(zip(read.indices, type_.shape, strict=True)):
        offset = _offset(index, stage)
        if offset is None:
            return None
        if offset != 0:
            places.append(Place(number, offset, extent))
    return places[0] if len(places) == 1 and _may_be_free(places[0], type_) else None


def _offset(index: Index, stage: Stage) -> Index | None:
    """``index`` at the stage's first point; None if it moves along more than one axis."""
    offset = substitute(index, {axis.name: 0 for axis in stage.axes})
    moves = index - offset
    return offset if moves == 0 or moves in [Sym(a.name) for a in stage.axes] else None


def _may_be_free(place: Place, type_: TensorType) -> bool:
    """Whether blocks stay whole, and the offset is not provably negative."""
    static = isinstance(place.offset, int) and isinstance(place.room, int)
    first = place.offset
    return (static or type_.layout is None) and not (isinstance(first, int) and first < 0)
