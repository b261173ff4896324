"""Overlapping windows by strips: a thread computes several results whose windows share elements,
and loads each of these once.

grid g; thread t
  results[i] = neutral, of a strip of neighbouring results
  for the other terms of the windows
    elements[j] = what the strip's windows read in this line; weights[k] of the line
    results[i] += elements[i + k] * weights[k]
  the epilogue, for each result of the strip

Neighbouring threads load neighbouring vectors, and a group has several lines, so that the elements
that their windows share are in a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.index import Index, Sym, ceildiv, coefficient, divides, floordiv, loop_range
from modelcc.ir.loop import For, Function, ScalarCall, Var
from modelcc.ir.scalar_tree import depends_on, substitute_indices, transform
from modelcc.ir.tensor import Apply, Condition, Guard, Number, Read, Scalar
from modelcc.schedule.expression import accumulate, vectorisable
from modelcc.schedule.group_schedule import GroupWindows
from modelcc.schedule.lanes import Lanes, widen
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.structure import Group
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    extent_of,
    not_implied,
    only_where,
)
from modelcc.targets.gpu.windows.windows import Windows, find_windows


def _blocks(extent: Index, size: Index) -> Index:
    """The number of blocks; a named extent that is one block may be 0, and no divisor."""
    return 1 if extent == size else ceildiv(extent, size)


def takes_vectors(group: Group, side: LoopVar, lanes: int) -> bool:
    """Whether vectors of ``lanes`` along ``side`` can be computed, and are contiguous."""
    if lanes == 1:
        return True
    if not divides(lanes, side.extent, {}):
        return False
    made = {nest.output for nest in group.nests}
    stored = (nest for nest in group.nests if nest.output in group.stored)
    whole = (vectorisable(n.body, side.name, lanes, made, aligned=True) for n in group.nests)
    return all(whole) and all(coefficient(nest.store, side.name) == 1 for nest in stored)


def lower_windows(kernel: GroupKernel, schedule: GroupWindows) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it does not begin with overlapping
    windows, or vectors are not whole."""
    anchor, s = kernel.group.anchor, schedule
    found = None if anchor is None else find_windows(anchor)
    if anchor is None or found is None or len(kernel.group.anchors) > 1:
        raise ScheduleError("strips are for windows that overlap")
    if min(s.threads, s.points, s.lines) < 1 or s.columns < 0 or s.lanes not in (1, 2, 4, 8):
        raise ScheduleError("strips have points, lines, columns, and vectors of up to eight")
    if not takes_vectors(kernel.group, found.side, s.lanes):
        raise ScheduleError("neighbours are no whole vectors side by side: lanes")
    if s.columns and not divides(s.columns * s.lanes, found.side.extent, {}):
        raise ScheduleError("neighbours are no whole blocks: columns")
    return _Strips(kernel, s, anchor, found).function()


class _Strips:
    def __init__(
        self, kernel: GroupKernel, schedule: GroupWindows, anchor: Nest, found: Windows
    ) -> None:
        self._kernel, self._schedule = kernel, schedule
        self._anchor, self._found = anchor, found
        self._strip, self._term = found.strip.result, found.strip.term
        self._ragged = not divides(schedule.points, self._strip.extent, {})
        lanes, last = schedule.lanes, self._strip.extent - 1
        starts = floordiv(last, schedule.points) * schedule.points
        reach = {self._strip.name: loop_range(starts + 1)}
        self._ranges = {**anchor.ranges, **kernel.dims, **reach}
        self._lanes = Lanes(kernel.names.fresh("l"), lanes) if lanes > 1 else None

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        kernel, s, beside = self._kernel, self._schedule, self._found.beside
        g, t = kernel.names.fresh("g"), kernel.names.fresh("t")
        outer, own = Evaluation(kernel.names), Evaluation(kernel.names, lanes=self._lanes)
        position = Sym(g) * s.threads + Sym(t)
        total, point = self._placed(outer, position)
        sums = self._sums(own, point)
        self._finish(own, point, sums)
        inside = () if beside is None else (self._within(point, beside, s.lines, 0),)
        outer.statements += only_where([c for c in inside if c is not None], own.statements)
        launch = Launching(((g, ceildiv(total, s.threads)),), ((t, s.threads),), kernel.dims)
        body = launch.guarded((Condition(position, "<", total),), outer.statements)
        return kernel.function(launch.around((), body))

    def _placed(self, outer: Evaluation, position: Index) -> tuple[Index, dict[str, Index]]:
        """The number of threads, and the first result of the one at ``position``."""
        s, found, fresh = self._schedule, self._found, self._kernel.names.fresh
        vectors = floordiv(found.side.extent, s.lanes)
        cut: list[tuple[LoopVar, Index, Index]] = [(self._strip, s.points, 1)]
        if found.beside is not None and s.lines > 1:
            cut.insert(0, (found.beside, s.lines, s.lines))
        cut.append((found.side, s.columns or vectors, s.columns or vectors))
        extents = {found.side.name: vectors}
        names = [v.name for v, _, _ in cut]
        rest = [v for v in self._anchor.parallel if v.name not in names]
        blocks = [
            LoopVar(fresh("b"), _blocks(extents.get(v.name, v.extent), size), v.axis)
            for v, size, _ in cut
        ]
        within = [LoopVar(fresh("i"), count, v.axis) for v, _, count in cut]
        order = (*rest, *blocks, *within)
        at = outer.place(order, position)
        for (v, size, _), block, inner in zip(cut, blocks, within, strict=True):
            at[v.name] = outer.bind(v.name, at[block.name] * size + at[inner.name])
        if self._lanes is not None:
            at[found.side.name] = at[found.side.name] * s.lanes + Sym(self._lanes.variable)
        return extent_of(order), at

    def _within(
        self, point: dict[str, Index], v: LoopVar, size: int, further: int
    ) -> Condition | None:
        """The condition that the result ``further`` along ``v`` exists; None if it always does,
        with blocks of ``size``."""
        if divides(size, v.extent, {}):
            return None
        return Condition(v.extent - 1 - point[v.name] - further, ">=", 0)

    def _sums(self, own: Evaluation, point: dict[str, Index]) -> list[Var]:
        """Registers of the reduced terms, computed in ``own``."""
        s, nest = self._schedule, self._anchor
        zero = widen(own.neutral(nest), s.lanes)
        sums = [own.register("sum", zero) for _ in range(s.points)]
        inner = own.nested(self._lanes)
        self._line(inner, point, sums)
        body = tuple(inner.statements)
        for v in reversed([v for v in nest.reduce if v != self._term]):
            body = (For(v.name, 0, v.extent, body),)
        own.statements += body
        return sums

    def _line(self, inner: Evaluation, point: dict[str, Index], sums: Sequence[Var]) -> None:
        """All terms of a line, whose elements and weights are loaded first."""
        assert self._anchor.combine is not None
        body, lanes = self._anchor.body, self._schedule.lanes
        factors = _factors(body)
        used: dict[Scalar, int] = {}
        terms: list[tuple[int, list[Scalar]]] = []
        for k in range(self._found.size):
            for i in range(len(sums)):
                moved = [self._moved(factor, i, k) for factor in factors]
                terms.append((i, moved))
                used |= {m: min(i, used.get(m, i)) for m in moved}
        values = {
            m: inner.named("e", inner.value(self._existing(m, i), point)) for m, i in used.items()
        }
        for i, moved in terms:
            first, *others = [widen(values[m], lanes) for m in moved]
            product = ScalarCall("mul", (first, *others), body.dtype, lanes)
            value = product if others else first
            inner.statements.append(accumulate(self._anchor.combine, sums[i].name, value, lanes))

    def _moved(self, factor: Scalar, i: int, k: int) -> Scalar:
        """The factor for term ``k`` of result ``i``, as an expression at result 0."""
        strip = self._strip.name
        return substitute_indices(factor, {strip: Sym(strip) + i, self._term.name: k})

    def _existing(self, value: Scalar, i: int) -> Scalar:
        """``value``, read under the condition that result ``i`` exists, the first one that uses it;
        without conditions that hold for all strips."""
        left = self._strip.extent - 1 - Sym(self._strip.name) - i
        moves = self._ragged and i > 0 and depends_on(value, self._strip.name)
        there = (Condition(left, ">=", 0),) if moves else ()

        def visit(node: Scalar) -> Scalar:
            match node:
                case Read() if there:
                    return Guard(there, node, Number(0, node.dtype), node.dtype)
                case Guard(conditions, inside):
                    if there and isinstance(inside, Guard) and inside.conditions == there:
                        inside = inside.inside
                    known = not_implied((*conditions, *there), self._ranges)
                    return replace(node, conditions=known, inside=inside) if known else inside
                case _:
                    return node

        return transform(value, visit)

    def _finish(self, own: Evaluation, point: dict[str, Index], sums: Sequence[Var]) -> None:
        """The epilogue of each result that exists."""
        strip = self._strip
        for i, total in enumerate(sums):
            there = self._within(point, strip, self._schedule.points, i)
            cell = own if there is None else own.nested(self._lanes)
            here = {**point, strip.name: point[strip.name] + i}
            cell.finish(self._kernel.group, here, (total,))
            if there is not None:
                own.statements += only_where((there,), cell.statements)


def _factors(body: Scalar) -> tuple[Scalar, ...]:
    """Both factors of a product, or ``body`` itself."""
    match body:
        case Apply("mul", args):
            return args
        case _:
            return (body,)
