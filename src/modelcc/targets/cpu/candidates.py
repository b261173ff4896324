"""Schedules of a kernel that are worth measuring, the most promising first.

A candidate differs from the default in one part or phase; the best of several parts together are
found one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest

from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Stage
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.chain import find_chain
from modelcc.schedule.choices import with_choices
from modelcc.schedule.schedule import (
    Factors,
    Parts,
    Phases,
    RowBlocks,
    Rows,
    RowSums,
    Schedule,
    ScheduleError,
    StraightRows,
    Tiled,
)
from modelcc.targets.cpu.lower import NoScheduleError, partition, read_once, schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.plan import tilings

TILES = 24
"""Tiles of one part that are looked at."""

UNROLLINGS = (16, 8, 4, 2, 1)
"""Steps of an innermost sum in one iteration."""

ROWS = (8, 16, 32, 64, 128)
KEYS = (0, 64, 128, 256, 512)
"""Blocks of two contractions."""

PARALLEL = 16
"""Parts of a loop that one thread runs by default."""


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


def _changed(kernel: CanonicalKernel, base: Schedule, machine: CpuModel) -> Iterator[Schedule]:
    match base:
        case Parts():
            yield from _parts(kernel, base, machine)
        case Phases():
            yield from _phases(kernel, base, machine)
        case RowBlocks():
            yield from (replace(base, rows=rows) for rows in ROWS)
            yield from (replace(base, rows=rows, keys=keys) for keys in KEYS for rows in ROWS)
        case RowSums(block):
            yield from (replace(base, block=size) for size in (block // 2, block * 2, block // 4))
    yield from _on_threads(base, machine)


def _on_threads(base: Schedule, machine: CpuModel) -> Iterator[Schedule]:
    """What is divided between threads on one of them, and the other way round."""
    if machine.threads == 1:
        return
    match base:
        case Parts((Tiled() | Rows() as part,)):
            yield Parts((replace(part, parallel=PARALLEL if part.parallel == 1 else 1),))
        case RowBlocks() | RowSums() | Phases():
            yield replace(base, parallel=not base.parallel)
        case _:
            pass


def _parts(kernel: CanonicalKernel, base: Parts, machine: CpuModel) -> Iterator[Parts]:
    runs = partition(kernel.stages)
    packable = read_once(runs, kernel.constants)
    for number, (stages, part) in enumerate(zip(runs, base.parts, strict=True)):
        found = _of_part(kernel, stages, part, packable, machine)
        before, after = base.parts[:number], base.parts[number + 1 :]
        yield from (Parts((*before, changed, *after)) for changed in found)


def _of_part(
    kernel: CanonicalKernel,
    stages: tuple[Stage, ...],
    part: Tiled | Rows | StraightRows,
    packable: frozenset[str],
    machine: CpuModel,
) -> Iterator[Tiled | Rows | StraightRows]:
    parallel = (
        (PARALLEL if part.parallel else 1) if isinstance(part, StraightRows) else part.parallel
    )
    if isinstance(part, Tiled):
        yield from _unrolled(part)
    if not isinstance(part, Rows):
        yield from (Rows(lanes, unroll, int(parallel)) for lanes, unroll in _row_shapes(machine))
    else:
        yield from (replace(part, unroll=unroll) for unroll in (1, 2, 4, 8))
        yield replace(part, lanes=part.lanes // 2)
    types, dims = dict(kernel.types), dict(kernel.dims)
    shared = shared_axes(with_choices(stages, types, dims))
    tiles: Iterable[Tiled] = ()
    if shared is not None:
        outputs = frozenset(kernel.outputs)
        found = tilings(shared, outputs, types, dims, packable, machine)
        tiles = (replace(tiled, parallel=parallel) for tiled in islice(found, TILES))
    if isinstance(part, Rows):
        yield from (replace(part, unroll=unroll) for unroll in (2, 8, 1, 4))
        yield replace(part, lanes=part.lanes // 2)
        yield from tiles
        return
    steps = _unrolled(part) if isinstance(part, Tiled) else ()
    yield from _in_turns(tiles, steps)
    yield from (Rows(lanes, unroll, parallel) for lanes, unroll in _row_shapes(machine))


def _in_turns(first: Iterable[Tiled], second: Iterable[Tiled]) -> Iterator[Tiled]:
    """One of each after the other, as long as there are any."""
    for pair in zip_longest(first, second):
        yield from (one for one in pair if one is not None)


def _row_shapes(machine: CpuModel) -> Iterable[tuple[int, int]]:
    lanes = machine.lanes(32)
    return ((lanes, 4), (lanes // 2, 4))


def _unrolled(tiled: Tiled) -> Iterator[Tiled]:
    """Other numbers of steps of the innermost sum."""
    for size in UNROLLINGS if tiled.unroll else ():
        (name, _), *rest = tiled.unroll
        yield replace(tiled, unroll=_factors(((name, size), *rest)))
        yield replace(tiled, unroll=((name, size),))


def _factors(found: Iterable[tuple[str, int]]) -> Factors:
    return tuple(found)


def _phases(kernel: CanonicalKernel, base: Phases, machine: CpuModel) -> Iterator[Phases]:
    """Phases that are tiled alike are changed alike."""
    chain = find_chain(kernel)
    if chain is None:
        return
    types = {**dict(kernel.types), **chain.kept}
    dims = {**dict(kernel.dims), **chain.ranges}
    stored = frozenset((*kernel.outputs, *chain.kept))
    once = read_once(chain.phases, kernel.constants)
    alike: dict[object, dict[int, list[Tiled]]] = {}
    for number, (stages, phase) in enumerate(zip(chain.phases, base.phases, strict=True)):
        packable = once & {r.tensor for s in stages for r in reads(s.body)}
        found = islice(tilings(stages, stored, types, dims, packable, machine), TILES)
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
