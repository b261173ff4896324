"""Emitting the tiled schedule: loops over register tiles, reductions inside, then the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product as cartesian

from modelcc.ir.index import Index, Sym, floordiv, substitute, symbols
from modelcc.ir.loop import Const, Expr, For, If, Register, Stmt, Store, Test, Var
from modelcc.ir.tensor import Condition
from modelcc.targets.cpu.expression import (
    Lanes,
    Names,
    PointEmitter,
    accumulate,
    identity,
    widen,
)
from modelcc.targets.cpu.nest import LoopVar, Nest
from modelcc.targets.cpu.parallel import Chosen, Loop, Point, nest_loops
from modelcc.targets.cpu.plan import Plan


def emit_tiled(plan: Plan, names: Names, chunks: int) -> list[Stmt]:
    """Loop-level statements of a planned group; parallel over ``chunks`` parts if more than 1."""
    loops = [Loop(v.name, plan.segments[v.name]) for v in plan.order]

    def tile(point: Point, chosen: Chosen) -> list[Stmt]:
        return _emit_tile(plan, names, point, chosen)

    return nest_loops(loops, names, tile, chunks)


def _emit_tile(plan: Plan, names: Names, point: Point, chosen: Chosen) -> list[Stmt]:
    lanes = _lanes(plan, chosen)
    corners = list(_tile_points(point, chosen, plan.tile.vector))
    anchor = plan.group.anchor
    if anchor is None or anchor.combine is None:
        return _epilogue(plan, names, lanes, corners, [])
    dtype = anchor.body.dtype
    start = Const(identity(anchor.combine, dtype), dtype, plan.lanes)
    registers = [names.fresh("acc") for _ in corners]
    return [
        *(Register(r, start) for r in registers),
        *_reduction(plan, names, lanes, corners, registers, chosen),
        *_epilogue(plan, names, lanes, corners, registers),
    ]


def _lanes(plan: Plan, chosen: Chosen) -> Lanes | None:
    if plan.lane is None:
        return None
    vector = chosen.get(plan.tile.vector or "")
    active = plan.active if vector is not None and vector.partial else None
    return Lanes(plan.lane.name, plan.lanes, active, plan.masked)


def _tile_points(point: Point, chosen: Chosen, vector: str | None) -> Iterator[Point]:
    """Points of a tile; those of one broadcast value follow each other, so that it can be
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
    names: Names,
    lanes: Lanes | None,
    corners: Sequence[Point],
    registers: Sequence[str],
    chosen: Chosen,
) -> list[Stmt]:
    anchor, body = plan.group.anchor, plan.body
    if anchor is None or anchor.combine is None or body is None:
        raise ValueError("a reduction needs an anchor")
    combine = anchor.combine

    def step(at: Point) -> list[Stmt]:
        emitter = PointEmitter(names, lanes)
        for corner, register in zip(corners, registers, strict=True):
            value = emitter.emit(body, {**corner, **at}, {})
            emitter.statements.append(accumulate(combine, register, value, plan.lanes))
        return emitter.statements

    guards = [c for c in open_guards(plan, chosen)]
    loops = reduction_order(anchor)
    unrolls = _unroll_factors(loops, plan.tile.reduce_unroll, len(corners))
    return _reduce_loops(
        list(zip(loops, unrolls, strict=True)), guards, corners[0], {}, step, names
    )


def reduction_order(anchor: Nest) -> tuple[LoopVar, ...]:
    """Reduction loops, outermost first."""
    return anchor.reduce


def _unroll_factors(loops: Sequence[LoopVar], innermost: int, points: int) -> list[int]:
    """Unrolling per loop: small inner loops whole, while the body stays moderate."""
    factors = [1] * len(loops)
    budget = max(1, 256 // max(1, points))
    for position in reversed(range(len(loops))):
        extent = loops[position].extent
        if position == len(loops) - 1:
            factors[position] = innermost
            budget //= max(1, innermost)
            if extent != innermost:
                break
        elif isinstance(extent, int) and extent <= budget and extent <= 8:
            factors[position] = extent
            budget //= extent
        else:
            break
    return factors


def _reduce_loops(
    loops: list[tuple[LoopVar, int]],
    guards: list[Condition],
    corner: Point,
    at: Point,
    step: Callable[[Point], list[Stmt]],
    names: Names,
) -> list[Stmt]:
    """Reduction loops with every guard tested as soon as its variables are known."""
    waiting = {v.name for v, _ in loops}
    ready = [c for c in guards if not symbols(c.left) & waiting]
    later = [c for c in guards if symbols(c.left) & waiting]
    if not loops:
        body = step(at)
    else:
        (variable, unroll), rest = loops[0], loops[1:]

        def below(value: Index) -> list[Stmt]:
            return _reduce_loops(rest, later, corner, {**at, variable.name: value}, step, names)

        body = counted_loop(variable.extent, unroll, names.fresh(variable.name), below)
    if not ready:
        return body
    here = {**corner, **at}
    test = Test(tuple(Condition(substitute(c.left, here), c.comparison, 0) for c in ready))
    return [If(test, tuple(body))]


def counted_loop(
    extent: Index, unroll: int, counter: str, below: Callable[[Index], list[Stmt]]
) -> list[Stmt]:
    """A serial loop over ``0 … extent-1`` unrolled by ``unroll``, with a remainder loop."""
    if extent == 1:
        return below(0)
    if unroll <= 1:
        return [For(counter, 0, extent, tuple(below(Sym(counter))))]
    if extent == unroll:
        return [For(counter, 0, extent, tuple(below(Sym(counter))), kind="unrolled")]
    whole, inner = floordiv(extent, unroll), f"{counter}u"
    main = For(inner, 0, unroll, tuple(below(Sym(counter) * unroll + Sym(inner))), kind="unrolled")
    result: list[Stmt] = [For(counter, 0, whole, (main,))]
    if extent - whole * unroll != 0:
        tail = f"{counter}t"
        result.append(For(tail, whole * unroll, extent, tuple(below(Sym(tail)))))
    return result


def _epilogue(
    plan: Plan,
    names: Names,
    lanes: Lanes | None,
    corners: Sequence[Point],
    registers: Sequence[str],
) -> list[Stmt]:
    anchor = plan.group.anchor
    emitter = PointEmitter(names, lanes)
    for position, corner in enumerate(corners):
        internal: dict[str, Expr] = {}
        for nest in plan.group.nests:
            if nest is anchor:
                value: Expr = Var(registers[position], nest.body.dtype, plan.lanes)
            else:
                value = emitter.emit(nest.body, corner, internal)
                if nest is not plan.group.final:
                    value = emitter.name("v", value)
            internal[nest.output] = value
            if nest.output in plan.group.stored:
                emitter.statements.append(_store(plan, nest, value, corner, lanes))
    return emitter.statements


def _store(
    plan: Plan, nest: Nest, value: Expr, corner: Mapping[str, Index], lanes: Lanes | None
) -> Store:
    offset = substitute(nest.store, corner)
    if lanes is None:
        return Store(nest.output, offset, value)
    base, stride = lanes.split(offset)
    active = lanes.active_for(nest.output)
    active = substitute(active, corner) if active is not None else None
    return Store(nest.output, base, widen(value, plan.lanes), stride, active)
