"""Recognising row kernels: stages that iterate over the same rows, some reducing them.

All stages are renamed to one set of outer axes and one set of row axes, so that one may be
inlined into another by substitution of nothing but the read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, symbols
from modelcc.ir.scalar_tree import reads, substitute_stage
from modelcc.ir.tensor import Axis, Stage
from modelcc.passes.tensor.unify_axes import are_distinct, shared_places, unify_axes


@dataclass(frozen=True)
class ReductionDomain:
    """Stages over the axes ``outer`` and, for those that iterate over rows, ``row``."""

    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]
    stages: tuple[Stage, ...]

    def walks_rows(self, stage: Stage) -> bool:
        """Whether the stage defines one element per row position."""
        names = {a.name for a in self.row}
        return not stage.reduce and any(names & symbols(i) for i in stage.write)

    def repeats(self, stage: Stage) -> bool:
        """Whether the stage redefines the same elements for other points of ``outer``.

        Such a stage may be inlined; stored, it would be written many times, and by several
        threads, and could not be in place.
        """
        used = {name for index in stage.write for name in symbols(index)}
        return not {a.name for a in self.outer} <= used


def reduction_domain(stages: Sequence[Stage]) -> ReductionDomain | None:
    """The common rows of ``stages``, or None if they do not share any."""
    first = next((s for s in stages if s.reduce), None)
    if first is None or len({s.output for s in stages}) != len(stages):
        return None
    outer = tuple(a for a in first.axes if a.extent != 1)
    row = tuple(a for a in first.reduce if a.extent != 1)
    naming = _Naming(outer, row)
    done = {first.output: naming.rename(first, {a.name: Sym(a.name) for a in (*outer, *row)})}
    waiting = [s for s in stages if s is not first]
    while waiting:
        progressed = False
        for stage in list(waiting):
            values = naming.unify(stage, done)
            if values is not None:
                done[stage.output] = naming.rename(stage, values)
                waiting.remove(stage)
                progressed = True
        if not progressed:
            return None
    renamed = tuple(done[s.output] for s in stages)
    return ReductionDomain(outer, row, renamed) if _aligned(renamed) else None


@dataclass(frozen=True)
class _Naming:
    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]

    def rename(self, stage: Stage, values: Mapping[str, Index]) -> Stage:
        units = {a.name: 0 for a in (*stage.axes, *stage.reduce) if a.extent == 1}
        renamed = substitute_stage(stage, {**units, **values})
        row_names = {a.name for a in self.row}
        walks = any(row_names & symbols(i) for i in renamed.write)
        return replace(
            renamed,
            axes=(*self.outer, *self.row) if walks else self.outer,
            reduce=self.row if stage.reduce else (),
        )

    def unify(self, stage: Stage, done: Mapping[str, Stage]) -> dict[str, Index] | None:
        """Values of the stage's axes in common names, from its reads or its readers; remaining axes
        are the row, in order."""
        places = list(shared_places(stage, done))
        for reader in done.values():
            places += [(own, at) for at, own in shared_places(reader, {stage.output: stage})]
        own = (*stage.axes, *stage.reduce)
        values = unify_axes(places, own, (*self.outer, *self.row)) if places else None
        if values is None:
            return None
        left = [a for a in own if a.extent != 1 and a.name not in values]
        if left:
            if [a.extent for a in left] != [a.extent for a in self.row]:
                return None
            values |= {a.name: Sym(r.name) for a, r in zip(left, self.row, strict=True)}
        reduced = {n for a in stage.reduce for n in symbols(values.get(a.name, 0))}
        whole = not stage.reduce or reduced == {a.name for a in self.row}
        return values if whole and are_distinct(values.values()) else None


def _aligned(stages: Sequence[Stage]) -> bool:
    """Whether every read of another stage's result is at the indices of its write."""
    written = {s.output: s.write for s in stages}
    return all(
        read.indices == written[read.tensor]
        for stage in stages
        for read in reads(stage.body)
        if read.tensor in written
    )
