"""Lowers scheduled kernels and their memory plan to a host program.

Before::

    %h = kernel @gemm(%x, %w)      %v = view %h      %y = kernel @softmax(%v)

After::

    region %h = arena[0]
    launch @gemm(%x, %w, %h)
    launch @softmax(%v, %y)        with %v bound where %h is

Branches and loops keep their form.  A state is copied where a loop begins or ends only if the
memory plan has not put the tensors that it passes through in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.ir.index import DIM, Index, Range, Sym, substitute, symbols
from modelcc.ir.index_extremum import maximum
from modelcc.ir.output_names import bound_names
from modelcc.ir.program import (
    FAULT_BYTES,
    Allocate,
    Binding,
    CopyTensor,
    Launch,
    Program,
    Step,
    counters,
    step_tensors,
)
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.scheduled import KernelCall, ScheduledItem, ScheduledProgram, leaf_calls
from modelcc.ir.tensor import ReadSize, View
from modelcc.ir.types import TensorType
from modelcc.passes.program.functions import unique_functions
from modelcc.passes.program.idle_copies import without_idle_copies
from modelcc.passes.program.plan_memory import MemoryPlan


def lower_to_program(scheduled: ScheduledProgram, plan: MemoryPlan) -> Program:
    """The host program that runs ``scheduled`` in the memory that ``plan`` gives it.

    Outputs that no kernel can write directly (an input, a constant, the same tensor twice) are
    copied at the end.  One that bears an input's name, or an earlier output's, is bound as
    ``name.output``; ``outputs`` keeps the order of the scheduled program.
    """
    items = (item for item in leaf_calls(scheduled.items) if isinstance(item, KernelCall))
    calls = [without_idle_copies(item, plan) for item in items]
    foreign = {n for s in plan.storages if s.place in ("input", "output") for n in s.tensors}
    unique = unique_functions(calls, foreign)
    writer = _Steps(scheduled, plan, iter(unique.names))
    body = writer.steps(scheduled.items)
    outputs = _output_names(scheduled, plan)
    begin = (Allocate(m.name, m.size) for m in plan.late if m.step < 0)
    steps = (*begin, *body, *_copies(scheduled, outputs, writer))
    bindings = _bindings(scheduled, plan, steps, outputs, writer.states)
    return Program(
        name=scheduled.name,
        inputs=scheduled.inputs,
        outputs=outputs,
        bindings=bindings,
        functions=unique.functions,
        steps=steps,
        arena=_arena(plan, calls),
        definitions=plan.definitions,
        constants={n: c for n, c in scheduled.constants.items() if n in bindings},
        dims=_dims(scheduled, calls, steps),
    )


def _arena(plan: MemoryPlan, calls: Sequence[KernelCall]) -> Index:
    """The arena's size, with room for an index that is out of range."""
    checked = any(call.bounds for call in calls)
    return maximum(plan.arena, FAULT_BYTES) if checked else plan.arena


@dataclass
class _Steps:
    """Items to steps; ``names`` are those of the functions of their calls, in order.

    ``states`` binds what a loop's state is where the loop begins or has ended.
    """

    scheduled: ScheduledProgram
    plan: MemoryPlan
    names: Iterator[str]
    states: dict[str, Binding] = field(default_factory=dict[str, Binding])
    now: int = 0

    def bound(self, tensor: str) -> str:
        """The name steps use: arena tensors keep theirs, others share that of their buffer."""
        storage = self.plan.home[tensor]
        return tensor if storage.place == "arena" else storage.name

    def steps(self, items: Sequence[ScheduledItem]) -> tuple[Step, ...]:
        found: list[Step] = []
        for item in items:
            match item:
                case View():
                    pass
                case KernelCall():
                    found.append(self._launch(item))
                    found += self._allocations(item.source)
                case ReadSize():
                    found.append(replace(item, tensor=self.bound(item.tensor)))
                    found += self._allocations(item.source)
                case Branch():
                    self.now += 1
                    then, other = self.steps(item.then), self.steps(item.other)
                    condition = self.bound(item.condition)
                    found.append(Branch(condition, (), then, other, item.source))
                case Repeat():
                    found += self._loop(item)
        return tuple(found)

    def _allocations(self, source: tuple[str, ...]) -> list[Step]:
        """What is asked for after the step that has this number in the timeline."""
        now, self.now = self.now, self.now + 1
        return [Allocate(m.name, m.size, source) for m in self.plan.late if m.step == now]

    def _launch(self, call: KernelCall) -> Launch:
        tensors = tuple(self.bound(t) for t in call.arguments)
        name = next(self.names)
        return Launch(name, tensors, call.sizes, call.source, call.bounds, call.rounding)

    def _loop(self, loop: Repeat[ScheduledItem]) -> list[Step]:
        turn = Sym(loop.counter)
        begin: list[Step] = []
        self.now += 1
        body = list(self.steps(loop.body))
        self.now += 1
        end: list[Step] = []
        for carry in loop.carries:
            first = self._state(carry, loop, 0, "first")
            begin += self._copied(loop, first, carry.initial)
            body += self._copied(loop, self._state(carry, loop, turn + 1, "next"), carry.next)
            last = self._state(carry, loop, loop.trips, "last")
            if self._place(last) != self._place(carry.last):
                end.append(CopyTensor(self.bound(carry.last), self._name(last), loop.source))
        condition = None if loop.condition is None else self.bound(loop.condition)
        end_of = (tuple(body), condition, loop.source)
        repeat: Repeat[Step] = Repeat(loop.counter, loop.trips, (), (), *end_of)
        return [*begin, repeat, *end]

    def _copied(
        self, loop: Repeat[ScheduledItem], target: Binding, tensor: str
    ) -> list[CopyTensor]:
        """A copy of ``tensor`` to ``target``, unless it is there."""
        if self._place(target) == self._place(tensor):
            return []
        return [CopyTensor(self._name(target), self.bound(tensor), loop.source)]

    def _state(
        self, carry: Carry, loop: Repeat[ScheduledItem], at: Index | None, suffix: str
    ) -> Binding:
        """Where the state is when the counter is ``at``."""
        offset = self.plan.offset(carry.state)
        moves = loop.counter in symbols(offset)
        if not moves or at is None:
            return self._binding(carry.state)
        offset = substitute(offset, {loop.counter: at})
        name = f"{carry.state}.{suffix}"
        segment = self.plan.segment.get(self.plan.home[carry.state].name, "")
        return Binding(name, self.scheduled.types[carry.state], "arena", offset, segment)

    def _binding(self, tensor: str) -> Binding:
        home, type = self.plan.home[tensor], self.scheduled.types[tensor]
        segment = self.plan.segment.get(home.name, "")
        return Binding(self.bound(tensor), type, home.place, self.plan.offset(tensor), segment)

    def _place(self, tensor: str | Binding) -> tuple[str, str, Index]:
        """What tells whether two tensors are in one place."""
        found = self._binding(tensor) if isinstance(tensor, str) else tensor
        own = "" if found.place == "arena" else found.name
        return (own, found.segment, found.offset)

    def _name(self, binding: Binding) -> str:
        if binding.name not in self.plan.home:
            self.states[binding.name] = binding
        return binding.name


def _copies(scheduled: ScheduledProgram, outputs: Sequence[str], writer: _Steps) -> Iterator[Step]:
    """Steps that write the outputs which no kernel writes, those of data-dependent size
    allocated before."""
    read = frozenset(scheduled.read_sizes)
    for bound, name in zip(outputs, scheduled.outputs, strict=True):
        if bound == writer.bound(name):
            continue
        size = scheduled.types[name].bytes
        if symbols(size) & read:
            yield Allocate(bound, size)
        yield CopyTensor(bound, writer.bound(name))


def _dims(
    scheduled: ScheduledProgram, calls: Sequence[KernelCall], steps: Sequence[Step]
) -> dict[str, Range]:
    """Bounds of every dimension that matters: named by a tensor's shape or a step's size."""
    sizes = [dim for t in scheduled.types.values() for dim in t.shape]
    sizes += [size for call in calls for size in call.sizes]
    sizes += _trips(steps)
    reads = [item for item in leaf_calls(scheduled.items) if isinstance(item, ReadSize)]
    read = {n: scheduled.dims[n] for item in reads for n in item.symbols}
    sizes += [side for item in reads for c in item.requires for side in (c.left, c.right)]
    ends = [end for known in read.values() for end in (known.lo, known.hi)]
    sizes += [end for end in ends if end is not None]
    inner = read.keys() | counters(steps).keys()
    named = sorted({name for size in sizes for name in symbols(size)} - inner)
    known = {name: bounds for name, bounds in scheduled.dims.items() if name in named}
    return known | {name: DIM for name in named if name not in known} | read


def _trips(steps: Sequence[Step]) -> Iterator[Index]:
    for step in steps:
        match step:
            case Branch():
                yield from _trips((*step.then, *step.other))
            case Repeat():
                yield 0 if step.trips is None else step.trips
                yield from _trips(step.body)
            case _:
                pass


def _output_names(scheduled: ScheduledProgram, plan: MemoryPlan) -> tuple[str, ...]:
    taken = set(scheduled.inputs) | set(scheduled.constants)
    taken |= {name for name in scheduled.outputs if plan.home[name].place == "arena"}
    return bound_names(scheduled.outputs, taken)


def _bindings(
    scheduled: ScheduledProgram,
    plan: MemoryPlan,
    steps: Sequence[Step],
    outputs: Sequence[str],
    states: Mapping[str, Binding],
) -> dict[str, Binding]:
    bindings: dict[str, Binding] = {}
    for name in scheduled.inputs:
        bindings[name] = Binding(name, scheduled.types[name], "input")
    for bound, name in zip(outputs, scheduled.outputs, strict=True):
        bindings[bound] = Binding(bound, _output_type(scheduled, name), "output")
    for name in dict.fromkeys(n for step in steps for n in step_tensors(step)):
        if name in states:
            bindings[name] = states[name]
        elif name not in bindings:
            home = plan.home[name]
            segment = plan.segment.get(home.name, "")
            offset = plan.offset(name)
            bindings[name] = Binding(name, scheduled.types[name], home.place, offset, segment)
    return bindings


def _output_type(scheduled: ScheduledProgram, name: str) -> TensorType:
    found = scheduled.types[name]
    if not found.physical.is_row_major:
        raise ValueError(f"output '{name}' of {scheduled.name} has layout {found.layout}")
    return found
