"""From kernels to loop functions: choose a schedule by structure, emit, pack constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeAlias

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, Index, Sym, substitute
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.library import Callee, meaning_of, with_meaning
from modelcc.ir.loop import Function
from modelcc.ir.packed_constant import PackedConstant
from modelcc.ir.program import Launch, Program, Step, step_tensors
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import (
    Algorithm,
    Item,
    Kernel,
    ReadSize,
    Scatter,
    TensorProgram,
    View,
    leaf_items,
    view_bases,
)
from modelcc.ir.types import Layout, TensorType
from modelcc.schedule.canonical import CanonicalKernel, canonical, with_numbers
from modelcc.schedule.free_sizes import with_free_sizes
from modelcc.schedule.listing import ALGORITHMS, DIRECT, Scheduled, check_used
from modelcc.schedule.schedule import NoScheduleError, Schedule, ScheduleError
from modelcc.schedule.shared_copies import is_copy, with_free_place
from modelcc.schedule.sweeps import there_and_back
from modelcc.schedule.text import parse_schedule
from modelcc.schedule.wanted import Wanted
from modelcc.schedule.workload import contraction_key, workload_key
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.scatter import schedule_scatter
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel

Pairs: TypeAlias = frozenset[tuple[str, str]]
"""(result, operand) pairs in place."""

WORTH_SHARING = 8
"""Number of copies from which on one function serves all of them, with all offsets as arguments."""


def unfused(kernel: Kernel) -> list[Kernel]:
    """A kernel for each stage, with internal values passed through memory."""
    if len(kernel.stages) == 1:
        raise ModelError("no schedule fits this stage", (*kernel.source, kernel.name))
    return [
        Kernel(
            f"{kernel.name}_{number}",
            tuple(dict.fromkeys(read.tensor for read in reads(stage.body))),
            (stage.output,),
            (stage,),
            kernel.source,
            kernel.rounding if stage.output in kernel.outputs else 1.0,
        )
        for number, stage in enumerate(kernel.stages)
    ]


DEFAULTS = Wanted()
"""Defaults for every kernel."""


class Lower(Protocol):
    """Lowers a kernel to a function, as :func:`~modelcc.targets.cpu.lower.schedule_kernel` does."""

    def __call__(
        self,
        kernel: CanonicalKernel,
        name: str,
        machine: CpuModel,
        source: tuple[str, ...] = ...,
        wanted: Schedule | None = ...,
        states: Pairs = ...,
    ) -> ScheduledKernel: ...


class LowerScatter(Protocol):
    """Lowers updates to functions, as :func:`~modelcc.targets.cpu.scatter.schedule_scatter` does:
    one, or one that copies and others that update the copy."""

    def __call__(
        self,
        kernel: CanonicalKernel,
        initial: str,
        name: str,
        machine: CpuModel,
        source: tuple[str, ...] = ...,
    ) -> tuple[ScheduledKernel, ...]: ...


def schedule_program(
    program: TensorProgram,
    machine: CpuModel,
    ready: Callable[[Function], None] | None = None,
    wanted: Wanted = DEFAULTS,
    lower: Lower = schedule_kernel,
    scatter: LowerScatter = schedule_scatter,
) -> Program:
    """Schedules every kernel of ``program``, as ``wanted``; equal kernels share one function.

    ``ready`` receives each function as soon as it is complete; ``lower`` or ``scatter`` makes it.
    :class:`ModelError` if a schedule that a user gave does not fit, or no kernel has its key.
    """
    scheduler = _Scheduler(program, machine, ready, wanted, lower, scatter)
    steps = scheduler.steps(program.items, program.dims)
    check_used(wanted.given, scheduler.keys, scheduler.contractions)
    packed = scheduler.packed
    named = (name for step in steps for name in step_tensors(step))
    kept = dict.fromkeys((*program.inputs, *program.outputs, *named))
    types = {**program.types, **packed.types}
    constants = {**program.constants, **packed.constants}
    return Program(
        program.name,
        program.inputs,
        program.outputs,
        steps,
        {name: types[name] for name in kept},
        tuple(scheduler.callees.values()),
        {name: constant for name, constant in constants.items() if name in kept},
        program.dims,
        tuple(scheduler.notes),
    )


def scheduled_kernels(
    program: TensorProgram, machine: CpuModel, wanted: Wanted = DEFAULTS
) -> tuple[Scheduled, ...]:
    """Each distinct kernel of stages and its schedule; ``wanted`` as for a program."""
    scheduler = _Scheduler(program, machine, None, wanted)
    scheduler.steps(program.items, program.dims)
    check_used(wanted.given, scheduler.keys, scheduler.contractions)
    return scheduler.kernels()


class _Canonical(NamedTuple):
    """A kernel in canonical names: the program's names of tensors, sizes and bounds, and its form
    shared with copies at other offsets, with the sizes that differ."""

    kernel: CanonicalKernel
    names: dict[str, str]
    values: Mapping[str, Index]
    bounds: tuple[IndexBound, ...]
    shared: CanonicalKernel
    places: Mapping[str, Index]


@dataclass
class _Uses:
    """The function of a kernel, its source nodes and its number of calls: looked up together, since
    hashing a kernel of many stages is slow.  ``callees`` has it and its variants for loops, by
    their counters."""

    scheduled: ScheduledKernel
    callees: dict[str, Callee] = field(default_factory=dict[str, Callee])
    nodes: dict[str, None] = field(default_factory=dict[str, None])
    calls: int = 0


class _Scheduler:
    """Functions of kernels, deduplicated by content, and the constants packed so far."""

    def __init__(
        self,
        program: TensorProgram,
        machine: CpuModel,
        ready: Callable[[Function], None] | None,
        wanted: Wanted,
        lower: Lower = schedule_kernel,
        scatter: LowerScatter = schedule_scatter,
    ) -> None:
        self._program = program
        self._lower = lower
        self._lower_scatter = scatter
        self._machine = machine
        self._ready = ready
        self._wanted = wanted
        self._algorithms = wanted.algorithms
        self._cache: dict[tuple[CanonicalKernel, Pairs], _Uses] = {}
        self._scatters: dict[tuple[CanonicalKernel, str], tuple[_Uses, ...]] = {}
        self._as_they_are: dict[Callee, Callee] = {}
        self.callees: dict[str, Callee] = {}
        self._constants = frozenset(program.constants)
        self._copies = Counter[CanonicalKernel]()
        self._seen: dict[int, _Canonical] = {}
        self._parts = _parts(program)
        self._bases = view_bases(program.items)
        self._replaced = {
            self._bases.get(output, output): before for output, before in program.states.items()
        }
        steps = (item for item in leaf_items(program.items) if isinstance(item, ReadSize))
        self._read = frozenset(name for step in steps for name in step.symbols)
        self.packed = _PackedConstants(program)
        self.keys: set[str] = set()
        self.contractions: set[str] = set()
        self.notes = dict.fromkeys(wanted.notes)

    def steps(self, items: Sequence[Item], dims: Bounds, counter: str = "") -> tuple[Step, ...]:
        """Steps of items under ``dims``, which bound the counters of loops around them, too.

        ``counter`` is that of the innermost of these loops, empty outside of any loop.
        """
        result: list[Step] = []
        self._copies.update(self._shared_copies(items, dims))
        for item in items:
            match item:
                case Kernel():
                    result += self._kernel(item, dims, counter)
                case Scatter():
                    result += self._scatter(item, dims)
                case View() | ReadSize():
                    result.append(item)
                case Algorithm():
                    result.append(self._algorithm(item))
                case Branch(condition, outputs, then, other, source):
                    sides = self.steps(then, dims, counter), self.steps(other, dims, counter)
                    result.append(Branch(condition, outputs, *sides, source))
                case Repeat(name, trips, carries, filled, body, condition, source):
                    inner = self.steps(body, item.inside(dims), name)
                    loop = Repeat(name, trips, carries, filled, inner, condition, source)
                    result.append(loop)
        return tuple(result)

    def _called(self, function: Callee) -> Callee:
        """A function under a unique name."""
        name, number = function.name, 2
        while name in self.callees:
            name = f"{function.name}_{number}"
            number += 1
        called = with_meaning(function, replace(meaning_of(function), name=name))
        self.callees[name] = called
        if self._ready is not None and isinstance(called, Function):
            self._ready(called)
        return called

    def _algorithm(self, item: Algorithm) -> Launch:
        called = self._as_they_are.get(item.function)
        if called is None:
            called = self._as_they_are[item.function] = self._called(item.function)
        given = (*item.inputs, *item.outputs)
        shared = [n for n, p in zip(given, called.parameters, strict=True) if p.shared]
        results = [n for n in shared if n in item.outputs]
        pairs = tuple((y, x) for y in results for x in shared if x not in results)
        return Launch(called.name, given, item.sizes, item.source, in_place=pairs)

    def _shared_copies(self, items: Sequence[Item], dims: Bounds) -> Iterator[CanonicalKernel]:
        """For each copy its form shared with copies at other offsets."""
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

    def _kernel(self, item: Kernel, dims: Bounds, counter: str) -> list[Launch]:
        found = self._seen.pop(id(item), None) or self._canonical(item, dims)
        self.contractions.add(item.asked)
        if self._algorithms and any(stage.reduce for stage in item.stages):
            self._check_algorithm(item, dims)
        key, sizes, values = found.shared, found.places, found.values
        if is_copy(item.stages) and self._copies[key] < WORTH_SHARING:
            key, sizes = with_free_place(found.kernel)
        try:
            states = self._states(key, found.names)
            uses = self._cache.get((key, states))
            if uses is None:
                name = f"k{len(self._cache)}_{item.name}"
                scheduled = self._lowered(key, name, item.source, states)
                uses = self._cache[key, states] = _Uses(scheduled)
        except NoScheduleError:
            return [
                call for kernel in unfused(item) for call in self._kernel(kernel, dims, counter)
            ]
        uses.nodes.update(dict.fromkeys(item.source))
        uses.calls += 1
        sizes = {**values, **{name: substitute(size, values) for name, size in sizes.items()}}
        call = self._call(item, uses.scheduled, found.names, sizes, found.bounds)
        large = self._constant_bytes(call) * 2 >= self._machine.l2_bytes * self._machine.threads
        callee = self._callee(uses, counter if large else "")
        return [replace(call, callee=callee.name)]

    def _callee(self, uses: _Uses, counter: str = "") -> Callee:
        """The function of a kernel; with a counter, its variant for that loop."""
        found = uses.callees.get(counter)
        if found is None:
            plain = uses.scheduled.function
            turned = plain
            if counter and isinstance(plain, Function):
                turned = there_and_back(plain, counter, self._machine.threads)
            same = counter and turned is plain
            found = self._callee(uses) if same else self._called(turned)
            uses.callees[counter] = found
        return found

    def _check_algorithm(self, item: Kernel, dims: Bounds) -> None:
        """Checks a contraction computed directly although an algorithm was requested: an error if
        by a user, a note if by tuning."""
        key = contraction_key(item, self._program.types, self._constants, dims)
        self.contractions.add(key)
        word = self._algorithms.get(key, DIRECT)
        if word == DIRECT:
            return
        reason = f"contraction {key} cannot be computed by {word}"
        if key in self._wanted.given.algorithms:
            hint = f"{word} computes {ALGORITHMS[word]}, and must not be switched off"
            raise ModelError(reason, item.source, hint)
        of = ", ".join(item.source) or item.name
        self.notes[f"{of}: {reason}, which tuning chose; tune the model anew"] = None

    def _states(self, kernel: CanonicalKernel, own: Mapping[str, str]) -> Pairs:
        """(result, operand) pairs that are one state of the program."""
        return frozenset(
            (output, name)
            for output in (kernel.outputs if self._replaced else ())
            for name in kernel.inputs
            if self._replaced.get(own[output]) == self._bases.get(own[name], own[name])
        )

    def _lowered(
        self, kernel: CanonicalKernel, name: str, source: tuple[str, ...], states: Pairs
    ) -> ScheduledKernel:
        if not self._wanted.anything:
            return self._lower(kernel, name, self._machine, source, None, states)
        key = workload_key(kernel)
        self.keys.add(key)
        given = self._wanted.given.schedules.get(key)
        tuned = self._as_tuned(kernel, name, source, key, states) if given is None else None
        if tuned is not None:
            return tuned
        try:
            return self._lower(kernel, name, self._machine, source, given, states)
        except ScheduleError as error:
            hint = "--emit schedule prints what it has by default"
            raise ModelError(f"the schedule of kernel {key}: {error}", source, hint) from error

    def _as_tuned(
        self, kernel: CanonicalKernel, name: str, source: tuple[str, ...], key: str, states: Pairs
    ) -> ScheduledKernel | None:
        """The function by the tuned schedule; None, with a note, if that no longer fits."""
        text = self._wanted.tuned.get(key)
        if text is None:
            return None
        try:
            wanted = parse_schedule(text)
            return self._lower(kernel, name, self._machine, source, wanted, states)
        except ScheduleError as error:
            of = f"{', '.join(source) or name}: kernel {key} has its default schedule"
            note = f"{of}: the tuned one does not fit ({error}); tune the model anew"
            self.notes[note] = None
            return None

    def kernels(self) -> tuple[Scheduled, ...]:
        """The scheduled kernels, in order."""
        return tuple(
            Scheduled(kernel, uses.scheduled.schedule, tuple(uses.nodes), uses.calls)
            for (kernel, _), uses in self._cache.items()
            if uses.scheduled.schedule is not None
        )

    def _scatter(self, item: Scatter, dims: Bounds) -> list[Launch]:
        kernel = Kernel("Scatter", item.inputs, item.outputs, (item.stage,), item.source)
        found = self._canonical(kernel, dims)
        key = found.kernel
        initial = key.inputs[item.inputs.index(item.initial)]
        parts = self._scatters.get((key, initial))
        if parts is None:
            name = f"s{len(self._scatters)}_Scatter"
            made = self._lower_scatter(key, initial, name, self._machine, item.source)
            parts = self._scatters[key, initial] = tuple(map(_Uses, made))
        calls: list[Launch] = []
        for uses in parts:
            bounds = found.bounds if uses is parts[-1] else ()
            call = self._call(kernel, uses.scheduled, found.names, found.values, bounds)
            changed = item.outputs if calls else call.partial
            calls.append(replace(call, callee=self._callee(uses).name, partial=changed))
        return calls

    def _call(
        self,
        kernel: Kernel,
        scheduled: ScheduledKernel,
        own: Mapping[str, str],
        sizes: Mapping[str, Index],
        bounds: tuple[IndexBound, ...],
    ) -> Launch:
        parameters = (p.buffer.name for p in scheduled.function.parameters)
        arguments = [name for name in parameters if name not in scheduled.working]
        layouts, packed = scheduled.layouts, self.packed
        sizes = {**sizes, **{n: substitute(i, sizes) for n, i in scheduled.sizes.items()}}
        return Launch(
            scheduled.function.name,
            tuple(packed.get(own[a], layouts[a]) if a in layouts else own[a] for a in arguments),
            tuple(sizes.get(s, Sym(s)) for s in scheduled.function.sizes),
            kernel.source,
            bounds,
            kernel.rounding,
            tuple((own[y], own[x]) for y, x in scheduled.in_place),
            _partially_written(kernel, self._parts),
        )

    def _constant_bytes(self, call: Launch) -> int:
        """Bytes of the constants that a call reads."""
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


def _parts(program: TensorProgram) -> Counter[str]:
    """How many stages write each tensor."""
    return Counter(
        s.output for i in leaf_items(program.items) if isinstance(i, Kernel) for s in i.stages
    )


def _partially_written(kernel: Kernel, parts: Mapping[str, int]) -> tuple[str, ...]:
    """Outputs of which stages of other kernels write a part too."""
    own = Counter(stage.output for stage in kernel.stages)
    return tuple(output for output in kernel.outputs if parts[output] > own[output])
