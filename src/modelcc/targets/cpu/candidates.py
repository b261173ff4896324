"""Schedules of a kernel that are worth measuring, the most promising first.

A candidate differs from the default in one part or group; the best combination of several parts is
found part by part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest
from math import prod
from typing import TypeVar

from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.compute_at import group_stages
from modelcc.schedule.schedule import (
    ComputeAt,
    NoScheduleError,
    Part,
    Parts,
    RowBlocks,
    Rows,
    RowSums,
    Schedule,
    ScheduleError,
    Step,
    StraightRows,
    Tiled,
)
from modelcc.targets.cpu.libraries import library_calls
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.pieces import Piece, groups_of, parts_of
from modelcc.targets.cpu.row_blocks import planned_blocks
from modelcc.targets.cpu.row_sums import TERMS, planned_sums
from modelcc.targets.cpu.scheduled_kernel import PARALLEL_CHUNKS
from modelcc.targets.cpu.steps import Steps
from modelcc.targets.cpu.straight_rows import planned_parts

TILES = 24
"""Maximum number of tiles considered for one part."""

UNROLLINGS = (16, 8, 4, 2, 1)
"""Unroll factors of an innermost reduction."""

UNROLLED_ROWS = (2, 8, 1, 4)
"""Vectors at once in reductions of rows."""

ROWS = (8, 16, 32, 64, 128)
KEYS = (0, 64, 128, 256, 512)
"""Key block sizes of two contractions."""


One = TypeVar("One", bound=Schedule | Part | tuple[Step, ...])


def candidates(
    kernel: CanonicalKernel, default: Schedule, machine: CpuModel, base: Schedule | None = None
) -> Iterator[Schedule]:
    """Schedules that fit ``kernel``, each once, without ``default``.

    They change one property of ``base`` (default: of the default), or call one of the machine's
    libraries.  If the instruction set has more registers or wider vectors than the machine's model,
    candidates for both alternate.
    """
    seen, start = {default}, default if base is None else base
    models = dict.fromkeys((machine, machine.instruction_set))
    changed = _in_turns(*(_changed(kernel, start, model) for model in models))
    for schedules in (library_calls(kernel, machine), changed):
        for schedule in schedules:
            if schedule not in seen and fits(kernel, schedule, machine):
                seen.add(schedule)
                yield schedule


def fits(kernel: CanonicalKernel, schedule: Schedule, machine: CpuModel) -> bool:
    """Whether the kernel can be lowered by ``schedule``."""
    try:
        schedule_kernel(kernel, "candidate", machine, (), schedule)
    except (ScheduleError, NoScheduleError):
        return False
    return True


def likeness(schedule: Schedule) -> object:
    """A key equal for similar schedules of different kernels: of the same numbers of vectors and
    points per tile, and of blocked loops."""
    match schedule:
        case Parts(parts):
            return tuple(_part_likeness(part) for part in parts)
        case ComputeAt(groups):
            return ComputeAt, tuple(_part_likeness(part) for part in groups)
        case RowBlocks(scores=scores, total=total):
            tiles = (None if one is None else _part_likeness(one) for one in (scores, total))
            steps = tuple(_part_likeness(step) for step in schedule.steps)
            plain = replace(schedule, scores=None, total=None, steps=())
            return plain, tuple(tiles), steps
        case RowSums():
            steps = tuple(_part_likeness(step) for step in schedule.steps)
            return replace(schedule, steps=()), steps
        case _:
            return schedule


def _part_likeness(part: Part) -> object:
    if isinstance(part, StraightRows):
        return StraightRows, part.parallel, tuple(_part_likeness(each) for each in part.parts)
    if not isinstance(part, Tiled):
        return part
    vectors = dict(part.tile).get(f"{part.vector}b", 1)
    points = prod(size for _, size in part.tile) // vectors
    return part.lanes, vectors, points, len(part.blocks), part.exchange


def _changed(kernel: CanonicalKernel, base: Schedule, machine: CpuModel) -> Iterator[Schedule]:
    match base:
        case Parts():
            yield from _parts(kernel, base, machine)
        case ComputeAt():
            yield from _compute_at(kernel, base, machine)
        case RowBlocks():
            yield from _in_turns(_other_blocks(base), _other_products(kernel, base, machine))
        case RowSums():
            yield from _in_turns(_other_sums(base), _other_adding(kernel, base, machine))
        case _:
            yield from ()
    yield from _on_threads(base, machine)


def _other_blocks(base: RowBlocks) -> Iterator[RowBlocks]:
    """Other block sizes, with default tiles."""
    for keys in dict.fromkeys((base.keys, *KEYS)):
        for rows in ROWS:
            if (rows, keys) != (base.rows, base.keys):
                yield RowBlocks(rows, keys, base.parallel)


def _other_products(
    kernel: CanonicalKernel, base: RowBlocks, machine: CpuModel
) -> Iterator[RowBlocks]:
    """One of the two products, or one of the other steps, changed."""
    planned = planned_blocks(kernel, machine, base)
    ways: list[Iterable[RowBlocks]] = [
        [replace(base, **{name: tiled}) for tiled in _product_tiles(piece, own, machine)]
        for name, (piece, own) in planned.products.items()
    ]
    ways.append(replace(base, steps=steps) for steps in _other_steps(planned.steps, machine))
    yield from _in_turns(*ways)


def _other_steps(steps: Steps, machine: CpuModel) -> Iterator[tuple[Step, ...]]:
    """One step changed."""
    ways: list[list[tuple[Step, ...]]] = []
    for number, (piece, own) in enumerate(steps.made):
        before, after = steps.schedules[:number], steps.schedules[number + 1 :]
        found: Iterable[Step] = ()
        if isinstance(own, Rows):
            found = (replace(own, unroll=unroll) for unroll in UNROLLED_ROWS)
        elif piece is not None:
            found = _product_tiles(piece, own, machine)
        ways.append([(*before, one, *after) for one in found if one != own])
    yield from _in_turns(*ways)


def _other_sums(base: RowSums) -> Iterator[RowSums]:
    """Other block sizes, with default steps."""
    block, terms = base.block, base.terms or TERMS
    plain = replace(base, steps=())
    yield from (replace(plain, block=size) for size in (block // 2, block * 2, block // 4))
    yield from (replace(plain, terms=size) for size in (terms // 2, terms * 2))


def _other_adding(kernel: CanonicalKernel, base: RowSums, machine: CpuModel) -> Iterator[RowSums]:
    steps = planned_sums(kernel, machine, base)
    yield from (replace(base, steps=changed) for changed in _other_steps(steps, machine))


def _product_tiles(piece: Piece, own: Tiled, machine: CpuModel) -> Iterator[Tiled]:
    return _in_turns(islice(piece.tilings(machine), TILES), _unrolled(own))


def _on_threads(base: Schedule, machine: CpuModel) -> Iterator[Schedule]:
    """Parallel parts made serial, and the other way round."""
    if machine.threads == 1:
        return
    match base:
        case Parts((Tiled() | Rows() as part,)):
            yield Parts((replace(part, parallel=PARALLEL_CHUNKS if part.parallel == 1 else 1),))
        case Parts((StraightRows() as part,)):
            yield Parts((replace(part, parallel=not part.parallel),))
        case RowBlocks() | RowSums() | ComputeAt():
            yield replace(base, parallel=not base.parallel)
        case _:
            pass


def _parts(kernel: CanonicalKernel, base: Parts, machine: CpuModel) -> Iterator[Parts]:
    for number, (piece, part) in enumerate(zip(parts_of(kernel), base.parts, strict=True)):
        before, after = base.parts[:number], base.parts[number + 1 :]
        found = _of_part(piece, part, machine)
        if isinstance(part, StraightRows):
            steps = planned_parts(kernel, piece, part, machine)
            straight = (_straight(part, changed) for changed in _other_steps(steps, machine))
            found = _in_turns(straight, found)
        yield from (Parts((*before, changed, *after)) for changed in found)


def _straight(part: StraightRows, steps: tuple[Step, ...]) -> StraightRows:
    return replace(part, parts=tuple(step for step in steps if isinstance(step, Tiled)))


def _of_part(piece: Piece, part: Part, machine: CpuModel) -> Iterator[Part]:
    """Row schedules for tiled parts first; then tiles alternating with variations of ``part``."""
    parallel = PARALLEL_CHUNKS if part.parallel is True else int(part.parallel)
    tiles = [replace(tiled, parallel=parallel) for tiled in _tiles(piece, machine)]
    if isinstance(part, Rows):
        unrolled = [replace(part, unroll=unroll) for unroll in UNROLLED_ROWS]
        yield from _in_turns((*unrolled, replace(part, lanes=part.lanes // 2)), tiles)
        return
    lanes = machine.lanes(32)
    yield from (Rows(lanes, 4, parallel), Rows(lanes // 2, 4, parallel))
    yield from _in_turns(tiles, _unrolled(part) if isinstance(part, Tiled) else ())


def _tiles(piece: Piece, machine: CpuModel) -> Iterator[Tiled]:
    """The most promising tiles, if the stages share their axes."""
    shared = piece.with_choices().on_shared_axes()
    return islice(() if shared is None else shared.tilings(machine), TILES)


def _in_turns(*ways: Iterable[One]) -> Iterator[One]:
    """Items of each iterable in turn, until all are exhausted."""
    for changed in zip_longest(*ways):
        yield from (one for one in changed if one is not None)


def _unrolled(tiled: Tiled) -> Iterator[Tiled]:
    """Other unroll factors of the innermost reduction."""
    for size in UNROLLINGS if tiled.unroll else ():
        (name, _), *rest = tiled.unroll
        yield replace(tiled, unroll=((name, size), *rest))
        yield replace(tiled, unroll=((name, size),))


def _compute_at(kernel: CanonicalKernel, base: ComputeAt, machine: CpuModel) -> Iterator[ComputeAt]:
    """Groups with equal tilings are changed together."""
    grouped = group_stages(kernel)
    if grouped is None:
        return
    alike: dict[object, dict[int, list[Tiled]]] = {}
    pieces = zip(groups_of(kernel, grouped), base.groups, strict=True)
    for number, (piece, group) in enumerate(pieces):
        found = islice(piece.tilings(machine), TILES)
        tiles = [replace(tiled, parallel=group.parallel) for tiled in found]
        alike.setdefault(_sizes(group), {})[number] = list(_in_turns(tiles, _unrolled(group)))
    for members in alike.values():
        for changed in zip(*members.values(), strict=False):
            groups = list(base.groups)
            for number, tiled in zip(members, changed, strict=True):
                groups[number] = tiled
            yield replace(base, groups=tuple(groups))


def _sizes(tiled: Tiled) -> object:
    """The properties of a tiling other than the names of its loops."""
    tile, unroll = [size for _, size in tiled.tile], [size for _, size in tiled.unroll]
    return tiled.lanes, tuple(tile), tuple(unroll), tiled.dots, tiled.folded, tiled.exchange
