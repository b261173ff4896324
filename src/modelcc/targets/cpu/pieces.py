"""The parts of a kernel that are scheduled independently: its groups, or its unrelated parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Axis, Stage
from modelcc.ir.types import Layout, TensorType
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.choices import with_choices
from modelcc.schedule.compute_at import GroupedStages
from modelcc.schedule.schedule import Tiled
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.plan import Plan, plan_stages, tilings


@dataclass(frozen=True)
class Piece:
    """Stages that run together, with the types of tensors and the bounds of sizes and of ``outer``
    loops; ``stored`` are written to memory, and ``packable`` constants get the layout that this
    piece chooses."""

    stages: tuple[Stage, ...]
    stored: frozenset[str]
    types: Mapping[str, TensorType]
    dims: Bounds
    packable: frozenset[str]
    outer: tuple[Axis, ...] = ()

    def with_choices(self) -> Piece:
        """With guards replaced by selects where vectors allow it."""
        return replace(self, stages=with_choices(self.stages, self.types, self.dims))

    def on_shared_axes(self) -> Piece | None:
        """With all stages over the same axes; None if these differ."""
        shared = shared_axes(self.stages)
        return None if shared is None else replace(self, stages=shared)

    def plan(self, machine: CpuModel, wanted: Tiled | None) -> tuple[Plan, Mapping[str, Layout]]:
        """Its tiled plan, as ``wanted`` or else by default; the stages share their axes."""
        places = self.stored, self.types, self.dims, self.packable
        return plan_stages(self.stages, *places, machine, self.outer, wanted)

    def tilings(self, machine: CpuModel) -> Iterator[Tiled]:
        """Tilings, the most promising first; the stages share their axes."""
        places = self.stored, self.types, self.dims, self.packable
        return tilings(self.stages, *places, machine)


def groups_of(kernel: CanonicalKernel, grouped: GroupedStages) -> tuple[Piece, ...]:
    """The pieces of ``grouped``, the groups of ``kernel``."""
    types = {**dict(kernel.types), **grouped.scratch}
    dims: Bounds = {**dict(kernel.dims), **grouped.ranges}
    stored = frozenset((*kernel.outputs, *grouped.scratch))
    return _pieces(
        kernel, grouped.groups, Piece((), stored, types, dims, frozenset(), grouped.outer)
    )


def parts_of(kernel: CanonicalKernel) -> tuple[Piece, ...]:
    """Stages in runs that share an iteration space; unrelated parts (concatenation) separately."""
    runs: list[list[Stage]] = []
    for stage in kernel.stages:
        names = {r.tensor for r in reads(stage.body)}
        home = next((r for r in runs if names & {s.output for s in r}), None)
        if home is None:
            runs.append([stage])
        else:
            home.append(stage)
    stored, dims = frozenset(kernel.outputs), dict(kernel.dims)
    return _pieces(kernel, runs, Piece((), stored, dict(kernel.types), dims, frozenset()))


def _pieces(
    kernel: CanonicalKernel, runs: Sequence[Sequence[Stage]], common: Piece
) -> tuple[Piece, ...]:
    """Pieces with their packable constants: those that one piece reads, in one way."""
    found = [{r for s in stages for r in reads(s.body)} for stages in runs]
    times = Counter(r.tensor for distinct in found for r in distinct)
    once = frozenset(name for name in kernel.constants if times[name] == 1)
    return tuple(
        replace(common, stages=tuple(stages), packable=once & {r.tensor for r in own})
        for stages, own in zip(runs, found, strict=True)
    )
