"""One function for all copies of one extent, wherever in the output they go.

A concatenation of n parts is n copies, and a dense block has hundreds of these. They differ in
where they write along one axis and in the output's extent there, which become size parameters::

    y0[a0, a1 + 256, a2, a3] = x0[a0, a1, a2, a3]           y0: f32[1, 512, 14, 14]
    y0[a0, a1 + 64*offset, a2, a3] = x0[a0, a1, a2, a3]     y0: f32[1, 64*room, 14, 14]

with ``offset = 4, room = 8``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd

from modelcc.ir.index import Expr, Index, Range, Sym
from modelcc.ir.tensor import Read, Stage
from modelcc.targets.cpu.canonical import CanonicalKernel

OFFSET, ROOM = "offset", "room"

STEP = 64
"""The greatest common factor of offset and extent that is kept, for blocks and alignment."""


@dataclass(frozen=True)
class Place:
    """The part of an output's ``axis`` that a stage writes: from ``offset``, in ``room``."""

    axis: int
    offset: int
    room: int


def with_free_place(kernel: CanonicalKernel) -> tuple[CanonicalKernel, Mapping[str, int]]:
    """``kernel`` with sizes for the place it copies to, and their values; others as they are."""
    plain = len(kernel.stages) == 1 and len(kernel.inputs) == 1
    if not plain or kernel.dims or kernel.constants:
        return kernel, {}
    (stage,) = kernel.stages
    types = dict(kernel.types)
    type_ = types[stage.output]
    place = _place(stage, type_.shape)
    if place is None or any(map(any, type_.physical.halo)):
        return kernel, {}
    step = gcd(place.offset, place.room, STEP)
    write, shape = list(stage.write), list(type_.shape)
    write[place.axis] = write[place.axis] - place.offset + step * Sym(OFFSET)
    shape[place.axis] = step * Sym(ROOM)
    types[stage.output] = replace(type_, shape=tuple(shape))
    shared = replace(
        kernel,
        stages=(replace(stage, write=tuple(write)),),
        types=tuple(types.items()),
        dims=((OFFSET, Range(0, None)), (ROOM, Range(1, None))),
    )
    return shared, {OFFSET: place.offset // step, ROOM: place.room // step}


def _place(stage: Stage, shape: tuple[Index, ...]) -> Place | None:
    """Where ``stage`` copies to, if it fills all axes of the output but one."""
    if not isinstance(stage.body, Read) or stage.reduce or len(stage.axes) != len(shape):
        return None
    found: list[Place] = []
    for number, (axis, index, extent) in enumerate(
        zip(stage.axes, stage.write, shape, strict=True)
    ):
        if not isinstance(axis.extent, int) or not isinstance(extent, int):
            return None
        if axis.extent == extent:
            continue
        offset = index.const if isinstance(index, Expr) else index
        if index - offset not in (Sym(axis.name), 0):
            return None
        found.append(Place(number, offset, extent))
    return found[0] if len(found) == 1 and found[0].offset >= 0 else None
