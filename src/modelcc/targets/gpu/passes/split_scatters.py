"""Updates of few destinations, privatised: each part has its own copy of all destinations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from modelcc.ir.index import Index, Sym, substitute
from modelcc.ir.naming import Names
from modelcc.ir.scalar import identity
from modelcc.ir.scalar_tree import reads, substitute_indices
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Item,
    Kernel,
    Number,
    Read,
    Scatter,
    Stage,
    TensorProgram,
)
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.fused_kernel import kernel_of
from modelcc.schedule.canonical import canonical
from modelcc.schedule.expression import combine_function
from modelcc.schedule.workload import plain_type
from modelcc.targets.gpu.choice import cycles_seconds
from modelcc.targets.gpu.expected_time import LEAST_SECONDS
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.scatter.group_updates import GroupUpdates, axes_apart, find_updates
from modelcc.targets.gpu.scatter.scatter_choice import GAIN, UpdateWork, fastest

MOST_PARTS, LARGEST = 1 << 14, 0.25
"""The most parts, and elements of all of them per update."""

TOUCHED = 3
"""Times that an element of a part is moved besides its updates: to initialise, copy and sum it."""


@dataclass(frozen=True)
class SplitScatters:
    """Updates that are combined, in parts with a copy of all destinations each, and the parts
    combined: where there are few destinations, so that many updates collide, and ``machine`` is
    expected to take half the time.  The order changes, but is the same in every run.

    before::

        program @main(%x: i32[2], %i: i64[4096], %u: i32[4096]) -> (%y) dims() {
          scatter %x (%x: i32[2], %i: i64[4096], %u: i32[4096]) {
            %y[g]: i32[2] = [n < 4096] sum[] (let g = select(%i[n] < 0, 0, 1) in %u[n])
          }
        }

    after::

        program @main(%x: i32[2], %i: i64[4096], %u: i32[4096]) -> (%y) dims() {
          kernel @Scatter() -> (%y.start: i32[512, 2]) {
            %y.start: i32[512, 2] = [n.part < 512, n.d0 < 2] 0:i32
          }
          scatter %y.start (%y.start: i32[512, 2], %i: i64[4096], %u: i32[4096]) {
            %y.parts[n.part, g]: i32[512, 2] = [n.part < 512, n < 8] sum[]
              (let g = select(%i[n + 8*n.part] < 0, 0, 1) in %u[n + 8*n.part])
          }
          kernel @Scatter(%y.parts: i32[512, 2]) -> (%y.sum: i32[2]) {
            %y.sum: i32[2] = [n.d0 < 2] sum[n.part < 512] %y.parts[n.part, n.d0]
          }
          kernel @Scatter(%x: i32[2], %y.sum: i32[2]) -> (%y: i32[2]) {
            %y: i32[2] = [n.d0 < 2] %x[n.d0] + %y.sum[n.d0]
          }
        }
    """

    machine: GpuModel

    def __call__(self, program: TensorProgram) -> TensorProgram:
        items, types, names = list[Item](), dict(program.types), Names(program.types)
        for item in program.items:
            cut = self._cut(item, program) if isinstance(item, Scatter) else None
            if cut is None or not isinstance(item, Scatter):
                items.append(item)
                continue
            start, changed, total, whole = _in_parts(item, *cut, types[item.initial], names)
            types[start.output] = types[changed.output] = plain_type(start)
            types[total.output] = plain_type(total)
            inputs = (start.output, *(n for n in item.inputs if n != item.initial))
            items += [
                kernel_of("Scatter", (start,), (start.output,), item.source),
                Scatter(changed, start.output, inputs, item.source),
                kernel_of("Scatter", (total,), (total.output,), item.source),
                kernel_of("Scatter", (whole,), (whole.output,), item.source),
            ]
        return replace(program, types=types).with_items(tuple(items))

    def _cut(self, item: Scatter, program: TensorProgram) -> tuple[Axis, int] | None:
        """The axis to split, and the number of parts; None if that is no gain."""
        stage, type_ = item.stage, program.types[item.stage.output]
        extents = [*(a.extent for a in stage.axes), *type_.shape]
        read = {read.tensor for read in reads(stage.body)}
        if self.machine.virtual or stage.combine is None or item.initial in read:
            return None
        if not all(isinstance(e, int) and e > 0 for e in extents):
            return None
        meeting = [a for a in stage.axes if a.name not in axes_apart(stage) and a.extent != 1]
        axis = max(meeting, key=_number, default=None)
        count = None if axis is None else self._parts(item, axis, program)
        return None if axis is None or count is None else (axis, count)

    def _parts(self, item: Scatter, axis: Axis, program: TensorProgram) -> int | None:
        """The number of parts of ``axis``, a divisor of it."""
        kernel = Kernel("Scatter", item.inputs, item.outputs, (item.stage,))
        constants = frozenset(program.constants)
        updates = find_updates(canonical(kernel, program.types, constants, program.dims)[0])
        type_, points = program.types[item.stage.output], prod(map(_number, item.stage.axes))
        size = prod(extent for extent in type_.shape if isinstance(extent, int))
        found, least = None, self._seconds(updates, 1, 0) / GAIN
        for count in _divisors(_number(axis), min(int(LARGEST * points / size), MOST_PARTS)):
            seconds = self._seconds(updates, count, size * count * type_.dtype.bytes)
            if seconds < least:
                found, least = count, seconds
        return found

    def _seconds(self, updates: GroupUpdates, count: int, bytes_: int) -> float:
        """Expected time of updates in ``count`` parts, which take ``bytes_`` bytes."""
        work = UpdateWork.of(updates)
        work = replace(work, lists=work.lists * count, updates=work.updates // count)
        seconds = cycles_seconds(fastest(updates, work, self.machine)[0], self.machine)
        if count == 1:
            return seconds
        return seconds + self.machine.seconds(0, TOUCHED * bytes_) + 2 * LEAST_SECONDS


def _number(axis: Axis) -> int:
    assert isinstance(axis.extent, int)
    return axis.extent


def _divisors(extent: int, most: int) -> Iterator[int]:
    """The nearest divisors of ``extent`` below powers of two up to ``most``."""
    found = {next(n for n in range(1 << b, 0, -1) if extent % n == 0) for b in _bits(most)}
    yield from sorted(found - {1})


def _bits(most: int) -> range:
    return range(1, max(most, 1).bit_length())


def _in_parts(
    item: Scatter, axis: Axis, count: int, type_: TensorType, names: Names
) -> tuple[Stage, Stage, Stage, Stage]:
    """Initial values of all parts, their updates, their sums, and these with the tensor."""
    stage, combine = item.stage, item.stage.combine
    assert combine is not None
    part, length = Axis(f"{axis.name}.part", count), _number(axis) // count
    dims = tuple(Axis(f"{axis.name}.d{n}", extent) for n, extent in enumerate(type_.shape))
    own = tuple(Sym(a.name) for a in dims)
    places, dtype = (Sym(part.name), *own), type_.dtype
    start, parts, total = (
        names.fresh(f"{stage.output}.{stem}") for stem in ("start", "parts", "sum")
    )
    moved: dict[str, Index] = {axis.name: Sym(axis.name) + Sym(part.name) * length}
    changed = Stage(
        parts,
        (part, *(Axis(a.name, length) if a is axis else a for a in stage.axes)),
        (Sym(part.name), *(substitute(index, moved) for index in stage.write)),
        substitute_indices(stage.body, moved),
        (),
        combine,
    )
    both = Read(item.initial, own, dtype), Read(total, own, dtype)
    return (
        Stage(start, (part, *dims), places, Number(identity(combine, dtype), dtype)),
        changed,
        Stage(total, dims, own, Read(parts, places, dtype), (part,), combine),
        Stage(stage.output, dims, own, Apply(combine_function(combine, dtype), both, dtype)),
    )
