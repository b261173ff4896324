"""Recognising row kernels: stages that walk the same rows, some reducing them.

All stages are renamed to one set of outer axes and one set of row axes, so that one may be
inlined into another by substitution of nothing but the read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index, Sym, substitute, symbols
from modelcc.ir.scalar_tree import reads, substitute_indices
from modelcc.ir.tensor import Axis, Stage


@dataclass(frozen=True)
class ReductionDomain:
    """Stages over the axes ``outer`` and, for those that walk rows, ``row``."""

    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]
    stages: tuple[Stage, ...]

    def walks_rows(self, stage: Stage) -> bool:
        """Whether the stage defines one element per row position."""
        names = {a.name for a in self.row}
        return not stage.reduce and any(names & symbols(i) for i in stage.write)

    def repeats(self, stage: Stage) -> bool:
        """Whether the stage defines the same elements again for other points of ``outer``.

        Such a stage may be inlined; stored, it would be written many times, and by several
        threads, and could not take the place of what it reads.
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
    naming = _Naming(outer, row, {a.name: 0 for a in first.axes if a.extent == 1})
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
    unit: Mapping[str, Index]

    def rename(self, stage: Stage, values: Mapping[str, Index]) -> Stage:
        full = {**{a.name: 0 for a in (*stage.axes, *stage.reduce) if a.extent == 1}, **values}
        row_names = {a.name for a in self.row}
        walks = any(row_names & symbols(substitute(i, full)) for i in stage.write)
        return replace(
            stage,
            axes=(*self.outer, *self.row) if walks else self.outer,
            write=tuple(substitute(i, full) for i in stage.write),
            body=substitute_indices(stage.body, full),
            reduce=self.row if stage.reduce else (),
        )

    def unify(self, stage: Stage, done: Mapping[str, Stage]) -> dict[str, Index] | None:
        """Values of the stage's axes in common names, from what it reads or who reads it."""
        values: dict[str, Index] = {}
        own_axes = frozenset(a.name for a in (*stage.axes, *stage.reduce))
        known = {a.name: a.extent for a in (*self.outer, *self.row)}
        touched = False
        for read in reads(stage.body):
            if read.tensor in done:
                touched = True
                pairs = zip(read.indices, done[read.tensor].write, strict=True)
                if not all(_bind(own, named, values, own_axes) for own, named in pairs):
                    return None
        for reader in done.values():
            for read in reads(reader.body):
                if read.tensor == stage.output:
                    touched = True
                    pairs = zip(stage.write, read.indices, strict=True)
                    if not all(_bind(own, named, values, own_axes) for own, named in pairs):
                        return None
        return self._complete(stage, values, known) if touched else None

    def _complete(
        self, stage: Stage, values: dict[str, Index], known: Mapping[str, Index]
    ) -> dict[str, Index] | None:
        """Assign what is left: reduction axes and unmatched axes are the row, in order."""
        left = [a for a in (*stage.axes, *stage.reduce) if a.extent != 1 and a.name not in values]
        if left:
            if [a.extent for a in left] != [a.extent for a in self.row]:
                return None
            values |= {a.name: Sym(r.name) for a, r in zip(left, self.row, strict=True)}
        taken: set[str] = set()
        for axis in (*stage.axes, *stage.reduce):
            target = values.get(axis.name)
            if target is None:
                continue
            if axis.extent == 1:
                if symbols(target):
                    return None  # one element of a row is no row
                continue
            names = symbols(target)
            if len(names) != 1 or known.get(next(iter(names))) != axis.extent or names & taken:
                return None
            taken |= names
        rows = {a.name for a in self.row}
        if stage.reduce:
            reduced = {n for a in stage.reduce for n in symbols(values.get(a.name, 0))}
            if reduced != rows:
                return None
        return values


def _bind(own: Index, named: Index, values: dict[str, Index], axes: frozenset[str]) -> bool:
    """Unify an index over a stage's own axes with one in common names."""
    names = symbols(own)
    if not names:
        return own == named or not symbols(named)
    name = next(iter(names))
    return own == Sym(name) and name in axes and values.setdefault(name, named) == named


def _aligned(stages: Sequence[Stage]) -> bool:
    """Every read of another stage's result is at the very index it is written at."""
    written = {s.output: s.write for s in stages}
    return all(
        read.indices == written[read.tensor]
        for stage in stages
        for read in reads(stage.body)
        if read.tensor in written
    )
