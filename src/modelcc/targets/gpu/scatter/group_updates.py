"""The loops of updates at destinations from memory: those along which no two updates collide, and
those along which they may, which stay in the model's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from modelcc.ir.index import Index, coefficient, symbols
from modelcc.ir.scalar_tree import index_symbols, outer_binds
from modelcc.ir.tensor import Apply, Bind, Read, Scalar, Stage
from modelcc.ir.types import TensorType
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.expression import combine_function
from modelcc.schedule.nest import LoopVar, Nest, linearise, merge_loops


@dataclass(frozen=True)
class GroupUpdates:
    """Updates of a nest: no two along the loops ``apart`` collide; those along ``meeting`` stay in
    their order.  ``where`` is a number less than ``room`` that colliding updates have in common.
    An ``update`` is stored, or combined with the element by ``function``."""

    nest: Nest
    apart: tuple[LoopVar, ...]
    meeting: tuple[LoopVar, ...]
    where: Index
    room: Index
    places: tuple[Bind, ...]
    update: Scalar
    function: str | None

    @property
    def value(self) -> Scalar:
        """The stored value."""
        return self.combined(self.nest.store, self.update)

    def combined(self, offset: Index, update: Scalar) -> Scalar:
        """The new value of the element at an offset."""
        if self.function is None:
            return update
        there = Read(self.nest.output, (offset,), update.dtype)
        return Apply(self.function, (there, update), update.dtype)

    @cached_property
    def lists(self) -> tuple[LoopVar, ...]:
        """Loops ``apart`` on which destinations depend: each point has its own updates."""
        named = {name for bind in self.places for name in index_symbols(bind.value)}
        return tuple(v for v in self.apart if v.name in named | symbols(self.where))

    @property
    def columns(self) -> tuple[LoopVar, ...]:
        """The other loops ``apart``, along which an update has one destination index."""
        return tuple(v for v in self.apart if v not in self.lists)

    def is_beside(self, variable: LoopVar) -> bool:
        """Whether neighbours along ``variable`` are contiguous."""
        return coefficient(self.nest.store, variable.name) == 1


def find_updates(kernel: CanonicalKernel) -> GroupUpdates:
    """The loops of a scatter's stage."""
    (stage,), types = kernel.stages, dict(kernel.types)
    apart = axes_apart(stage)
    where, room = _numbered(stage, types[stage.output], apart)
    nest = linearise(stage, types, dict(kernel.dims), frozenset(), {})
    beside = tuple(v for v in nest.parallel if v.name in apart or v.extent == 1)
    meeting = tuple(nest.var(a.name) for a in stage.axes if a.name not in apart and a.extent != 1)
    nest = replace(nest, parallel=(*beside, *meeting))
    for kept in (meeting, beside):
        (nest,) = merge_loops((nest,), frozenset(v.name for v in kept) | symbols(where))
    places, update = outer_binds(nest.body)
    function = None if stage.combine is None else combine_function(stage.combine, update.dtype)
    met = {v.name for v in meeting}
    beside = tuple(v for v in nest.parallel if v.name not in met)
    meeting = tuple(v for v in nest.parallel if v.name in met)
    return GroupUpdates(nest, beside, meeting, where, room, places, update, function)


def _numbered(stage: Stage, type_: TensorType, apart: Mapping[str, int]) -> tuple[Index, Index]:
    """The linear index of a destination along dimensions that are no axis ``apart``; its extent."""
    where: Index = 0
    room: Index = 1
    for dimension, index in enumerate(stage.write):
        if dimension not in apart.values():
            extent = type_.shape[dimension]
            where, room = where * extent + index, room * extent
    return where, room


def axes_apart(stage: Stage) -> dict[str, int]:
    """Axes along which no two points collide, with the dimension that shows it: points with the
    same index there, which agree on the axes found before, agree on this one."""
    binds, _ = outer_binds(stage.body)
    found: dict[str, int] = {}
    free = [a.name for a in stage.axes if a.extent != 1]

    def is_known(name: str) -> bool:
        return all(n in found or n not in free for n in _hangs_on(name, binds))

    for _ in free:
        for dimension, index in enumerate(stage.write):
            unknown = [n for n in symbols(index) if not is_known(n)]
            if len(unknown) != 1 or unknown[0] not in free or dimension in found.values():
                continue
            step = coefficient(index, unknown[0])
            if isinstance(step, int) and step:
                found[unknown[0]] = dimension
    return found


def _hangs_on(symbol: str, binds: Sequence[Bind]) -> frozenset[str]:
    """The axes that a bound index depends on; the symbol itself, if it is no bound index."""
    bind = next((b for b in binds if b.symbol == symbol), None)
    if bind is None:
        return frozenset((symbol,))
    return frozenset(n for s in index_symbols(bind.value) for n in _hangs_on(s, binds))
