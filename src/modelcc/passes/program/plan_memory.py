"""Plans the locations of all tensors: one arena, the caller's inputs and outputs, constants.

    conv writes %h, relu reads %h and writes %y (a graph output), in place

becomes: %h and %y are the caller's output buffer; the arena is empty.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from modelcc.ir.index import Index, evaluate, symbols
from modelcc.ir.memory_rules import ALIGNMENT, DEFAULT_RULES, MemoryRules
from modelcc.ir.program import Definition, Program
from modelcc.passes.program.block import LiveBlock, Offsets, height, lower_bound, shared_bound
from modelcc.passes.program.carried import share_carried, slid_states
from modelcc.passes.program.dynamic_allocation import (
    DynamicAllocation,
    aligned,
    bounded,
    dynamic_allocations,
)
from modelcc.passes.program.nominal import sample_values
from modelcc.passes.program.overlap import overlaps
from modelcc.passes.program.placement import placements
from modelcc.passes.program.stacking import Stacking, stacked_offsets, stacking, symbolic_offsets
from modelcc.passes.program.states import replaced_by, share_states, updated_states
from modelcc.passes.program.storage import Storage, share_in_place, storage_of, storages
from modelcc.passes.program.timeline import timeline


@dataclass(frozen=True)
class MemoryPlan:
    """Locations of all tensors of a program.

    ``offsets`` are bytes from the start of the arena, by storage name; ``arena`` is its size.
    Both are in terms of dimensions and ``definitions``.  ``nominal`` are the dimension values
    of ``peak`` and ``lower_bound`` (the maximum of the sizes live at once).  ``dynamic`` are
    allocations while the program runs.  ``states`` are outputs updated in place, with their inputs.
    ``room`` has offsets of inputs and outputs that may be in the arena; results of the functions
    ``sharing`` may overlap operands; ``overlaps`` are storages that loops fill, with those that
    they read meanwhile.
    """

    storages: tuple[Storage, ...]
    offsets: Mapping[str, Index]
    arena: Index
    definitions: tuple[Definition, ...]
    nominal: Mapping[str, int]
    peak: int
    lower_bound: int
    dynamic: tuple[DynamicAllocation, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict[str, str])
    alignment: int = ALIGNMENT
    room: Mapping[str, int] = field(default_factory=dict[str, int])
    sharing: frozenset[str] = frozenset()
    overlaps: tuple[tuple[str, str], ...] = ()

    @cached_property
    def segment(self) -> Mapping[str, str]:
        """Storage name to its segment, for those that are not in the arena proper."""
        return {name: part.name for part in self.dynamic for name in part.storages}

    @cached_property
    def home(self) -> Mapping[str, Storage]:
        """Tensor name to its storage."""
        return {name: storage for storage in self.storages for name in storage.tensors}

    def buffer(self, tensor: str) -> str:
        """A key of the memory of a tensor: a state's output shares that of its input."""
        storage = self.home[tensor]
        name = storage.name
        return self.states.get(name, name) if storage.place == "input" else name

    def offset(self, tensor: str) -> Index:
        """Bytes from the start of the arena (elsewhere: of its buffer) to a tensor."""
        storage = self.home[tensor]
        return self.offsets.get(storage.name, 0) + storage.within.get(tensor, 0)


def plan_memory(program: Program, rules: MemoryRules = DEFAULT_RULES) -> MemoryPlan:
    """The memory plan of a program for its current order of steps."""
    slid = slid_states(program, timeline(program)) if rules.overlap else {}
    shared, dynamic, arena = _storages(program, slid, rules.alignment)
    guests = _guests(program, shared) if rules.room else []
    arena = [*arena, *guests]
    sizes = [aligned(storage.size, rules.alignment) for storage in arena]
    if rules.overlap and all(isinstance(size, int) for size in sizes) and not dynamic:
        plan = _overlapping(program, rules, shared, arena, guests)
        return replace(plan, sharing=plan.sharing | {*slid.values()})
    samples = sample_values(sizes, program.dims)
    layers = [_blocks(arena, sizes, sample) for sample in samples]
    stack = _best_stacking(layers)
    taken = {name for t in program.types.values() for d in t.shape for name in symbols(d)}
    symbolic = symbolic_offsets(stack, sizes, program.dims, taken | set(program.dims))
    offsets = {s.name: o for s, o in zip(arena, symbolic.offsets, strict=True)}
    room = {s.name: o for s in guests if isinstance(o := offsets.pop(s.name), int)}
    return MemoryPlan(
        storages=shared,
        offsets={**offsets, **{name: o for part in dynamic for name, o in part.offsets.items()}},
        arena=symbolic.height,
        definitions=symbolic.definitions,
        nominal=samples[0],
        peak=_peak(stack, layers[0]),
        lower_bound=lower_bound(layers[0]),
        dynamic=dynamic,
        states=updated_states(program, storage_of(shared)),
        alignment=rules.alignment,
        room=room,
        sharing=frozenset(slid.values()),
    )


def _overlapping(
    program: Program,
    rules: MemoryRules,
    shared: tuple[Storage, ...],
    arena: Sequence[Storage],
    guests: Sequence[Storage],
) -> MemoryPlan:
    """The plan of a program of constant sizes, with results that overlap operands."""
    found = overlaps(program, timeline(program), arena)
    sizes = [aligned(storage.size, rules.alignment) for storage in arena]
    blocks = _blocks(arena, sizes, {})
    number = {storage.name: i for i, storage in enumerate(arena)}
    leads: dict[tuple[int, int], tuple[int, int]] = {}
    for one in found:
        pair = result, operand = number[one.result], number[one.operand]
        before, behind = (
            evaluate(aligned(n, rules.alignment), {}) for n in (one.lead.before, one.lead.behind)
        )
        known = leads.get(pair, (0, 0))
        leads[pair] = (
            min(max(known[0], before), blocks[result].size),
            min(max(known[1], behind), blocks[operand].size),
        )
    best = min(placements(blocks, leads), key=lambda offsets: height(blocks, offsets))
    at: dict[str, Index] = {s.name: o for s, o in zip(arena, best, strict=True)}
    room = {s.name: o for s in guests if isinstance(o := at.pop(s.name), int)}
    return MemoryPlan(
        storages=shared,
        offsets=at,
        arena=height(blocks, best),
        definitions=(),
        nominal={},
        peak=height(blocks, best),
        lower_bound=shared_bound(blocks, leads),
        states=updated_states(program, storage_of(shared)),
        alignment=rules.alignment,
        room=room,
        sharing=frozenset(name for one in found for name in one.callees),
        overlaps=tuple((one.result, one.operand) for one in found if one.in_loop),
    )


def _guests(program: Program, found: Sequence[Storage]) -> list[Storage]:
    """Inputs and outputs that may be in the arena: no states, which live longer."""
    kept = {*program.states, *program.states.values()}
    sized = (s for s in found if isinstance(s.size, int) and s.name not in kept)
    return [s for s in sized if s.place in ("input", "output")]


def most_live(program: Program) -> int:
    """The maximum of bytes live at once in the arena, at typical sizes: a lower bound of plans."""
    arena = _storages(program)[2]
    sizes = [aligned(storage.size) for storage in arena]
    return lower_bound(_blocks(arena, sizes, sample_values(sizes, program.dims)[0]))


def _storages(
    program: Program, slid: Container[str] = (), alignment: int = ALIGNMENT
) -> tuple[tuple[Storage, ...], tuple[DynamicAllocation, ...], list[Storage]]:
    """All storages, run-time allocations, and the storages of the arena."""
    line = timeline(program)
    apart = share_carried(line, storages(program, line), slid, alignment)
    replaced = replaced_by(program, line, apart)
    whole = share_in_place(line, apart, replaced)
    dynamic = dynamic_allocations(program, whole, line, alignment)
    shared = share_states(program, line, whole, dynamic)
    asked = {name for part in dynamic for name in part.storages}
    known = bounded(program, shared, line)
    return shared, dynamic, [s for s in known if s.place == "arena" and s.name not in asked]


def _blocks(
    arena: Sequence[Storage], sizes: Sequence[Index], values: Mapping[str, int]
) -> list[LiveBlock]:
    return [
        LiveBlock(storage.first, storage.last, evaluate(size, values))
        for storage, size in zip(arena, sizes, strict=True)
    ]


def _best_stacking(layers: Sequence[Sequence[LiveBlock]]) -> Stacking:
    """The stacking whose peak exceeds the lower bound least, in the worst of the samples."""
    bounds = [max(1, lower_bound(blocks)) for blocks in layers]
    best, best_excess = Stacking((), ()), float("inf")
    for offsets, blocks in _distinct_placements(layers):
        stack = stacking(offsets, blocks)
        excess = max(_peak(stack, b) / low for b, low in zip(layers, bounds, strict=True))
        if excess < best_excess:
            best, best_excess = stack, excess
        if best_excess <= 1:
            break
    return best


def _distinct_placements(
    layers: Sequence[Sequence[LiveBlock]],
) -> Iterator[tuple[Offsets, Sequence[LiveBlock]]]:
    for blocks in layers:
        seen: set[Offsets] = set()
        for offsets in placements(blocks):
            if offsets not in seen:
                seen.add(offsets)
                yield offsets, blocks


def _peak(stack: Stacking, blocks: Sequence[LiveBlock]) -> int:
    return height(blocks, stacked_offsets(stack, [block.size for block in blocks]))
