"""Elementwise epilogues of a stage, renamed to its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import symbols
from modelcc.ir.scalar_tree import substitute_stage
from modelcc.ir.tensor import Stage
from modelcc.passes.tensor.register_axes import on_first_axes, shared_depth
from modelcc.passes.tensor.unify_axes import shared_places, unify_axes


def shared_axes(stages: Sequence[Stage]) -> tuple[Stage, ...] | None:
    """Later stages renamed to the axes of the first one; None if that is impossible.

    A stage must read every earlier stage's result at a permutation of its own axes, each earlier
    axis exactly once; axes of extent 1 may be absent.  Stages with small intermediate arrays share
    the axes before their local ones.
    """
    if len(stages) == 1:
        return tuple(stages)
    depth = shared_depth(stages)
    if depth is not None:
        return on_first_axes(stages, depth)
    done: dict[str, Stage] = {stages[0].output: stages[0]}
    for stage in stages[1:]:
        renamed = renamed_to(stage, done, stages[0])
        if renamed is None:
            return None
        done[stage.output] = renamed
    return tuple(done.values())


def renamed_to(stage: Stage, done: Mapping[str, Stage], first: Stage) -> Stage | None:
    """``stage`` on the axes of ``first``, if it reads ``done`` stages pointwise on these, as in
    :func:`shared_axes`; otherwise None."""
    if stage.reduce or stage.output in done:
        return None
    values = unify_axes(shared_places(stage, done), stage.axes, first.axes)
    if values is None or any(a.extent != 1 for a in stage.axes if a.name not in values):
        return None
    covered = {name for value in values.values() for name in symbols(value)}
    if any(a.extent != 1 for a in first.axes if a.name not in covered):
        return None
    units = {a.name: 0 for a in stage.axes}
    return replace(substitute_stage(stage, {**units, **values}), axes=first.axes)
