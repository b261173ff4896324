"""Elementwise stages that follow a stage point by point, renamed to its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import Index, Sym, substitute, symbols
from modelcc.ir.scalar_tree import reads, substitute_indices
from modelcc.ir.tensor import Stage
from modelcc.passes.tensor.register_axes import on_first_axes, shared_depth


def shared_axes(stages: Sequence[Stage]) -> tuple[Stage, ...] | None:
    """Later stages renamed to the axes of the first one; None if they do not fit.

    A stage fits if it reads every earlier stage's result at a permutation of its own axes, each
    earlier axis exactly once; axes of extent 1 may be absent.  Stages that hand on small arrays
    share axes before their own ones.
    """
    if len(stages) == 1:
        return tuple(stages)
    depth = shared_depth(stages)
    if depth is not None:
        return on_first_axes(stages, depth)
    done: dict[str, Stage] = {stages[0].output: stages[0]}
    for stage in stages[1:]:
        renamed = _rename_to(stage, done, stages[0])
        if renamed is None:
            return None
        done[stage.output] = renamed
    return tuple(done.values())


def _rename_to(stage: Stage, done: Mapping[str, Stage], first: Stage) -> Stage | None:
    if stage.reduce or stage.output in done:
        return None
    values: dict[str, Index] = {}
    for read in reads(stage.body):
        source = done.get(read.tensor)
        if source is None:
            continue
        for index, target in zip(read.indices, source.write, strict=True):
            if not _match_axis(index, target, values, stage, first):
                return None
    extents = {a.name: a.extent for a in first.axes}
    for axis in stage.axes:
        if axis.name not in values:
            if axis.extent != 1:
                return None
            values[axis.name] = 0
    used = [symbols(v) for v in values.values()]
    covered = {name for names in used for name in names}
    if any(e != 1 and n not in covered for n, e in extents.items()):
        return None
    if sum(len(n) for n in used) != len(covered):
        return None
    return replace(
        stage,
        axes=first.axes,
        write=tuple(substitute(i, values) for i in stage.write),
        body=substitute_indices(stage.body, values),
    )


def _match_axis(
    index: Index, target: Index, values: dict[str, Index], stage: Stage, first: Stage
) -> bool:
    """Unify ``index`` (over the stage's axes) with ``target`` (over the first stage's axes)."""
    own = {a.name: a.extent for a in stage.axes}
    theirs = {a.name: a.extent for a in first.axes}
    names = symbols(index)
    if not names:
        units = {n: 0 for n in symbols(target) if theirs.get(n) == 1}
        return substitute(target, units) == index
    if len(names) != 1:
        return False
    name = next(iter(names))
    if index != Sym(name) or name not in own:
        return False
    wanted = symbols(target)
    if len(wanted) == 1 and target == Sym(next(iter(wanted))):
        if own[name] != theirs[next(iter(wanted))]:
            return False
    elif target != 0 or own[name] != 1:
        return False
    return values.setdefault(name, target) == target
