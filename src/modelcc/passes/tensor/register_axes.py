"""Stages on shared axes with small intermediate arrays: local axes, whose elements are registers.

    %e[c, t, j, k] = linear[…][k](%x[c, t, 0, j], %x[c, t, 1, j], …)
    %d[c, t, i, l] = linear[…][l](%e[c, t, 0, i], %e[c, t, 1, i], …)

At a point ``c, t`` few elements of ``%e`` and ``%d`` are used: ``i`` to ``l`` are local axes.  They
begin where one selects a row of a matrix, or where reads of intermediates move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import reads, substitute_stage, walk
from modelcc.ir.tensor import Axis, Linear, Read, Stage

MOST_POINTS = 256
"""Elements of an array that is unrolled."""


def shared_depth(stages: Sequence[Stage]) -> int | None:
    """The number of leading axes that ``stages`` share, followed by local ones; None if they have
    no local axes."""
    depths = [d for stage in stages if (d := _first_chosen(stage)) is not None]
    if not depths:
        return None
    made: set[str] = set()
    for stage in stages:
        across = (_first_moved(r, stage) for r in reads(stage.body) if r.tensor in made)
        depths += across
        made.add(stage.output)
    depth = min(depths)
    return depth if all(_is_small(stage, depth) for stage in stages) else None


def _first_chosen(stage: Stage) -> int | None:
    """The position of the first axis that selects a row."""
    rows = [symbols(s.row) for s in walk(stage.body) if isinstance(s, Linear)]
    named = frozenset[str]().union(*rows)
    return next((n for n, a in enumerate(stage.axes) if a.name in named), None)


def _first_moved(read: Read, stage: Stage) -> int:
    """The first dimension in which ``read`` is not at the stage's axis."""
    pairs = zip(read.indices, stage.axes, strict=False)
    same = (isinstance(index, Sym) and index.name == axis.name for index, axis in pairs)
    return next((n for n, one in enumerate(same) if not one), len(read.indices))


def _is_small(stage: Stage, depth: int) -> bool:
    extents = [a.extent for a in stage.axes[depth:]]
    few = prod(e for e in extents if isinstance(e, int)) <= MOST_POINTS
    return not stage.reduce and few and all(isinstance(e, int) for e in extents)


def on_first_axes(stages: Sequence[Stage], depth: int) -> tuple[Stage, ...] | None:
    """``stages`` on the first one's ``depth`` axes; None if intermediates are of other points.

    Local axes are also renamed to those of the first stage, whatever their extents.
    """
    first = stages[0]
    done: dict[str, Stage] = {}
    for stage in stages:
        extents = [a.extent for a in stage.axes[:depth]]
        if stage.output in done or extents != [a.extent for a in first.axes[:depth]]:
            return None
        renamed = with_axes(stage, (*first.axes[:depth], *own_axes(stage, first, depth)))
        places = tuple(Sym(a.name) for a in first.axes[:depth])
        handed_on = (r for r in reads(renamed.body) if r.tensor in done)
        if any(r.indices[:depth] != places for r in handed_on):
            return None
        done[stage.output] = renamed
    made = (s for s in done.values() if any(s.output in _tensors(t) for t in done.values()))
    if any(s.write != tuple(Sym(a.name) for a in s.axes) for s in made):
        return None
    return tuple(done.values())


def _tensors(stage: Stage) -> set[str]:
    return {r.tensor for r in reads(stage.body)}


def own_axes(stage: Stage, first: Stage, depth: int) -> tuple[Axis, ...]:
    """The local axes of ``stage``, renamed to those of ``first`` as far as it has any."""
    names = [a.name for a in first.axes[depth:]]
    own = stage.axes[depth:]
    return tuple(replace(a, name=n) for a, n in zip(own, names, strict=False)) + own[len(names) :]


def with_axes(stage: Stage, axes: tuple[Axis, ...]) -> Stage:
    """``stage`` over ``axes``, one for each of its own."""
    pairs = zip(stage.axes, axes, strict=True)
    values: Mapping[str, Index] = {a.name: Sym(b.name) for a, b in pairs if a.name != b.name}
    return replace(substitute_stage(stage, values), axes=axes)
