"""Emitting the tiled schedule: loops over register tiles, reductions inside, then the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as cartesian

from modelcc.ir.index import Index, Sym, floordiv, substitute, symbols
from modelcc.ir.loop import Assign, Const, Expr, For, If, Load, Predicate, Register, Stmt, Var
from modelcc.ir.scalar import identity
from modelcc.ir.scalar_tree import depends_on, reads
from modelcc.ir.tensor import Condition, Read
from modelcc.schedule.expression import FreshNames, PointEmitter, accumulate, conditions_at
from modelcc.schedule.lanes import Lanes, widen
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.parallel import Chosen, Point, SegmentedLoop, nest_loops
from modelcc.schedule.register_arrays import emit_array, store_at
from modelcc.targets.cpu.blocking import nest_blocks
from modelcc.targets.cpu.folding import folded, term_lanes
from modelcc.targets.cpu.matrix_tiles import MatrixTiles, emit_block
from modelcc.targets.cpu.plan import Plan
from modelcc.targets.cpu.prefetch import Companions, NextPanel, companions, next_panel, streams
from modelcc.targets.cpu.row_prefetch import (
    NextPlane,
    NextRows,
    epilogue_prefetch,
    next_plane,
    next_rows,
)
from modelcc.targets.cpu.streaming import BlockStream, NextBlock
from modelcc.targets.cpu.transposition import load_block, store_turned

Fetch = NextPanel | NextRows | NextBlock | Companions
"""Prefetches during the steps of a reduction."""


def emit_tiled(
    plan: Plan,
    names: FreshNames,
    chunks: int,
    ahead: BlockStream | None = None,
    near: frozenset[str] = frozenset(),
) -> list[Stmt]:
    """Loop-level statements of a planned group; parallel over ``chunks`` parts if more than 1.

    ``ahead`` are prefetches for a later block, in place of the next panel.
    """

    def tile(point: Point, chosen: Chosen) -> list[Stmt]:
        return _emit_tile(plan, names, point, chosen, ahead, near)

    if plan.matrices is not None:
        return _emit_matrices(plan, plan.matrices, names, chunks)
    if plan.blocking is not None:
        return nest_blocks(plan.blocking, plan.order, plan.segments, names, tile, chunks)
    loops = [SegmentedLoop(v.name, plan.segments[v.name]) for v in plan.order]
    return nest_loops(loops, names, tile, chunks)


def _emit_matrices(plan: Plan, matrices: MatrixTiles, names: FreshNames, chunks: int) -> list[Stmt]:
    """Blocks of sums, and the epilogue of each vector."""
    lanes = plan.lane and Lanes(plan.lane.name, plan.lanes, plan.active, plan.masked)

    def each(corner: Point, total: str) -> list[Stmt]:
        return _epilogue(plan, names, lanes, [corner], [total])

    def block(point: Point, chosen: Chosen) -> list[Stmt]:
        return emit_block(matrices, names, point, chosen, each)

    loops = [SegmentedLoop(v.name, plan.segments[v.name]) for v in plan.order]
    return nest_loops(loops, names, block, chunks)


def _emit_tile(
    plan: Plan,
    names: FreshNames,
    point: Point,
    chosen: Chosen,
    ahead: BlockStream | None,
    near: frozenset[str],
) -> list[Stmt]:
    lanes = _lanes(plan, chosen)
    corners = list(_tile_points(point, chosen, plan.tile.vector))
    anchor = plan.group.anchor
    if plan.tile.turned is not None and lanes is not None and len(corners) > 1:
        return _emit_turned(plan, names, lanes, corners)
    if anchor is None or anchor.combine is None:
        return _epilogue(plan, names, lanes, corners, [])
    if plan.terms is not None:
        return _emit_folded(plan, names, lanes, corners, chosen)
    dtype = anchor.body.dtype
    start = Const(identity(anchor.combine, dtype), dtype, plan.lanes)
    registers = [names.fresh("acc") for _ in corners]
    if plan.blocking is not None:
        panel = next_panel(plan, corners[0], chosen)
    elif ahead is not None and not streams(plan, corners[0], chosen):
        panel = ahead.at(plan, corners[0], chosen)
    else:
        panel = next_panel(plan, corners[0], chosen) or companions(plan, corners, chosen)
    fetched = [f for f in (panel, next_rows(plan, corners[0], chosen)) if f is not None]
    steps = _reduction(plan, names, lanes, corners, registers, chosen, fetched)
    epilogue = _epilogue(plan, names, lanes, corners, registers)
    blocking = plan.blocking
    if blocking is not None and blocking.summed is not None:
        return _block_of_sums(
            plan, blocking.summed, lanes, corners, registers, start, steps, epilogue
        )
    return [
        *epilogue_prefetch(plan, corners, near),
        *(Register(r, start) for r in registers),
        *steps,
        *epilogue,
    ]


def _block_of_sums(
    plan: Plan,
    summed: LoopVar,
    lanes: Lanes | None,
    corners: Sequence[Point],
    registers: Sequence[str],
    start: Const,
    steps: Sequence[Stmt],
    epilogue: Sequence[Stmt],
) -> list[Stmt]:
    """Accumulators that are loaded from the result's memory, and stored there again after all
    blocks but the last."""
    final, dtype = plan.group.final, start.dtype
    begin = corners[0][summed.name]
    assert plan.blocking is not None
    later = Predicate((Condition(begin, ">", 0),))
    last = Predicate((Condition(begin + plan.blocking.steps - summed.extent, ">=", 0),))
    loads: list[Stmt] = []
    stores: list[Stmt] = []
    for corner, register in zip(corners, registers, strict=True):
        store = store_at(final, Var(register, dtype, plan.lanes), corner, lanes)
        stores.append(store)
        value = Load(store.buffer, store.offset, dtype, plan.lanes, store.stride, store.active)
        loads.append(Assign(register, value))
    return [
        *(Register(r, start) for r in registers),
        If(later, tuple(loads)),
        *steps,
        If(last, tuple(epilogue), tuple(stores)),
    ]


def _emit_turned(
    plan: Plan, names: FreshNames, lanes: Lanes, corners: Sequence[Point]
) -> list[Stmt]:
    """Vectors strided in the results, transposed before they are stored."""
    emitter = PointEmitter(names, lanes)
    values: dict[str, list[Expr]] = {}
    for corner in corners:
        internal: dict[str, Expr] = {}
        for nest in plan.group.nests:
            value = widen(emitter.emit(nest.body, corner, internal), lanes.count)
            internal[nest.output] = emitter.name("v", value)
            values.setdefault(nest.output, []).append(internal[nest.output])
    statements = emitter.statements
    for nest in plan.group.nests:
        if nest.output in plan.group.stored:
            statements += store_turned(nest, values[nest.output], corners, lanes, names)
    return statements


def _emit_folded(
    plan: Plan,
    names: FreshNames,
    lanes: Lanes | None,
    corners: Sequence[Point],
    chosen: Chosen,
) -> list[Stmt]:
    """One vector of results; each lane has an accumulator along the plan's terms."""
    anchor, (corner,) = plan.group.anchor, corners
    assert anchor is not None and anchor.combine is not None and lanes is not None
    dtype, count = anchor.body.dtype, lanes.count
    active = substitute(lanes.active, corner) if lanes.active is not None else count
    assert isinstance(active, int)
    points = [{**corner, lanes.variable: n} for n in range(min(active, count))]
    registers = [names.fresh("acc") for _ in points]
    start = Const(identity(anchor.combine, dtype), dtype, count)
    variables = [Var(r, dtype, count) for r in registers]
    statements, total = folded(variables, anchor.combine, names)
    return [
        *(Register(r, start) for r in registers),
        *_reduction(plan, names, lanes, points, registers, chosen, []),
        *statements,
        *_epilogue(plan, names, lanes, corners, [total.name]),
    ]


def _lanes(plan: Plan, chosen: Chosen) -> Lanes | None:
    if plan.lane is None:
        return None
    vector = chosen.get(plan.tile.vector or "")
    partial = vector is not None and vector.partial and not any(s.whole for s in chosen.values())
    active = plan.active if partial else None
    return Lanes(plan.lane.name, plan.lanes, active, plan.masked)


def _tile_points(point: Point, chosen: Chosen, vector: str | None) -> Iterator[Point]:
    """Points of a tile; those that share a broadcast value are consecutive, so that it can be
    loaded where it is used instead of occupying a register."""
    tiled = [(name, segment.tile) for name, segment in chosen.items() if segment.tile > 1]
    tiled.sort(key=lambda t: t[0] == vector)
    names = [name for name, _ in tiled]
    for steps in cartesian(*(range(size) for _, size in tiled)):
        yield {**point, **{n: point[n] + s for n, s in zip(names, steps, strict=True)}}


def open_guards(plan: Plan, chosen: Chosen) -> list[Condition]:
    """Guards not implied by the interior segments around this point."""
    border = {name for name, segment in chosen.items() if not segment.interior}
    result: list[Condition] = []
    for condition in plan.guards:
        involved = symbols(condition.left) & frozenset(chosen)
        if len(involved) != 1 or involved & border:
            result.append(condition)
    return result


def _reduction(
    plan: Plan,
    names: FreshNames,
    lanes: Lanes | None,
    corners: Sequence[Point],
    registers: Sequence[str],
    chosen: Chosen,
    fetched: Sequence[Fetch],
) -> list[Stmt]:
    anchor, body = plan.group.anchor, plan.body
    if anchor is None or anchor.combine is None or body is None:
        raise ValueError("a reduction needs an anchor")
    combine = anchor.combine

    whole = _expanded(plan, anchor)
    once = () if plan.terms is not None or plan.blocking else streams(plan, corners[0], chosen)
    dots = plan.dots
    factors = dots and plan.lane and dots.factors(body, plan.lane)

    ragged = _ragged(anchor)

    def step(at: Point) -> list[Stmt]:
        along = lanes if plan.terms is None else term_lanes(plan.terms, anchor, ragged, at)
        emitter = PointEmitter(names, along)
        emitter.statements += [s for each in once for s in each.fetch(at)]
        for point, register in _steps(plan, corners, registers, at, whole):
            if dots is None or factors is None:
                value = emitter.emit(body, point, {})
                update = accumulate(combine, register, value, plan.lanes)
            else:
                sums = Var(register, body.dtype, plan.lanes)
                first = {**point, dots.loop.name: 0}
                product = emitter.dot_product(dots.instruction, factors, first, sums)
                update = Assign(register, product)
            emitter.statements.append(update)
        return emitter.statements

    rolled = [v for v in anchor.reduce if v not in whole and v is not plan.terms]
    loops = [(_of_block(plan, v), plan.tile.unrolling(v.name)) for v in rolled]
    guards = open_guards(plan, chosen)
    plane = next_plane(plan, corners)
    reduction = _Reduction(guards, corners[0], step, names, ragged, fetched, plane)
    return reduction.loops(loops, {})


def _of_block(plan: Plan, loop: LoopVar) -> LoopVar:
    """The loop over the steps of a block, if the reduction is blocked."""
    blocking = plan.blocking
    cut = blocking is not None and blocking.summed == loop
    return replace(loop, extent=blocking.steps) if blocking is not None and cut else loop


def _expanded(plan: Plan, anchor: Nest) -> tuple[LoopVar, ...]:
    """Fully unrolled reduction loops, whose steps are in the order of their inputs."""
    if not plan.tile.by_input or plan.guards:
        return ()
    return tuple(v for v in anchor.reduce if plan.tile.unrolling(v.name) == v.extent)


def _steps(
    plan: Plan,
    corners: Sequence[Point],
    registers: Sequence[str],
    at: Point,
    whole: tuple[LoopVar, ...],
) -> Sequence[tuple[Point, str]]:
    """(point, accumulator) of every accumulation within one iteration of the rolled loops."""
    ranges = [range(v.extent) for v in whole if isinstance(v.extent, int)]
    taps = [dict(zip((v.name for v in whole), tap, strict=True)) for tap in cartesian(*ranges)]
    steps = [
        ({**corner, **at, **tap}, register)
        for tap in taps
        for corner, register in zip(corners, registers, strict=True)
    ]
    if whole and plan.body is not None:
        moving = [r for r in reads(plan.body) if any(depends_on(r, n) for n, _ in plan.tile.points)]
        origin = steps[0][0]
        return sorted(steps, key=lambda s: _position(moving[0], s[0], origin))
    return steps


def _position(read: Read, point: Point, origin: Point) -> int:
    distance = substitute(read.indices[0], point) - substitute(read.indices[0], origin)
    return distance if isinstance(distance, int) else 0


def _ragged(anchor: Nest) -> dict[str, int]:
    """Static extents of blocked reduction axes, by the loop over their blocks, if these do not
    fill their last block."""
    blocks: dict[str, LoopVar] = {}
    for v in anchor.reduce:
        known = blocks.get(v.axis)
        if v.multiplier > (1 if known is None else known.multiplier):
            blocks[v.axis] = v
    extents = {v.name: (anchor.extents[v.axis], v.multiplier) for v in blocks.values()}
    return {n: e for n, (e, block) in extents.items() if isinstance(e, int) and e % block}


@dataclass(frozen=True)
class _Reduction:
    """The loops around one accumulation ``step``; guards are tested in the outermost possible loop.

    ``ragged`` loops over blocks have a partial last block, which is peeled.
    """

    guards: list[Condition]
    corner: Point
    step: Callable[[Point], list[Stmt]]
    names: FreshNames
    ragged: Mapping[str, int]
    fetched: Sequence[Fetch]
    plane: NextPlane | None

    def loops(self, remaining: list[tuple[LoopVar, int]], at: Point) -> list[Stmt]:
        """Statements of the ``remaining`` loops (variable, unrolling), given the outer ones."""
        waiting = {v.name for v, _ in remaining}
        ready = [c for c in self.guards if not symbols(c.left) & waiting]
        later = [c for c in self.guards if symbols(c.left) & waiting]
        inner = replace(self, guards=later)
        conditions = conditions_at(ready, {**self.corner, **at})
        if conditions is None:
            return []
        body = inner.loop(remaining, at) if remaining else self.step(at)
        return [If(Predicate(conditions), tuple(body))] if conditions else body

    def loop(self, remaining: list[tuple[LoopVar, int]], at: Point) -> list[Stmt]:
        """The first of the ``remaining`` loops, with the others inside."""
        (variable, unroll), rest = remaining[0], remaining[1:]
        counter = self.names.fresh(variable.name)
        first = self.corner.get(variable.name, 0)

        def below(value: Index) -> list[Stmt]:
            here = {**at, variable.name: first + value}
            plane = self.plane if self.plane and self.plane.loop == variable.name else None
            return [*(plane.fetch(here) if plane else ()), *self.loops(rest, here)]

        def each(value: Index) -> list[Stmt]:
            if rest:
                return []
            here = {**at, variable.name: first + value}
            return [s for f in self.fetched for s in f.fetch(here, unroll)]

        extent = self.ragged.get(variable.name)
        if extent is None:
            return counted_loop(variable.extent, unroll, counter, below, each)
        full, end = divmod(extent, variable.multiplier)
        cut = [(_up_to(v, end) if v.axis == variable.axis else v, u) for v, u in rest]
        last = self.loops(cut, {**at, variable.name: full})
        return [*counted_loop(full, unroll, counter, below, each), *last]


def _up_to(variable: LoopVar, end: int) -> LoopVar:
    """The inner loop of an axis up to a partial block's ``end``; padding of its last step is
    zero."""
    return replace(variable, extent=-(-end // variable.multiplier))


def counted_loop(
    extent: Index,
    unroll: int,
    counter: str,
    below: Callable[[Index], list[Stmt]],
    each: Callable[[Index], list[Stmt]],
) -> list[Stmt]:
    """A serial loop over ``0 … extent-1`` unrolled by ``unroll``, with a remainder loop.

    ``each`` gives statements to run once per ``unroll`` iterations.
    """
    if extent == 0:
        return []
    if extent == 1:
        return below(0)
    if unroll <= 1:
        return [For(counter, 0, extent, tuple(below(Sym(counter))))]
    if extent == unroll:
        return [For(counter, 0, extent, tuple(below(Sym(counter))), kind="unrolled")]
    if isinstance(extent, int) and extent < unroll:
        return [For(counter, 0, extent, tuple(below(Sym(counter))), kind="unrolled")]
    whole, inner = floordiv(extent, unroll), f"{counter}u"
    main = For(inner, 0, unroll, tuple(below(Sym(counter) * unroll + Sym(inner))), kind="unrolled")
    result: list[Stmt] = [For(counter, 0, whole, (*each(Sym(counter) * unroll), main))]
    if extent - whole * unroll != 0:
        tail = f"{counter}t"
        result.append(For(tail, whole * unroll, extent, tuple(below(Sym(tail)))))
    return result


def _epilogue(
    plan: Plan,
    names: FreshNames,
    lanes: Lanes | None,
    corners: Sequence[Point],
    registers: Sequence[str],
) -> list[Stmt]:
    anchor = plan.group.anchor
    block = plan.tile.block
    if block is not None and lanes is not None and len(corners) > 1:
        loads, found = load_block(block, corners, lanes, names)
        emitter = PointEmitter(names, lanes, found)
        emitter.statements += loads
    else:
        emitter = PointEmitter(names, lanes)
    for position, corner in enumerate(corners):
        internal: dict[str, Expr] = {}
        emitter.forget_arrays()
        for nest in plan.group.nests:
            if nest.own:
                emit_array(plan.group, nest, emitter, corner, internal)
                continue
            if nest is anchor:
                value: Expr = Var(registers[position], nest.body.dtype, plan.lanes)
            else:
                value = emitter.emit(nest.body, corner, internal)
                if nest is not plan.group.final:
                    value = emitter.name("v", value)
            internal[nest.output] = value
            if nest.output in plan.group.stored:
                emitter.statements.append(store_at(nest, value, corner, lanes))
    return emitter.statements
