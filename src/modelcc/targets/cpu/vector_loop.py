"""Choice of the vectorised loop of stages, and of the number of lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import gcd

from modelcc.ir.index import Index, Sym, ceildiv, coefficient, loop_range, simplify, substitute
from modelcc.ir.scalar_tree import children, substitute_indices, walk
from modelcc.ir.tensor import Bind, Scalar
from modelcc.schedule.expression import moves, vectorisable
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.schedule import ScheduleError, Tiled
from modelcc.schedule.structure import Group
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.transposition import find_turned


def vector_loop(group: Group, machine: CpuModel) -> tuple[LoopVar, int] | None:
    """The loop to vectorise, the innermost of the output if possible, and the number of lanes."""
    inner = next((v for v in reversed(group.final.parallel) if v.extent != 1), None)
    lanes = _lanes_along(group, inner, machine)
    if inner is None or not _fits_vectors(group, inner, _vector_lanes(group, inner, lanes)):
        inner = find_turned(group.nests, group.stored, lanes) if group.anchor is None else None
    return None if inner is None else (inner, _vector_lanes(group, inner, lanes))


def wanted_vector_loop(
    group: Group, wanted: Tiled, machine: CpuModel
) -> tuple[LoopVar, int] | None:
    """The same as a schedule requests."""
    if not wanted.vector:
        return None
    inner = next((v for v in group.final.parallel if v.name == wanted.vector), None)
    if inner is None:
        names = ", ".join(v.name for v in group.final.parallel)
        raise ScheduleError(f"there is no parallel loop {wanted.vector!r}, but {names or 'none'}")
    lanes, most = wanted.lanes, _lanes_along(group, inner, machine.instruction_set)
    if not 1 <= lanes <= most or lanes & (lanes - 1):
        raise ScheduleError(f"vectors have up to {most} lanes here, a power of two, not {lanes}")
    if _vector_lanes(group, inner, lanes) != lanes:
        raise ScheduleError(f"vectors of {lanes} lanes do not divide the blocks of {inner.name}")
    if not _fits_vectors(group, inner, lanes) and not _turns(group, inner, lanes):
        raise ScheduleError(f"loop {inner.name} does not allow vectors of {lanes} lanes")
    return inner, lanes


def _turns(group: Group, inner: LoopVar, lanes: int) -> bool:
    return group.anchor is None and find_turned(group.nests, group.stored, lanes) == inner


def split_vector(
    group: Group, inner: LoopVar, lanes: int
) -> tuple[Group, LoopVar, str, Index | None]:
    """Splits the loop ``inner`` by ``lanes``."""
    final, block = group.final, group.blocks.get(inner.axis)
    outer = next((v for v in final.parallel if _continues(v, inner)), None)
    if inner.extent == lanes and outer is not None:
        return group, inner, outer.name, _missing_lanes(final, inner)
    lane = LoopVar(f"{inner.name}l", lanes, inner.axis, inner.multiplier)
    blocks = LoopVar(
        f"{inner.name}b", ceildiv(inner.extent, lanes), inner.axis, inner.multiplier * lanes
    )
    value = {inner.name: Sym(blocks.name) * lanes + Sym(lane.name)}
    active = _active_lanes(final, inner, blocks, lanes, block)
    nests = tuple(_replace_var(n, inner, (blocks, lane), value) for n in group.nests)
    return replace(group, nests=nests), lane, blocks.name, active


def _vector_lanes(group: Group, inner: LoopVar, lanes: int) -> int:
    """Lanes of vectors along ``inner``, at most ``lanes``."""
    block = group.blocks.get(inner.axis)
    if block is None:
        return lanes
    # Padding is in whole blocks, so vectors must not straddle two.
    return gcd(lanes, inner.extent if isinstance(inner.extent, int) else block)


def _fits_vectors(group: Group, inner: LoopVar, lanes: int) -> bool:
    """Whether vectors along ``inner``, the innermost loop, can be computed and stored."""
    step = coefficient(group.final.store, inner.name)
    # Strided results are stored one by one, which only pays for reductions.
    if step != 1 and not (group.anchor is not None and isinstance(step, int) and step != 0):
        return False
    internal = {n.output for n in group.nests}
    gathers = group.anchor is None and step == 1
    # Indices shared by several elements are loaded once for all lanes.
    repeated = gathers and not any(isinstance(s, Bind) for n in group.nests for s in walk(n.body))
    return all(
        vectorisable(n.body, inner.name, lanes, internal, gathers, repeated) for n in group.nests
    )


def _continues(outer: LoopVar, inner: LoopVar) -> bool:
    """Whether ``outer`` iterates over whole runs of ``inner`` along the same axis."""
    same = outer.axis == inner.axis and isinstance(inner.extent, int)
    return same and outer.multiplier == inner.multiplier * inner.extent


def _missing_lanes(nest: Nest, lane: LoopVar) -> Index | None:
    """Active lanes of a block if the lanes are a block of the layout; None: always all."""
    total = nest.extents[lane.axis]
    if isinstance(total, int) and isinstance(lane.extent, int) and total % lane.extent == 0:
        return None
    for v in nest.parallel:
        if v.axis == lane.axis and v.name != lane.name:
            total = total - Sym(v.name) * v.multiplier
    return total


def _lanes_along(group: Group, inner: LoopVar | None, machine: CpuModel) -> int:
    """Lanes per register of the widest element type along ``inner``."""
    internal = {n.output for n in group.nests}
    least = group.final.body.dtype.bits

    def one_for_all(bind: Bind) -> bool:
        """Whether all lanes have the same index, bound once as a scalar."""
        return inner is not None and not moves(bind, inner.name, internal)

    def bits(scalar: Scalar) -> Iterator[int]:
        if scalar.dtype.kind != "bool":
            yield scalar.dtype.bits
        for part in children(scalar):
            if not (isinstance(scalar, Bind) and part is scalar.value and one_for_all(scalar)):
                yield from bits(part)

    return machine.lanes(max([least, *(b for n in group.nests for b in bits(n.body))]))


def _active_lanes(
    nest: Nest, inner: LoopVar, blocks: LoopVar, lanes: int, block: int | None
) -> Index | None:
    """Active lanes of a vector; None if every vector is whole.

    If ``inner`` is one ``block`` of an axis, the end of the axis counts.
    """
    if block is not None:
        total = nest.extents[inner.axis]
        if isinstance(total, int) and total % block == 0:
            return None
        for v in nest.parallel:
            if v.axis == inner.axis and v.name != inner.name:
                total = total - Sym(v.name) * v.multiplier
        return total - Sym(blocks.name) * lanes
    if isinstance(inner.extent, int) and inner.extent % lanes == 0:
        return None
    return inner.extent - Sym(blocks.name) * lanes


def _replace_var(
    nest: Nest, old: LoopVar, new: tuple[LoopVar, ...], value: Mapping[str, Index]
) -> Nest:
    parallel: list[LoopVar] = []
    for v in nest.parallel:
        parallel += new if v.name == old.name else [v]
    ranges = {k: r for k, r in nest.ranges.items() if k != old.name}
    ranges |= {v.name: loop_range(v.extent) for v in new}
    body = substitute_indices(nest.body, value)
    store = simplify(substitute(nest.store, value), ranges)
    return replace(nest, parallel=tuple(parallel), body=body, store=store, ranges=ranges)
