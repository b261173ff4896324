"""What of a kernel is scheduled by itself: its groups, or its unrelated parts."""

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
    loops; ``stored`` are written to memory, and constants that are ``packable`` have the order
    that this piece gives them."""

    stages: tuple[Stage, ...]
    stored: frozenset[str]
    types: Mapping[str, TensorType]
    dims: Bounds
    packable: frozenset[str]
    outer: tuple[Axis, ...] = ()

    def with_choices(self) -> Piece:
        """Without guards that vectors do not need."""
        return replace(self, stages=with_choices(self.stages, self.types, self.dims))

    def on_shared_axes(self) -> Piece | None:
        """With all stages over the same axes; None if these differ."""
        shared = shared_axes(self.stages)
        return None if shared is None else replace(self, stages=shared)

    def plan(self, machine: CpuModel, wanted: Tiled | None) -> tuple[Plan, Mapping[str, Layout]]:
        """Its tiles, as ``wanted`` or else as it seems best; the stages share their axes."""
        places = self.stored, self.types, self.dims, self.packable
        return plan_stages(self.stages, *places, machine, self.outer, wanted)

    def tilings(self, machine: CpuModel) -> Iterator[Tiled]:
        """Ways to tile it, the most promising first; the stages share their axes."""
        places = self.stored, self.types, self.dims, self.packable
        return tilings(self.stages, *places, machine)


def groups_of(kernel: CanonicalKernel, grouped: GroupedStages) -> tuple[Piece, ...]:
    """The groups of ``grouped``, which is that of the kernel."""
    types = {**dict(kernel.types), **grouped.scratch}
    dims: Bounds = {**dict(kernel.dims), **grouped.ranges}
    stored = frozenset((*kernel.outputs, *grouped.scratch))
    return _pieces(
        kernel, grouped.groups, Piece((), stored, types, dims, frozenset(), grouped.outer)
    )


def parts_of(kernel: CanonicalKernel) -> tuple[Piece, ...]:
    """Stages in runs that share an iteration space; unrelated parts (concatenation) apart."""
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
    """Each with what it may pack: constants that one piece reads, in one way."""
    found = [{r for s in stages for r in reads(s.body)} for stages in runs]
    times = Counter(r.tensor for distinct in found for r in distinct)
    once = frozenset(name for name in kernel.constants if times[name] == 1)
    return tuple(
        replace(common, stages=tuple(stages), packable=once & {r.tensor for r in own})
        for stages, own in zip(runs, found, strict=True)
    )
