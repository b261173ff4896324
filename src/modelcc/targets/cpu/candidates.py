"""Schedules of a kernel that are worth measuring, the most promising first.

A candidate differs from the default in one part or phase; the best of several parts together are
found one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest
from math import prod
from typing import TypeVar

from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.chain import find_chain
from modelcc.schedule.schedule import (
    Part,
    Parts,
    Phases,
    RowBlocks,
    Rows,
    RowSums,
    Schedule,
    ScheduleError,
    Tiled,
)
from modelcc.targets.cpu.lower import NoScheduleError, schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.pieces import Piece, parts_of, phases_of
from modelcc.targets.cpu.row_blocks import products_of
from modelcc.targets.cpu.scheduled_kernel import PARALLEL_CHUNKS

TILES = 24
"""Tiles of one part that are looked at."""

UNROLLINGS = (16, 8, 4, 2, 1)
"""Steps of an innermost sum in one iteration."""

ROWS = (8, 16, 32, 64, 128)
KEYS = (0, 64, 128, 256, 512)
"""Blocks of two contractions."""


One = TypeVar("One", bound=Part | RowBlocks)


def candidates(
    kernel: CanonicalKernel, default: Schedule, machine: CpuModel, base: Schedule | None = None
) -> Iterator[Schedule]:
    """Schedules that fit ``kernel``, each once, without ``default``.

    They change one thing of ``base`` (default: of the default).
    """
    seen = {default}
    for schedule in _changed(kernel, default if base is None else base, machine):
        if schedule not in seen and fits(kernel, schedule, machine):
            seen.add(schedule)
            yield schedule


def fits(kernel: CanonicalKernel, schedule: Schedule, machine: CpuModel) -> bool:
    """Whether the kernel can be lowered so."""
    try:
        schedule_kernel(kernel, "candidate", machine, (), schedule)
    except (ScheduleError, NoScheduleError):
        return False
    return True


def likeness(schedule: Schedule) -> object:
    """Equal for schedules of different kernels that do alike: with tiles of as many vectors, as
    many points for each, and as many loops cut into blocks."""
    match schedule:
        case Parts(parts):
            return tuple(_part_likeness(part) for part in parts)
        case Phases(phases):
            return Phases, tuple(_part_likeness(part) for part in phases)
        case RowBlocks(scores=scores, total=total):
            tiles = (None if one is None else _part_likeness(one) for one in (scores, total))
            return replace(schedule, scores=None, total=None), tuple(tiles)
        case _:
            return schedule


def _part_likeness(part: Part) -> object:
    if not isinstance(part, Tiled):
        return part
    vectors = dict(part.tile).get(f"{part.vector}b", 1)
    points = prod(size for _, size in part.tile) // vectors
    return part.lanes, vectors, points, len(part.blocks), part.exchange


def _changed(kernel: CanonicalKernel, base: Schedule, machine: CpuModel) -> Iterator[Schedule]:
    match base:
        case Parts():
            yield from _parts(kernel, base, machine)
        case Phases():
            yield from _phases(kernel, base, machine)
        case RowBlocks():
            yield from _in_turns(_other_blocks(base), _other_products(kernel, base, machine))
        case RowSums(block):
            yield from (replace(base, block=size) for size in (block // 2, block * 2, block // 4))
    yield from _on_threads(base, machine)


def _other_blocks(base: RowBlocks) -> Iterator[RowBlocks]:
    """Of other sizes, with the tiles that seem best there."""
    for keys in dict.fromkeys((base.keys, *KEYS)):
        for rows in ROWS:
            if (rows, keys) != (base.rows, base.keys):
                yield RowBlocks(rows, keys, base.parallel)


def _other_products(
    kernel: CanonicalKernel, base: RowBlocks, machine: CpuModel
) -> Iterator[RowBlocks]:
    """Other tiles of one of the two products."""
    ways = [
        [replace(base, **{name: tiled}) for tiled in _product_tiles(piece, own, machine)]
        for name, (piece, own) in products_of(kernel, machine, base).items()
    ]
    for changed in zip_longest(*ways):
        yield from (one for one in changed if one is not None)


def _product_tiles(piece: Piece, own: Tiled, machine: CpuModel) -> Iterator[Tiled]:
    return _in_turns(islice(piece.tilings(machine), TILES), _unrolled(own))


def _on_threads(base: Schedule, machine: CpuModel) -> Iterator[Schedule]:
    """What is divided between threads on one of them, and the other way round."""
    if machine.threads == 1:
        return
    match base:
        case Parts((Tiled() | Rows() as part,)):
            yield Parts((replace(part, parallel=PARALLEL_CHUNKS if part.parallel == 1 else 1),))
        case RowBlocks() | RowSums() | Phases():
            yield replace(base, parallel=not base.parallel)
        case _:
            pass


def _parts(kernel: CanonicalKernel, base: Parts, machine: CpuModel) -> Iterator[Parts]:
    for number, (piece, part) in enumerate(zip(parts_of(kernel), base.parts, strict=True)):
        before, after = base.parts[:number], base.parts[number + 1 :]
        found = _of_part(piece, part, machine)
        yield from (Parts((*before, changed, *after)) for changed in found)


def _of_part(piece: Piece, part: Part, machine: CpuModel) -> Iterator[Part]:
    """What runs by tiles first by rows; then tiles in turns with what is close to ``part``."""
    parallel = PARALLEL_CHUNKS if part.parallel is True else int(part.parallel)
    tiles = [replace(tiled, parallel=parallel) for tiled in _tiles(piece, machine)]
    if isinstance(part, Rows):
        unrolled = [replace(part, unroll=unroll) for unroll in (2, 8, 1, 4)]
        yield from _in_turns((*unrolled, replace(part, lanes=part.lanes // 2)), tiles)
        return
    lanes = machine.lanes(32)
    yield from (Rows(lanes, 4, parallel), Rows(lanes // 2, 4, parallel))
    yield from _in_turns(tiles, _unrolled(part) if isinstance(part, Tiled) else ())


def _tiles(piece: Piece, machine: CpuModel) -> Iterator[Tiled]:
    """The most promising tiles, if the stages share their axes."""
    shared = piece.with_choices().on_shared_axes()
    return islice(() if shared is None else shared.tilings(machine), TILES)


def _in_turns(first: Iterable[One], second: Iterable[One]) -> Iterator[One]:
    """One of each after the other, as long as there are any."""
    for pair in zip_longest(first, second):
        yield from (one for one in pair if one is not None)


def _unrolled(tiled: Tiled) -> Iterator[Tiled]:
    """Other numbers of steps of the innermost sum."""
    for size in UNROLLINGS if tiled.unroll else ():
        (name, _), *rest = tiled.unroll
        yield replace(tiled, unroll=((name, size), *rest))
        yield replace(tiled, unroll=((name, size),))


def _phases(kernel: CanonicalKernel, base: Phases, machine: CpuModel) -> Iterator[Phases]:
    """Phases that are tiled alike are changed alike."""
    chain = find_chain(kernel)
    if chain is None:
        return
    alike: dict[object, dict[int, list[Tiled]]] = {}
    pieces = zip(phases_of(kernel, chain), base.phases, strict=True)
    for number, (piece, phase) in enumerate(pieces):
        found = islice(piece.tilings(machine), TILES)
        tiles = [replace(tiled, parallel=phase.parallel) for tiled in found]
        alike.setdefault(_sizes(phase), {})[number] = list(_in_turns(tiles, _unrolled(phase)))
    for members in alike.values():
        for changed in zip(*members.values(), strict=False):
            phases = list(base.phases)
            for number, tiled in zip(members, changed, strict=True):
                phases[number] = tiled
            yield replace(base, phases=tuple(phases))


def _sizes(tiled: Tiled) -> object:
    """What is the same of tilings that differ in the names of their loops only."""
    tile, unroll = [size for _, size in tiled.tile], [size for _, size in tiled.unroll]
    return tiled.lanes, tuple(tile), tuple(unroll), tiled.dots, tiled.folded, tiled.exchange
