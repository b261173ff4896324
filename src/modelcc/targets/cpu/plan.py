"""Planning the tiled schedule: vector loop, register tile, packed constants, loop order, segments.

It serves elementwise kernels, pooling, convolution, matrix products and column reductions alike:
what is loaded as a vector, broadcast or shared between points follows from the offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index, floordiv, simplify, substitute, symbols
from modelcc.ir.instructions import DOT2
from modelcc.ir.scalar_tree import reads, transform, walk
from modelcc.ir.tensor import Axis, Bind, Condition, Read, Scalar, Stage
from modelcc.ir.types import Layout, TensorType
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.packing import packed_layout
from modelcc.schedule.schedule import Factors, ScheduleError, Tiled
from modelcc.schedule.segments import (
    Segment,
    element_tiles,
    guarded_segments,
    interior_of,
    vector_tiles,
)
from modelcc.schedule.structure import Group, is_contraction, make_group, neutral_guards
from modelcc.targets.cpu.blocking import (
    Blocking,
    blocked_order,
    default_blocking,
    other_blocks,
    wanted_blocking,
)
from modelcc.targets.cpu.dots import Dots, find_dots
from modelcc.targets.cpu.folding import find_terms
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.matrix_tiles import MatrixTiles, find_tiles
from modelcc.targets.cpu.tiling import (
    RegisterTile,
    Roles,
    choose_tile,
    ranked_tiles,
    roles_of,
    wanted_tile,
)
from modelcc.targets.cpu.vector_loop import split_vector, vector_loop, wanted_vector_loop

SINGLE = Tiled()
"""Scalar code."""


@dataclass(frozen=True)
class Plan:
    """A group with its loops decided.  ``lane`` is None for a scalar schedule.

    ``dots`` are the dot products that a contraction is made of, ``matrices`` its tiles in blocks;
    ``terms`` the reduction loop along which accumulators are vectorised, if not ``lane``.
    ``order`` has the loops over tiles, blocked by ``blocking`` if given.  Operands that are read
    once are prefetched ``ahead_bytes`` before their use.
    """

    group: Group
    tile: RegisterTile
    lane: LoopVar | None
    active: Index | None
    masked: frozenset[str]
    order: tuple[LoopVar, ...]
    segments: Mapping[str, tuple[Segment, ...]]
    guards: tuple[Condition, ...]
    body: Scalar | None
    packed: frozenset[str]
    dots: Dots | None = None
    matrices: MatrixTiles | None = None
    terms: LoopVar | None = None
    schedule: Tiled = SINGLE
    blocking: Blocking | None = None
    ahead_bytes: int = 0

    @property
    def overwrites_early(self) -> bool:
        """Whether partial sums are kept in the result's memory, which must not alias any
        operand."""
        return self.blocking is not None and self.blocking.summed is not None

    @property
    def lanes(self) -> int:
        """Vector width in elements; 1 for a scalar schedule."""
        extent = self.lane.extent if self.lane is not None else 1
        return extent if isinstance(extent, int) else 1


def plan_stages(
    stages: tuple[Stage, ...],
    outputs: frozenset[str],
    types: Mapping[str, TensorType],
    dims: Bounds,
    packable: frozenset[str],
    machine: CpuModel,
    outer: Sequence[Axis] = (),
    wanted: Tiled | None = None,
) -> tuple[Plan, dict[str, Layout]]:
    """The plan of stages that share their axes: as ``wanted``, else by default.

    Tiles are over whole blocks of padded axes, or else up to their ends.  ``outer`` axes are of
    loops around them.  :class:`ScheduleError` if ``wanted`` does not fit.
    """
    for pad in (True, False) if wanted is None else (wanted.padded,):
        group = make_group(stages, outputs, types, dims, packable, pad)
        planned = plan_tiled(group, types, packable, machine, outer, wanted)
        if planned is not None:
            plan, layouts = planned
            return replace(plan, schedule=replace(plan.schedule, padded=pad)), layouts
    raise ScheduleError("loops over whole blocks would pass the end of an axis: padded=False")


def plan_tiled(
    group: Group,
    types: Mapping[str, TensorType],
    constants: frozenset[str],
    machine: CpuModel,
    outer: Sequence[Axis] = (),
    wanted: Tiled | None = None,
) -> tuple[Plan, dict[str, Layout]] | None:
    """Chooses vector variable, tile, loop order and layouts of packed constants.

    ``outer`` axes are of loops around the group.  None if loops would exceed an axis other than in
    vectors.  :class:`ScheduleError` if ``wanted`` does not fit.
    """
    found = (
        vector_loop(group, machine)
        if wanted is None
        else wanted_vector_loop(group, wanted, machine)
    )
    if group.ragged - ({found[0].axis} if found is not None else set()):
        return None
    if found is None:
        if wanted is not None and (wanted.tile or wanted.unroll):
            raise ScheduleError("tiles are of vectors: name the loop that these run along")
        flat = _flatten_constants(group, types, constants, {})
        return _finish(flat, RegisterTile(None, ()), None, None, frozenset()), {}
    split = split_vector(group, *found)
    around = tuple(LoopVar(a.name, a.extent, a.name, 1) for a in outer)
    cutting = _Cutting(*split[1:], found[0].name, around, types, constants, machine, wanted)
    tiled = cutting.matrix_tiles(split[0]) if not around else None
    if tiled is not None:
        return tiled
    if wanted is not None and wanted.matrices:
        raise ScheduleError("no products of bf16 by packed constants are summed by tiles: matrices")
    cut = None
    if wanted is None or wanted.dots:
        cut = find_dots(split[0], cutting.lane, constants, machine.multiplies_bf16)
    if cut is not None:
        planned = cutting.plan(*cut)
        if cut[1].side_by_side(planned[0].group, cutting.lane):
            return planned
    if wanted is not None and wanted.dots:
        raise ScheduleError("no products of narrow numbers are summed along contiguous ones: dots")
    return cutting.plan(split[0], None)


def tilings(
    stages: tuple[Stage, ...],
    outputs: frozenset[str],
    types: Mapping[str, TensorType],
    dims: Bounds,
    packable: frozenset[str],
    machine: CpuModel,
) -> Iterator[Tiled]:
    """Tilings of stages that share their axes, by the widest vectors and then by half as wide, each
    best first by estimated cycles.  Some may not fit."""
    for pad in (True, False):
        group = make_group(stages, outputs, types, dims, packable, pad)
        found = vector_loop(group, machine)
        if group.ragged - ({found[0].axis} if found is not None else set()) or found is None:
            continue
        inner, most = found
        for lanes in (most, most // 2) if most > 2 else (most,):
            cut, lane, blocks, _ = split_vector(group, inner, lanes)
            plain = Tiled(inner.name, lanes, padded=pad)
            dots = find_dots(cut, lane, packable, machine.multiplies_bf16) is not None
            for rank, tile in enumerate(ranked_tiles(cut, lane.name, blocks, machine, packable)):
                tiled = replace(plain, tile=tile.points, unroll=tile.unroll)
                tiled = replace(tiled, by_input=tile.by_input, exchange=tile.exchange, dots=dots)
                parts = [()] if dots else _blocks(cut, tile, lane.name, machine, types)
                # Other blocks are tried with the best tile only.
                yield from (replace(tiled, blocks=each) for each in parts[: 1 if rank else None])
        return


def _blocks(
    group: Group, tile: RegisterTile, lane: str, machine: CpuModel, types: Mapping[str, TensorType]
) -> list[Factors]:
    """The blocks that a tile has by default, and others."""
    blocking = default_blocking(group, tile, lane, machine, types)
    first = () if blocking is None else blocking.factors
    return [first, *other_blocks(group, tile, lane, first)]


@dataclass(frozen=True)
class _Cutting:
    """How loops are split into vectors, and other inputs of a plan."""

    lane: LoopVar
    blocks: str
    active: Index | None
    vector: str
    around: tuple[LoopVar, ...]
    types: Mapping[str, TensorType]
    constants: frozenset[str]
    machine: CpuModel
    wanted: Tiled | None

    def matrix_tiles(self, group: Group) -> tuple[Plan, dict[str, Layout]] | None:
        """The plan of ``group`` in tiles of matrices, if the machine has them and they apply."""
        asked = self.machine.multiplies_tiles if self.wanted is None else self.wanted.matrices
        cut = find_dots(group, self.lane, self.constants, pairs=True) if asked else None
        if cut is None or cut[1].instruction != DOT2:
            return None
        group, dots = cut
        tile = RegisterTile(self.blocks, ((self.blocks, 1),))
        group, layouts = _pack_constants(
            group, tile, self.lane, dots, None, self.types, self.constants, self.around
        )
        packed = self.constants & frozenset(layouts)
        plan = _finish(group, tile, self.lane, self.active, packed)
        anchor, body = group.anchor, plan.body
        if not dots.side_by_side(group, self.lane) or plan.guards or anchor is None or body is None:
            return None
        found = find_tiles(body, anchor, dots, self.lane, self.blocks, plan.order)
        if found is None:
            return None
        if self.wanted is not None:
            found = replace(found, block=self.wanted.tile)
        schedule = Tiled(self.vector, plan.lanes, found.block, matrices=True)
        segments = {v.name: found.segments(v) or plan.segments[v.name] for v in plan.order}
        return replace(plan, matrices=found, schedule=schedule, segments=segments), layouts

    def plan(self, group: Group, dots: Dots | None) -> tuple[Plan, dict[str, Layout]]:
        """The plan of ``group``, in ``dots`` if given."""
        lane, constants = self.lane, self.constants
        found = None if dots is not None else self._terms(group)
        terms = None
        if found is None:
            tile = self._tile(group)
        else:
            anchor, terms = found
            group = replace(group, nests=(anchor, *group.nests[1:]))
            tile = RegisterTile(self.blocks, ((self.blocks, 1),))
        group, layouts = _pack_constants(
            group, tile, lane, dots, terms, self.types, constants, self.around
        )
        packed = constants & frozenset(layouts)
        plan = _finish(group, tile, lane, self.active, packed)
        blocking = self._blocking(group, tile, plain=found is None and dots is None)
        if blocking is not None:
            plan = replace(plan, blocking=blocking, order=blocked_order(plan.order, blocking))
        schedule = Tiled(
            self.vector,
            plan.lanes,
            tile.points,
            tile.unroll,
            () if blocking is None else blocking.factors,
            tile.by_input,
            tile.exchange,
            dots=dots is not None,
            folded=terms is not None,
        )
        ahead = self.machine.ahead_bytes
        plan = replace(plan, dots=dots, terms=terms, schedule=schedule, ahead_bytes=ahead)
        return plan, layouts

    def _terms(self, group: Group) -> tuple[Nest, LoopVar] | None:
        """The reduction loop to vectorise, if requested or estimated to be best."""
        wanted = self.wanted
        if wanted is not None and not wanted.folded:
            return None
        found = _find_terms(group, self.lane, self.active, self.constants)
        if wanted is not None and found is None:
            raise ScheduleError("no terms are contiguous where results are not: folded")
        return found

    def _blocking(self, group: Group, tile: RegisterTile, plain: bool) -> Blocking | None:
        """Blocks of a ``plain`` sum of products."""
        if not plain:
            if self.wanted is not None and self.wanted.blocks:
                raise ScheduleError("blocks: not of dots nor of folded sums")
            return None
        if self.wanted is not None:
            return wanted_blocking(group, tile, self.lane.name, self.wanted.blocks)
        return default_blocking(group, tile, self.lane.name, self.machine, self.types)

    def _tile(self, group: Group) -> RegisterTile:
        args = group, self.lane.name, self.blocks
        if self.wanted is None:
            return choose_tile(*args, self.machine, self.constants)
        return wanted_tile(*args, self.wanted, self.constants)


def _find_terms(
    group: Group, lane: LoopVar, active: Index | None, constants: frozenset[str]
) -> tuple[Nest, LoopVar] | None:
    known = active is None or isinstance(active, int) or _is_static(group.final)
    extent = lane.extent if isinstance(lane.extent, int) else 1
    return find_terms(group.anchor, lane.name, extent, constants) if known else None


def _is_static(nest: Nest) -> bool:
    return all(isinstance(v.extent, int) for v in nest.parallel)


def _pack_constants(
    group: Group,
    tile: RegisterTile,
    lane: LoopVar,
    dots: Dots | None,
    terms: LoopVar | None,
    types: Mapping[str, TensorType],
    constants: frozenset[str],
    around: tuple[LoopVar, ...],
) -> tuple[Group, dict[str, Layout]]:
    """Layouts for constants read along the lanes, and the group reading them so packed.

    Loops ``around`` the group come first, those covered by one tile last.

    Constants that keep their row-major order get flat offsets as well.
    """
    order = _loop_order(group, tile, lane)
    layouts: dict[str, Layout] = {}
    for nest in group.nests:
        within = [v for v in order if v.name != tile.vector and is_covered(v, tile)]
        loops = (*(v for v in order if v.name != tile.vector), *nest.reduce)
        loops = (*(v for v in loops if v not in within), *within)
        loops = tuple(v for v in loops if v is not terms)
        vector = nest.var(tile.vector or "")
        bound = [node.symbol for node in walk(nest.body) if isinstance(node, Bind)]
        for read in dict.fromkeys(reads(nest.body)):
            if read.tensor not in constants or read.tensor in layouts:
                continue
            # The vector panel is outermost: each panel is then streamed front to back.
            panels = (*around, vector, *loops)
            inner = (lane,) if dots is None or nest is not group.anchor else (lane, dots.loop)
            inner = (terms,) if terms is not None and nest is group.anchor else inner
            shape, size = types[read.tensor].shape, tile.of(vector.name)
            layout = packed_layout(read, panels, vector.name, inner, size, shape, bound)
            if layout is not None and _holds(layout, shape):
                layouts[read.tensor] = layout
    return _flatten_constants(group, types, constants, layouts), layouts


def is_covered(loop: LoopVar, tile: RegisterTile) -> bool:
    """Whether a tile covers a loop of several iterations."""
    return loop.extent != 1 and tile.of(loop.name) == loop.extent


def _holds(layout: Layout, shape: Sequence[Index]) -> bool:
    """Whether ``layout`` covers all of a constant, of which a kernel may read a part."""
    open_ended = {p.axis for p in layout.parts if p.mod is None}
    room = dict.fromkeys(range(len(shape)), 1)
    for p in layout.parts:
        room[p.axis] = max(room[p.axis], p.div * (p.mod or 1))
    return all(
        axis in open_ended or (isinstance(extent, int) and extent <= room[axis])
        for axis, extent in enumerate(shape)
    )


def _flatten_constants(
    group: Group,
    types: Mapping[str, TensorType],
    constants: frozenset[str],
    layouts: Mapping[str, Layout],
) -> Group:
    def flatten(nest: Nest) -> Nest:
        def visit(node: Scalar) -> Scalar:
            if not (isinstance(node, Read) and node.tensor in constants):
                return node
            type_ = types[node.tensor]
            layout = layouts.get(node.tensor, type_.physical)
            offset = layout.offset(node.indices, type_.shape)
            return replace(node, indices=(simplify(offset, nest.ranges),))

        return replace(nest, body=transform(nest.body, visit))

    return replace(group, nests=tuple(flatten(n) for n in group.nests))


def _finish(
    group: Group,
    tile: RegisterTile,
    lane: LoopVar | None,
    active: Index | None,
    packed: frozenset[str],
) -> Plan:
    anchor = group.anchor
    guards: tuple[Condition, ...] = ()
    body: Scalar | None = None
    if anchor is not None and anchor.combine is not None:
        guards, body = neutral_guards(anchor.body, anchor.combine, anchor.body.dtype)
    masked = frozenset[str]()
    if lane is not None and active is not None:
        masked = group.bare.get(lane.axis, masked) - packed
    shown = active if masked else None
    segments = _segments(group, tile, lane, guards, shown)
    order = _loop_order(group, tile, lane)
    return Plan(group, tile, lane, active, masked, order, segments, guards, body, packed)


def _loop_order(group: Group, tile: RegisterTile, lane: LoopVar | None) -> tuple[LoopVar, ...]:
    """Parallel loops outermost first, without the lanes.

    For contractions: loops moving both operands, then panels of the vector operand, then the
    loops that reuse a panel.
    """
    variables = [v for v in group.final.parallel if lane is None or v.name != lane.name]
    anchor, runs = group.anchor, tile.runs
    if runs is not None:
        others = [v for v in variables if v != runs.rows]
        before = others.index(runs.along)
        return (*others[:before], runs.rows, *others[before:])
    if anchor is None or lane is None or not is_contraction(anchor):
        return tuple(variables)
    roles = roles_of(anchor, lane.name)
    return tuple(sorted(variables, key=lambda v: _rank(v.name, roles)))


def _rank(name: str, roles: Roles) -> int:
    vectors, broadcasts = roles.moves_vectors(name), roles.moves_broadcasts(name)
    return 0 if vectors and broadcasts else 1 if vectors else 2


def _segments(
    group: Group,
    tile: RegisterTile,
    lane: LoopVar | None,
    guards: Sequence[Condition],
    active: Index | None,
) -> dict[str, tuple[Segment, ...]]:
    """Segments of all parallel loops; ``active``: active lanes of a vector, if partial."""
    final, partial = group.final, active is not None
    anchor = group.anchor or final
    halved = is_contraction(anchor)
    result: dict[str, tuple[Segment, ...]] = {}
    for v in final.parallel:
        if lane is not None and v.name == lane.name:
            continue
        whole = _whole_blocks(group, v, lane) if partial and lane is not None else None
        if whole is not None and v.name != tile.vector:
            result[v.name] = (
                Segment(0, whole, 1, interior=True, whole=True),
                Segment(whole, v.extent - whole, 1),
            )
            continue
        if v.name == tile.vector:
            inside = lane is not None and _inside_block(group, v, lane)
            tiles = vector_tiles(v.extent, tile.of(v.name), partial, anchor.ranges, inside)
            line = _elements_along(group, v, active) if partial and not inside else None
            if line is not None and lane is not None:
                tiles = element_tiles(line, _lanes_of(lane), tile.of(v.name), anchor.ranges)
            result[v.name] = tuple(tiles)
            continue
        interior = interior_of(v.name, v.extent, guards, anchor.ranges)
        result[v.name] = tuple(guarded_segments(v.extent, tile.of(v.name), interior, halved))
    return result


def _elements_along(group: Group, vectors: LoopVar, active: Index | None) -> Index | None:
    """Elements along the vectors of an elementwise group, if their number is symbolic."""
    if group.anchor is not None or active is None or isinstance(vectors.extent, int):
        return None
    others = {v.name for v in group.final.parallel if v is not vectors}
    return None if symbols(active) & others else substitute(active, {vectors.name: 0})


def _lanes_of(lane: LoopVar) -> int:
    return lane.extent if isinstance(lane.extent, int) else 1


def _whole_blocks(group: Group, loop: LoopVar, lane: LoopVar) -> Index | None:
    """Number of whole blocks of the layout, if ``loop`` iterates over the blocks of an elementwise
    group."""
    block, total = group.blocks.get(lane.axis), group.final.extents[lane.axis]
    if group.anchor is not None or block is None or loop.axis != lane.axis:
        return None
    return floordiv(total, block) if loop.multiplier == block else None


def _inside_block(group: Group, vectors: LoopVar, lane: LoopVar) -> bool:
    """Whether the loop over ``vectors`` is part of a block of the layout, in which it may exceed
    the axis by more than a vector."""
    parallel, total = group.final.parallel, group.final.extents[lane.axis]
    if any(w.axis == lane.axis and w.name not in (vectors.name, lane.name) for w in parallel):
        return True
    # The loop over blocks is missing if there was one block and it merged with other loops.
    extent = vectors.extent
    if lane.axis not in group.ragged or not isinstance(extent, int) or not isinstance(total, int):
        return False
    return (extent - 1) * vectors.multiplier >= total
