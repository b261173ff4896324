"""From kernels to loop functions: choose a schedule by structure, emit, pack constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from modelcc.ir.graph import Constant
from modelcc.ir.index import Bounds, Index, Sym, coefficient, product, substitute
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.loop import Function, Stmt
from modelcc.ir.op import ModelError
from modelcc.ir.packed_constant import PackedConstant
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.scalar_tree import depends_on, reads
from modelcc.ir.scheduled import KernelCall, ScheduledItem, ScheduledProgram, leaf_calls
from modelcc.ir.tensor import (
    Algorithm,
    Item,
    Kernel,
    ReadSize,
    Scatter,
    Stage,
    TensorProgram,
    View,
    leaf_items,
)
from modelcc.ir.types import Layout, TensorType
from modelcc.passes.tensor.row_space import row_space
from modelcc.passes.tensor.shared_axes import shared_axes
from modelcc.schedule.canonical import CanonicalKernel, canonical, with_numbers
from modelcc.schedule.chain import Chain, find_chain, in_blocks
from modelcc.schedule.choices import with_choices
from modelcc.schedule.expression import Names
from modelcc.schedule.free_sizes import with_free_sizes
from modelcc.schedule.prune import without_idle_loops
from modelcc.schedule.shared_copies import is_copy, with_free_place
from modelcc.schedule.structure import Group, make_group
from modelcc.schedule.sweeps import there_and_back
from modelcc.targets.cpu.border import clear_border
from modelcc.targets.cpu.in_place import pairs_in_place, pairs_of_parts
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.plan import Plan, plan_stages
from modelcc.targets.cpu.row_blocks import emit_row_blocks, find_row_blocks
from modelcc.targets.cpu.row_sums import emit_row_sums, find_row_sums
from modelcc.targets.cpu.rows import RowPlan, emit_rows, plan_rows
from modelcc.targets.cpu.scatter import schedule_scatter
from modelcc.targets.cpu.scheduled_kernel import (
    PARALLEL_CHUNKS,
    WORTH_A_FORK,
    ScheduledKernel,
    buffer_parameter,
)
from modelcc.targets.cpu.straight_rows import emit_straight_rows, find_straight_rows
from modelcc.targets.cpu.streaming import streams
from modelcc.targets.cpu.tiled import emit_tiled
from modelcc.targets.cpu.work import nanoseconds

WORTH_SHARING = 8
"""Copies of which one function is made, that takes all places as arguments, rather than some."""


class NoScheduleError(Exception):
    """The stages of a kernel share neither their axes nor their rows."""


def unfused(kernel: Kernel) -> list[Kernel]:
    """A kernel for each stage, what was internal going through memory."""
    if len(kernel.stages) == 1:
        raise ModelError("no schedule fits this stage", (*kernel.source, kernel.name))
    return [
        Kernel(
            f"{kernel.name}_{number}",
            tuple(dict.fromkeys(read.tensor for read in reads(stage.body))),
            (stage.output,),
            (stage,),
            kernel.source,
        )
        for number, stage in enumerate(kernel.stages)
    ]


def schedule_program(
    program: TensorProgram, machine: CpuModel, ready: Callable[[Function], None] | None = None
) -> ScheduledProgram:
    """Schedule every kernel of ``program``; equal kernels share one function.

    ``ready`` is told of each function as soon as it is there, of some more than once.
    """
    scheduler = _Scheduler(program, machine, ready)
    items = scheduler.items(program.items, program.dims)
    packed = scheduler.packed
    steps = [item for item in leaf_calls(items) if not isinstance(item, View)]
    used = frozenset(a for step in steps for a in step.arguments)
    kept = used | frozenset(program.outputs) | _read_by_others(items)
    return ScheduledProgram(
        program.name,
        program.inputs,
        program.outputs,
        items,
        {**program.types, **packed.types},
        {n: c for n, c in {**program.constants, **packed.constants}.items() if n in kept},
        program.dims,
    )


def _read_by_others(items: Sequence[ScheduledItem]) -> frozenset[str]:
    """Tensors that views, branches and loops read."""
    found: set[str] = set()
    for item in items:
        match item:
            case View():
                found.add(item.input)
            case Branch():
                found |= {item.condition, *_read_by_others((*item.then, *item.other))}
            case Repeat():
                found |= {carry.initial for carry in item.carries} | _read_by_others(item.body)
            case _:
                pass
    return frozenset(found)


def _as_it_is(item: Algorithm) -> KernelCall:
    arguments = (*item.inputs, *item.outputs)
    return KernelCall(item.function, arguments, item.sizes, item.outputs, source=item.source)


class _Canonical(NamedTuple):
    """A kernel in canonical names: what tensors, sizes and bounds are called in the program, and
    what it has in common with copies to and from other places, with the sizes that differ."""

    kernel: CanonicalKernel
    names: dict[str, str]
    values: Mapping[str, Index]
    bounds: tuple[IndexBound, ...]
    shared: CanonicalKernel
    places: Mapping[str, Index]


class _Scheduler:
    """Kernels to functions, each content once; what has been packed."""

    def __init__(
        self, program: TensorProgram, machine: CpuModel, ready: Callable[[Function], None] | None
    ) -> None:
        self._program = program
        self._machine = machine
        self._ready = ready
        self._cache: dict[CanonicalKernel, ScheduledKernel] = {}
        self._scatters: dict[tuple[CanonicalKernel, str], ScheduledKernel] = {}
        self._constants = frozenset(program.constants)
        self._copies = Counter[CanonicalKernel]()
        self._seen: dict[int, _Canonical] = {}
        self._parts = _parts(program)
        steps = (item for item in leaf_items(program.items) if isinstance(item, ReadSize))
        self._read = frozenset(name for step in steps for name in step.symbols)
        self.packed = _PackedConstants(program)

    def items(
        self, items: Sequence[Item], dims: Bounds, counter: str = ""
    ) -> tuple[ScheduledItem, ...]:
        """Items under ``dims``, which bound the counters of loops around them, too.

        ``counter`` is that of the innermost of these loops, empty outside of all.
        """
        result: list[ScheduledItem] = []
        self._copies.update(self._shared_copies(items, dims))
        for item in items:
            match item:
                case Kernel():
                    result += self._kernel(item, dims, counter)
                case Scatter():
                    result.append(self._scatter(item, dims))
                case View() | ReadSize():
                    result.append(item)
                case Algorithm():
                    result.append(_as_it_is(item))
                case Branch(condition, outputs, then, other, source):
                    sides = self.items(then, dims, counter), self.items(other, dims, counter)
                    result.append(Branch(condition, outputs, *sides, source))
                case Repeat(name, trips, carries, filled, body, condition, source):
                    inner = self.items(body, item.inside(dims), name)
                    loop = Repeat(name, trips, carries, filled, inner, condition, source)
                    result.append(loop)
        return tuple(result)

    def _shared_copies(self, items: Sequence[Item], dims: Bounds) -> Iterator[CanonicalKernel]:
        """For each copy what it has in common with those of other places."""
        for item in items:
            if isinstance(item, Kernel) and is_copy(item.stages):
                exact = self._canonical(item, dims)
                self._seen[id(item)] = exact
                yield exact.shared

    def _canonical(self, kernel: Kernel, dims: Bounds) -> _Canonical:
        numbered, bounds = with_numbers(kernel)
        exact, own = canonical(numbered, self._program.types, self._constants, dims)
        free, values = with_free_sizes(exact, self._read)
        return _Canonical(free, own, values, bounds, *with_free_place(free, everywhere=True))

    def _kernel(self, item: Kernel, dims: Bounds, counter: str) -> list[KernelCall]:
        found = self._seen.pop(id(item), None) or self._canonical(item, dims)
        key, sizes, values = found.shared, found.places, found.values
        if self._copies[key] < WORTH_SHARING:
            key, sizes = with_free_place(found.kernel)
        try:
            scheduled = self._cache.get(key)
            if scheduled is None:
                name = f"k{len(self._cache)}_{item.name}"
                scheduled = schedule_kernel(key, name, self._machine, item.source)
                self._cache[key] = scheduled
        except NoScheduleError:
            return [
                call for kernel in unfused(item) for call in self._kernel(kernel, dims, counter)
            ]
        sizes = {**values, **{name: substitute(size, values) for name, size in sizes.items()}}
        call = _call(item, scheduled, found.names, sizes, self.packed, self._parts)
        call = replace(call, bounds=found.bounds)
        threads = self._machine.threads
        if self._constant_bytes(call) * 2 >= self._machine.l2_bytes * threads:
            call = replace(call, function=there_and_back(call.function, counter, threads))
        if self._ready is not None:
            self._ready(call.function)
        return [call]

    def _scatter(self, item: Scatter, dims: Bounds) -> KernelCall:
        kernel = Kernel("Scatter", item.inputs, item.outputs, (item.stage,), item.source)
        found = self._canonical(kernel, dims)
        key = found.kernel
        initial = key.inputs[item.inputs.index(item.initial)]
        scheduled = self._scatters.get((key, initial))
        if scheduled is None:
            name = f"s{len(self._scatters)}_Scatter"
            scheduled = schedule_scatter(key, initial, name, self._machine, item.source)
            self._scatters[key, initial] = scheduled
        call = _call(kernel, scheduled, found.names, found.values, self.packed, self._parts)
        if self._ready is not None:
            self._ready(call.function)
        return replace(call, bounds=found.bounds)

    def _constant_bytes(self, call: KernelCall) -> int:
        """Bytes of the weights that a call reads."""
        names = [n for n in call.arguments if n in self.packed.constants]
        return sum(self.packed.constants[name].nbytes for name in names)


class _PackedConstants:
    """Constants re-ordered for kernels; equal requests share one copy."""

    def __init__(self, program: TensorProgram) -> None:
        self.program = program
        self.names: dict[tuple[str, Layout], str] = {}
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Constant] = {}

    def get(self, name: str, layout: Layout | None) -> str:
        """Name of ``name``'s data in ``layout``."""
        own = self.program.types[name]
        if layout is None or layout == own.physical:
            return name
        known = self.names.get((name, layout))
        if known is not None:
            return known
        fresh = f"{name}.packed{len(self.names)}"
        self.names[name, layout] = fresh
        self.types[fresh] = own.with_layout(layout)
        self.constants[fresh] = PackedConstant(self.program.constants[name], layout)
        return fresh


def _call(
    kernel: Kernel,
    scheduled: ScheduledKernel,
    own: Mapping[str, str],
    sizes: Mapping[str, Index],
    packed: _PackedConstants,
    parts: Mapping[str, int],
) -> KernelCall:
    arguments = [p.buffer.name for p in scheduled.function.parameters]
    layouts = scheduled.layouts
    return KernelCall(
        scheduled.function,
        tuple(packed.get(own[a], layouts[a]) if a in layouts else own[a] for a in arguments),
        tuple(sizes.get(s, Sym(s)) for s in scheduled.function.sizes),
        kernel.outputs,
        tuple((own[y], own[x]) for y, x in scheduled.in_place),
        _partially_written(kernel, parts),
        kernel.source,
    )


def _parts(program: TensorProgram) -> Counter[str]:
    """How many stages write each tensor."""
    return Counter(
        s.output for i in leaf_items(program.items) if isinstance(i, Kernel) for s in i.stages
    )


def _partially_written(kernel: Kernel, parts: Mapping[str, int]) -> tuple[str, ...]:
    """Outputs of which stages of other kernels write a part too."""
    own = Counter(stage.output for stage in kernel.stages)
    return tuple(output for output in kernel.outputs if parts[output] > own[output])


def schedule_kernel(
    kernel: CanonicalKernel, name: str, machine: CpuModel, source: tuple[str, ...] = ()
) -> ScheduledKernel:
    """Schedule one canonical kernel."""
    types = dict(kernel.types)
    dims: Bounds = dict(kernel.dims)
    names = Names(frozenset(name for name, _ in kernel.dims))
    statements: list[Stmt] = []
    layouts: dict[str, Layout] = {}
    in_place: list[tuple[str, str]] = []
    for output in kernel.outputs:
        statements += clear_border(output, types[output], names, machine)
    threaded = nanoseconds(kernel.stages, types) >= WORTH_A_FORK
    blocks = find_row_blocks(kernel, machine)
    chain = find_chain(kernel) if blocks is None else None
    if blocks is not None:
        statements += emit_row_blocks(blocks, kernel, names, machine, threaded)
    if chain is not None:
        body, layouts, in_place = _chain_statements(chain, kernel, names, machine)
        statements += body
    sharing = machine if threaded else replace(machine, threads=1)
    sums = find_row_sums(kernel, sharing) if blocks is None and chain is None else None
    if sums is not None:
        statements += emit_row_sums(sums, kernel, names, machine, threaded)
    whole = any(found is not None for found in (blocks, chain, sums))
    parts = [] if whole else partition(kernel.stages)
    once = _read_once(parts, kernel.constants)
    # A function forks once: for its dearest part.
    dearest = max(parts, key=lambda stages: nanoseconds(stages, types), default=())
    for stages in parts:
        rows = find_straight_rows(stages, types, dims)
        if rows is not None:
            worth = stages is dearest and nanoseconds(stages, types) >= WORTH_A_FORK
            body, plans = emit_straight_rows(rows, kernel, names, machine, worth)
            statements += body
            in_place += pairs_of_parts(plans, kernel, types)
            continue
        plan, wanted = _plan(stages, kernel, types, dims, machine, once)
        layouts |= wanted
        worth = stages is dearest and nanoseconds(stages, types) >= WORTH_A_FORK
        chunks = PARALLEL_CHUNKS if worth else 1
        if isinstance(plan, RowPlan):
            statements += emit_rows(plan, names, chunks)
            in_place += pairs_in_place(plan.nests, plan.stored, kernel, types)
        else:
            statements += emit_tiled(plan, names, chunks)
            in_place += pairs_in_place(plan.group.nests, plan.group.stored, kernel, types)
    laid_out = {n: t.with_layout(layouts.get(n, t.layout)) for n, t in types.items()}
    shared = frozenset(name for pair in in_place for name in pair)
    parameters = [buffer_parameter(n, laid_out[n], False, shared) for n in kernel.inputs]
    parameters += [buffer_parameter(n, laid_out[n], True, shared) for n in kernel.outputs]
    sizes = tuple(name for name, _ in kernel.dims)
    body = without_idle_loops(statements, dims) if dims else tuple(statements)
    function = Function(name, tuple(parameters), sizes, body, source)
    return ScheduledKernel(function, layouts, tuple(dict.fromkeys(in_place)))


def _chain_statements(
    chain: Chain, kernel: CanonicalKernel, names: Names, machine: CpuModel
) -> tuple[list[Stmt], dict[str, Layout], list[tuple[str, str]]]:
    """Phase by phase; the layouts that constants want; (output, input) in one place."""
    types = {**dict(kernel.types), **chain.kept}
    dims: Bounds = {**dict(kernel.dims), **chain.ranges}
    stored = frozenset((*kernel.outputs, *chain.kept))
    plans: list[Plan] = []
    layouts: dict[str, Layout] = {}
    once = _read_once(chain.phases, kernel.constants)
    for stages in chain.phases:
        packable = once & {r.tensor for s in stages for r in reads(s.body)}
        plan, wanted = plan_stages(stages, stored, types, dims, packable, machine, chain.outer)
        layouts |= wanted
        plans.append(plan)
    ahead = streams(chain, plans, kernel.constants)
    statements: list[Stmt] = []
    for stages, plan, stream in zip(chain.phases, plans, ahead, strict=True):
        # A function forks once: for its blocks, else for the first phase.
        short = nanoseconds(stages, types) < WORTH_A_FORK
        serial = chain.outer or plan is not plans[0] or short
        chunks = 1 if serial else PARALLEL_CHUNKS
        statements += emit_tiled(plan, names, chunks, stream, frozenset(chain.kept))
    worth = nanoseconds(kernel.stages, types) >= WORTH_A_FORK and _blocks(chain) != 1
    in_place = [pair for plan in plans for pair in _alone_in_place(plan, plans, kernel, types)]
    return in_blocks(chain, names, statements, worth), layouts, in_place


def _blocks(chain: Chain) -> Index:
    return product(axis.extent for axis in chain.outer)


def _alone_in_place(
    plan: Plan, plans: Sequence[Plan], kernel: CanonicalKernel, types: Mapping[str, TensorType]
) -> list[tuple[str, str]]:
    """(output, input) pairs of one phase, whose input no other phase reads."""
    others = [n for p in plans if p is not plan for n in p.group.nests]
    read = {r.tensor for n in others for r in reads(n.body)}
    found = pairs_in_place(plan.group.nests, plan.group.stored, kernel, types)
    return [(output, name) for output, name in found if name not in read]


def partition(stages: Sequence[Stage]) -> list[tuple[Stage, ...]]:
    """Stages in runs that share an iteration space; unrelated parts (concatenation) apart."""
    runs: list[list[Stage]] = []
    for stage in stages:
        names = {r.tensor for r in reads(stage.body)}
        home = next((r for r in runs if names & {s.output for s in r}), None)
        if home is None:
            runs.append([stage])
        else:
            home.append(stage)
    return [tuple(r) for r in runs]


def _plan(
    stages: tuple[Stage, ...],
    kernel: CanonicalKernel,
    types: Mapping[str, TensorType],
    dims: Bounds,
    machine: CpuModel,
    packable: frozenset[str],
) -> tuple[Plan | RowPlan, dict[str, Layout]]:
    outputs = frozenset(kernel.outputs)
    stages = with_choices(stages, types, dims)
    shared = shared_axes(stages)
    if shared is not None:
        group = make_group(shared, outputs, types, dims, packable)
        if not _prefers_rows(group, packable):
            return plan_stages(shared, outputs, types, dims, packable, machine)
    space = row_space(stages)
    if space is not None and not any(space.repeats(s) for s in space.stages if s.output in outputs):
        rows = plan_rows(space, outputs, types, dims, machine)
        if rows is not None:
            return rows, {}
    if shared is None:
        raise NoScheduleError
    return plan_stages(shared, outputs, types, dims, packable, machine)


def _read_once(parts: Sequence[Sequence[Stage]], constants: Iterable[str]) -> frozenset[str]:
    """Constants that one part reads, in one way: their order is that part's to choose."""
    found = ({r for s in stages for r in reads(s.body)} for stages in parts)
    times = Counter(r.tensor for distinct in found for r in distinct)
    return frozenset(c for c in constants if times[c] == 1)


def _prefers_rows(group: Group, packable: frozenset[str]) -> bool:
    """Whether rows are contiguous along the reduction but not along the output's inner loop."""
    anchor = group.anchor
    if anchor is None:
        return False
    loads = [r for r in reads(anchor.body) if r.tensor not in packable and len(r.indices) == 1]
    row = [coefficient(r.indices[0], anchor.reduce[-1].name) for r in loads]
    if 1 not in row or any(c not in (0, 1) for c in row):
        return False
    inner = next((v for v in reversed(group.final.parallel) if v.extent != 1), None)
    if inner is None:
        return True
    across = [coefficient(r.indices[0], inner.name) for r in loads]
    moves = depends_on(anchor.body, inner.name)
    return not moves or any(c not in (0, 1) for c in across)
