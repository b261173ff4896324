"""Applies a memory plan to the tensors of a program.

Before::

    launch @gemm(%x, %w, %h)
    view %v = %h
    launch @softmax(%v, %y)

After::

    place %h at 0
    place %v at 0
    launch @gemm(%x, %w, %h)
    launch @softmax(%v, %y)

Branches and loops keep their form.  A state is copied at the start or end of a loop only if the
memory plan has not given its tensors the same location.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.ir.index import DIM, Index, Range, Sym, substitute, symbols
from modelcc.ir.index_extremum import maximum
from modelcc.ir.naming import bound_names
from modelcc.ir.program import (
    FAULT_BYTES,
    Allocate,
    Binding,
    CopyTensor,
    Launch,
    Placement,
    Program,
    Step,
    Transfer,
    counters,
    inner_steps,
    leaves,
    step_tensors,
)
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.tensor import ReadSize, View
from modelcc.ir.types import TensorType
from modelcc.passes.program.functions import unique_functions
from modelcc.passes.program.idle_copies import without_idle_copies
from modelcc.passes.program.overlap import sharing
from modelcc.passes.program.plan_memory import MemoryPlan
from modelcc.passes.program.states import copied_states, kept


def apply_plan(program: Program, plan: MemoryPlan) -> Program:
    """``program`` with the memory locations of ``plan``.

    Outputs that no kernel can write directly (an input, a constant, the same tensor twice) are
    copied at the end, states last.  One with the name of an input, or of an earlier output, is
    bound as ``name.output``; ``outputs`` keeps its order.
    """
    launches = [step for step in leaves(program.steps) if isinstance(step, Launch)]
    foreign = {n for s in plan.storages if s.place in ("input", "output") for n in s.tensors}
    known = {c.name: sharing(c) if c.name in plan.sharing else c for c in program.callees}
    calls = [(s, without_idle_copies(known[s.callee], s, plan)) for s in launches]
    needed = [(step, callee) for step, callee in calls if callee is not None]
    unique = unique_functions(needed, foreign)
    names = iter(unique.names)
    called = ["" if callee is None else next(names) for _, callee in calls]
    writer = _Steps(program, plan, iter(called))
    body = writer.steps(program.steps)
    outputs = _output_names(program, plan)
    begin = (Allocate(m.name, m.size) for m in plan.dynamic if m.step < 0)
    steps = (*begin, *body, *_copies(program, outputs, writer))
    places = _places(program, steps, outputs, writer)
    return Program(
        name=program.name,
        inputs=program.inputs,
        outputs=outputs,
        steps=steps,
        types={name: place.type for name, place in places.items()},
        callees=unique.functions,
        constants={n: c for n, c in program.constants.items() if n in places},
        dims=_dims(program, launches),
        notes=program.notes,
        states=_states(program, outputs),
        arrivals=tuple(name for name in program.arrivals if name in places),
        placement=Placement(
            {name: place.binding for name, place in places.items()},
            _arena(plan, launches),
            plan.definitions,
            plan.alignment,
            _room(program, outputs, plan),
            tuple(_overlaps(plan, places)),
        ),
    )


def _overlaps(plan: MemoryPlan, places: Container[str]) -> Iterator[tuple[str, str]]:
    """Tensors of overlapping storages, by the names in steps."""
    for pair in plan.overlaps:
        tensors = [dict.fromkeys((name, *plan.home[name].tensors)) for name in pair]
        yield from ((a, b) for a in tensors[0] for b in tensors[1] if a in places and b in places)


@dataclass(frozen=True)
class _Place:
    """The location of a tensor, under its name in steps; ``buffer`` is that of tensors which may
    have other names in the same memory."""

    name: str
    type: TensorType
    binding: Binding
    buffer: str

    @property
    def memory(self) -> tuple[str, str, Index]:
        """A key that is equal for two tensors in one location."""
        own = "" if self.binding.place == "arena" else self.buffer
        return (own, self.binding.segment, self.binding.offset)


def _room(program: Program, outputs: Sequence[str], plan: MemoryPlan) -> dict[str, int]:
    """Offsets for inputs and outputs in the arena, by the names that these are bound as."""
    bound = {n: n for n in program.inputs} | dict(zip(program.outputs, outputs, strict=True))
    return {bound[name]: offset for name, offset in plan.room.items()}


def _arena(plan: MemoryPlan, launches: Sequence[Launch]) -> Index:
    """The arena's size, with room for recording an index out of range."""
    checked = any(launch.bounds for launch in launches)
    return maximum(plan.arena, FAULT_BYTES) if checked else plan.arena


@dataclass
class _Steps:
    """Steps in planned memory; ``names`` are those of the functions they launch, in order, empty
    for launches that became no-ops.

    ``states`` are the tensors of a loop's states at its start or end.
    """

    program: Program
    plan: MemoryPlan
    names: Iterator[str]
    states: dict[str, _Place] = field(default_factory=dict[str, _Place])
    now: int = 0

    def bound(self, tensor: str) -> str:
        """The name in steps: arena tensors keep theirs, others share that of their buffer."""
        storage = self.plan.home[tensor]
        return tensor if storage.place == "arena" else storage.name

    def steps(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        placed: list[Step] = []
        for step in steps:
            match step:
                case Launch():
                    placed += self._launch(step)
                    placed += self._allocations(step.source)
                case ReadSize():
                    placed.append(replace(step, tensor=self.bound(step.tensor)))
                    placed += self._allocations(step.source)
                case Transfer():
                    placed.append(replace(step, tensor=self.bound(step.tensor)))
                    placed += self._allocations(step.source)
                case Branch():
                    self.now += 1
                    sides = self.steps(step.then), self.steps(step.other)
                    condition = self.bound(step.condition)
                    placed.append(Branch(condition, (), *sides, step.source))
                case Repeat():
                    placed += self._loop(step)
                case View() | CopyTensor() | Allocate():
                    pass
        return tuple(placed)

    def _allocations(self, source: tuple[str, ...]) -> list[Step]:
        """Allocations after the step with this number in the timeline."""
        now, self.now = self.now, self.now + 1
        return [Allocate(m.name, m.size, source) for m in self.plan.dynamic if m.step == now]

    def _launch(self, call: Launch) -> list[Launch]:
        """The call, unless it only copies in place."""
        name = next(self.names)
        if not name:
            return []
        tensors, partial = (tuple(map(self.bound, t)) for t in (call.arguments, call.partial))
        return [replace(call, callee=name, arguments=tensors, in_place=(), partial=partial)]

    def _loop(self, loop: Repeat[Step]) -> list[Step]:
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
            if last.memory != self.place(carry.last).memory:
                end.append(CopyTensor(self.bound(carry.last), self._name(last), loop.source))
        condition = None if loop.condition is None else self.bound(loop.condition)
        repeat = replace(loop, carries=(), filled=(), body=tuple(body), condition=condition)
        return [*begin, repeat, *end]

    def _copied(self, loop: Repeat[Step], target: _Place, tensor: str) -> list[CopyTensor]:
        """A copy of ``tensor`` to ``target``, unless it is there already."""
        if target.memory == self.place(tensor).memory:
            return []
        return [CopyTensor(self._name(target), self.bound(tensor), loop.source)]

    def _state(self, carry: Carry, loop: Repeat[Step], at: Index | None, suffix: str) -> _Place:
        """Location of the state when the counter is ``at``."""
        place = self.place(carry.state)
        offset = place.binding.offset
        if loop.counter not in symbols(offset) or at is None:
            return place
        binding = replace(place.binding, offset=substitute(offset, {loop.counter: at}))
        return replace(place, name=f"{carry.state}.{suffix}", binding=binding)

    def place(self, tensor: str) -> _Place:
        """Location of a tensor."""
        home = self.plan.home[tensor]
        segment = self.plan.segment.get(home.name, "")
        binding = Binding(home.place, self.plan.offset(tensor), segment)
        buffer = self.plan.buffer(tensor)
        return _Place(self.bound(tensor), self.program.types[tensor], binding, buffer)

    def kept(self, state: str) -> str:
        """The source of the next value of a state that is to be copied: a copy of its own if the
        tensor is overwritten meanwhile."""
        name = kept(state)
        if name not in self.plan.home:
            return self.bound(state)
        binding = Binding("arena", self.plan.offset(name))
        self.states[name] = _Place(name, self.program.types[state], binding, name)
        return name

    def _name(self, place: _Place) -> str:
        if place.name not in self.plan.home:
            self.states[place.name] = place
        return place.name


def _copies(program: Program, outputs: Sequence[str], writer: _Steps) -> Iterator[Step]:
    """Steps that copy outputs which no kernel writes, after allocating those of data-dependent
    size."""
    read = frozenset(program.read_sizes)
    names = dict(zip(outputs, program.outputs, strict=True))
    for bound, name in names.items():
        if bound == writer.bound(name) or name in program.states:
            continue
        size = program.types[name].bytes
        if symbols(size) & read:
            yield Allocate(bound, size)
        yield CopyTensor(bound, writer.bound(name))
    states = {name: bound for bound, name in names.items()}
    copied = copied_states(program, writer.plan.home)
    found = {name: writer.kept(name) for name in copied}
    yield from (CopyTensor(n, writer.bound(s)) for s, n in found.items() if n != writer.bound(s))
    yield from (CopyTensor(states[name], source) for name, source in found.items())


def _states(program: Program, outputs: Sequence[str]) -> dict[str, str]:
    """The states, by the names that outputs are bound as."""
    pairs = zip(outputs, program.outputs, strict=True)
    return {bound: program.states[name] for bound, name in pairs if name in program.states}


def _dims(program: Program, launches: Sequence[Launch]) -> dict[str, Range]:
    """Bounds of every dimension that a tensor's shape or a step's size uses."""
    sizes = [dim for t in program.types.values() for dim in t.shape]
    sizes += [size for launch in launches for size in launch.sizes]
    sizes += _trips(program.steps)
    reads = [step for step in leaves(program.steps) if isinstance(step, ReadSize)]
    read = {n: program.dims[n] for step in reads for n in step.symbols}
    sizes += [side for step in reads for c in step.requires for side in (c.left, c.right)]
    ends = [end for range_ in read.values() for end in (range_.lo, range_.hi)]
    sizes += [end for end in ends if end is not None]
    inner = read.keys() | counters(program.steps).keys()
    named = sorted({name for size in sizes for name in symbols(size)} - inner)
    dims = {name: bounds for name, bounds in program.dims.items() if name in named}
    return dims | {name: DIM for name in named if name not in dims} | read


def _trips(steps: Sequence[Step]) -> Iterator[Index]:
    for step in steps:
        if isinstance(step, Repeat):
            yield 0 if step.trips is None else step.trips
        yield from _trips(inner_steps(step))


def _output_names(program: Program, plan: MemoryPlan) -> tuple[str, ...]:
    taken = {*program.inputs, *program.constants, *program.arrivals}
    taken |= {name for name in program.outputs if plan.home[name].place == "arena"}
    return bound_names(program.outputs, taken)


def _places(
    program: Program, steps: Sequence[Step], outputs: Sequence[str], writer: _Steps
) -> Mapping[str, _Place]:
    """Locations of all arguments and results, and of all tensors that steps use."""
    places: dict[str, _Place] = {}
    for name in program.inputs:
        places[name] = _Place(name, program.types[name], Binding("input"), name)
    for bound, name in zip(outputs, program.outputs, strict=True):
        binding = Binding("input" if name in program.states else "output")
        places[bound] = _Place(bound, _output_type(program, name), binding, bound)
    for name in dict.fromkeys(n for step in steps for n in step_tensors(step)):
        if name in writer.states:
            places[name] = writer.states[name]
        elif name not in places:
            places[name] = writer.place(name)
    return places


def _output_type(program: Program, name: str) -> TensorType:
    type_ = program.types[name]
    if not type_.physical.is_row_major:
        raise ValueError(f"output '{name}' of {program.name} has layout {type_.layout}")
    return type_
