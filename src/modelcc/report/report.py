"""Results of compilation: kernels, memory plan, times; as data, JSON and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from modelcc.ir.index import evaluate
from modelcc.ir.memory_rules import ALIGNMENT
from modelcc.ir.program import CopyTensor, Launch, Program, Step, counters, leaves, step_tensors
from modelcc.ir.program_cost import step_work
from modelcc.ir.union import Union
from modelcc.report.device_share import DeviceShare, device_share, share_from_data
from modelcc.report.memory_savings import MemorySaving, memory_savings
from modelcc.report.savings import ChannelSaving, savings_rows
from modelcc.targets.kernel_use import DeviceFacts


@dataclass(frozen=True)
class StepRow:
    """One step of the program; a loop is one, including all its iterations.

    ``source`` names the user's nodes; ``flops`` are executed operations, ``bytes`` the sizes of
    its buffers; ``rounding`` bounds its rounding errors, as a multiple of the bound for plain sums
    (1 for these); ``seconds`` is the median of profiled runs, None without a profile.  ``roof`` is
    the minimum time of a device's kernel by the machine's peak rates (roofline), None for other
    steps.
    """

    step: int
    function: str
    source: tuple[str, ...]
    flops: int
    bytes: int
    rounding: float = 1.0
    seconds: float | None = None
    roof: float | None = None

    def __str__(self) -> str:
        time = "" if self.seconds is None else f", {self.seconds * 1e6:.1f} µs"
        bound = "" if self.rounding == 1.0 else f", rounding {times_text(self.rounding)}"
        work = f"{self.flops / 1e6:.3f} MFLOP, {self.bytes} bytes{bound}{time}"
        return (
            f"{self.step} {self.function}: {work} from {', '.join(self.source) or 'the compiler'}"
        )


@dataclass(frozen=True)
class Region:
    """A tensor in the arena: ``offset`` and ``size`` in bytes, live from step ``first`` to
    ``last``."""

    name: str
    type: str
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class StateRow:
    """A state that the model keeps between calls, and whether it is updated in place; otherwise
    each call copies it at its end."""

    name: str
    type: str
    bytes: int
    in_place: bool

    def __str__(self) -> str:
        how = "updated in place" if self.in_place else "copied at the end of each call"
        return f"{self.name}: {self.type}, {how}"


@dataclass(frozen=True)
class RecomputedRow:
    """A value that is recomputed rather than kept: its op, the user's nodes, its ``bytes`` and the
    number of repeated operations."""

    op: str
    type: str
    source: tuple[str, ...]
    bytes: int
    flops: int

    def __str__(self) -> str:
        place = ", ".join(self.source) or "the compiler"
        work = f"{self.bytes} bytes, {self.flops / 1e6:.3f} MFLOP"
        return f"{self.op} {self.type}: {work} from {place}"


@dataclass(frozen=True)
class StageTime:
    """Seconds that one stage of the compiler took."""

    stage: str
    seconds: float


@dataclass(frozen=True, repr=False)
class Report:
    """A compiled model at the dimension values ``sizes``.

    ``arena`` and ``lower_bound`` (the maximum live at once) are in bytes, ``constants`` the bytes
    of all weights.  ``host_steps`` is work that the runtime does before them, ``notes`` list
    requests of the user that were not met.  ``recomputed`` are values that are not kept, so that
    the arena, ``arena_before`` bytes otherwise, fits the requested memory.  ``savings`` are removed
    channels.  ``device`` is the division between device and host, if compiled for a device.
    ``precision`` describes products in lower precision, ``shared`` are results that overlap
    operands.
    """

    model: str
    target: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    kernels: tuple[StepRow, ...]
    regions: tuple[Region, ...]
    arena: int
    lower_bound: int
    constants: int
    stages: tuple[StageTime, ...] = field(default=())
    host_steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    states: tuple[StateRow, ...] = ()
    recomputed: tuple[RecomputedRow, ...] = ()
    arena_before: int = 0
    savings: tuple[ChannelSaving, ...] = ()
    device: DeviceShare | None = None
    shared: tuple[MemorySaving, ...] = ()
    precision: str = ""

    def __repr__(self) -> str:
        """A line on memory and work, then a line for each step."""
        arena = f"arena {self.arena} bytes ({self.lower_bound} live at most)"
        head = f"{self.model} for {self.target}: {arena}, weights {self.constants} bytes, "
        head += f"{self.flops / 1e9:.3f} GFLOP in {len(self.kernels)} steps"
        head += f"\n  {self.device.work}; {self.device.moved}" if self.device else ""
        before = (f"  the runtime: {step}" for step in self.host_steps)
        head += f"; {self.rounding}" if self.rounding else ""
        head += f"\n  {self.precision}" if self.precision else ""
        notes = (f"  note: {note}" for note in self.notes)
        kept = (f"  state {state}" for state in self.states)
        if self.recomputed:
            head += f"\n  {self.recomputation}"
        again = (f"  again {row}" for row in self.recomputed)
        less = (f"  {row}" for row in savings_rows(self.savings))
        steps = (f"  {kernel}" for kernel in self.kernels)
        return "\n".join((head, *notes, *kept, *less, *again, *before, *steps))

    @property
    def flops(self) -> int:
        """Operations of all kernels."""
        return sum(kernel.flops for kernel in self.kernels)

    @property
    def roof(self) -> float:
        """The minimum time of all kernels on the device by the machine's peak rates."""
        return sum(kernel.roof or 0.0 for kernel in self.kernels)

    @property
    def rounding(self) -> str:
        """Kernels with other rounding than plain sums, and its bound; empty if there are none."""
        found = [k.rounding for k in self.kernels if k.rounding != 1.0]
        if not found:
            return ""
        most = f"error bounds up to {times_text(max(found))} theirs"
        return f"{len(found)} steps round otherwise than plain sums, {most}; accuracy strict: none"

    @property
    def recomputation(self) -> str:
        """Number, savings and cost of recomputed values; empty if there are none."""
        if not self.recomputed:
            return ""
        saved, work = self.arena_before - self.arena, sum(row.flops for row in self.recomputed)
        values = f"{len(self.recomputed)} values are computed again: "
        return f"{values}{saved} bytes of {self.arena_before} less, {work / 1e6:.3f} MFLOP more"

    @property
    def seconds(self) -> float | None:
        """Profiled time of all kernels."""
        times = [kernel.seconds for kernel in self.kernels]
        known = [seconds for seconds in times if seconds is not None]
        return sum(known) if known else None

    def with_profile(self, seconds: Sequence[float]) -> Report:
        """The report with the time of each step, in order."""
        rows = zip(self.kernels, seconds, strict=True)
        return replace(self, kernels=tuple(replace(k, seconds=s) for k, s in rows))

    def with_stages(self, stages: Iterable[StageTime]) -> Report:
        """The report with the compiler's own times."""
        return replace(self, stages=tuple(stages))

    def to_json(self) -> str:
        """The report as a JSON object."""
        return json.dumps(self, indent=1, default=vars)


def times_text(rounding: float) -> str:
    """The multiple of the bound of plain sums as text; empty for these."""
    return "" if rounding == 1.0 else f"{rounding:g} ×"


def of_roof(row: StepRow) -> str:
    """The fraction of its roof that a profiled step reaches, as text; empty if unknown."""
    return f"{row.roof / row.seconds:.0%}" if row.roof and row.seconds else ""


def report_of(
    program: Program, target: str, sizes: Mapping[str, int], facts: DeviceFacts | None = None
) -> Report:
    """The report of ``program`` for these values of its named dimensions, and the ``facts`` of the
    device that it is for."""
    env = dict(sizes)
    for definition in program.placed.definitions:
        env[definition.symbol] = evaluate(definition.value, env)
    regions = _regions(program, env)
    kept = frozenset(program.states.values())
    return Report(
        model=program.name,
        target=target,
        sizes=dict(sizes),
        inputs={n: str(program.types[n]) for n in program.inputs if n not in kept},
        outputs={n: str(program.types[n]) for n in program.outputs if n not in program.states},
        kernels=tuple(_with_roof(StepRow(*row), facts) for row in step_work(program, env)),
        regions=regions,
        arena=evaluate(program.placed.arena, env),
        lower_bound=most_live(regions, program.placed.alignment),
        constants=sum(c.nbytes for c in program.constants.values()),
        notes=program.notes,
        states=tuple(_states(program, env)),
        device=device_share(program, env, facts),
        shared=memory_savings(program, env),
    )


def _with_roof(row: StepRow, facts: DeviceFacts | None) -> StepRow:
    use = None if facts is None else facts.uses.get(row.function)
    if facts is None or use is None:
        return row
    return replace(row, roof=max(row.flops / use.flops, row.bytes / facts.bandwidth))


def _states(program: Program, env: Mapping[str, int]) -> Iterator[StateRow]:
    """The states, under the names of their inputs."""
    copied = {step.target for step in program.steps if isinstance(step, CopyTensor)}
    for output, before in program.states.items():
        type = program.types[before]
        yield StateRow(before, str(type), evaluate(type.bytes, env), output not in copied)


def report_from_json(text: str) -> Report:
    """The inverse of :meth:`Report.to_json`."""
    data: dict[str, Any] = json.loads(text)
    for row in data["kernels"]:
        row["source"] = tuple(row["source"])
    data["kernels"] = tuple(StepRow(**row) for row in data["kernels"])
    data["regions"] = tuple(Region(**row) for row in data["regions"])
    data["stages"] = tuple(StageTime(**row) for row in data["stages"])
    data["host_steps"] = tuple(data["host_steps"])
    data["notes"] = tuple(data.get("notes", ()))
    data["states"] = tuple(StateRow(**row) for row in data.get("states", ()))
    recomputed: Iterable[dict[str, Any]] = data.get("recomputed", ())
    for row in recomputed:
        row["source"] = tuple(row["source"])
    data["recomputed"] = tuple(RecomputedRow(**row) for row in recomputed)
    less: Iterable[dict[str, Any]] = data.get("savings", ())
    for row in less:
        row["source"] = tuple(row["source"])
    data["savings"] = tuple(ChannelSaving(**row) for row in less)
    data["device"] = share_from_data(data.get("device"))
    over: Iterable[dict[str, Any]] = data.get("shared", ())
    for row in over:
        row["source"] = tuple(row["source"])
    data["shared"] = tuple(MemorySaving(**row) for row in over)
    return Report(**data)


def most_live(regions: Sequence[Region], alignment: int = ALIGNMENT) -> int:
    """The maximum of bytes of live tensors at one step; shared bytes count once.

    Sizes are rounded up to multiples of ``alignment``, as in the planner.
    """
    places = [(r.offset, r.offset + -(-r.size // alignment) * alignment) for r in regions]
    union = Union(end for place in places for end in place)
    born = sorted(range(len(regions)), key=lambda i: regions[i].first)
    dying = sorted(range(len(regions)), key=lambda i: regions[i].last)
    most, gone = 0, 0
    for number, i in enumerate(born, 1):
        union.add(*places[i])
        if number < len(born) and regions[born[number]].first == regions[i].first:
            continue
        while regions[dying[gone]].last < regions[i].first:
            union.remove(*places[dying[gone]])
            gone += 1
        most = max(most, union.length)
    return most


def _regions(program: Program, env: Mapping[str, int]) -> tuple[Region, ...]:
    bindings = program.placed.bindings
    inside = {**counters(program.steps), **env}
    spans: dict[str, tuple[int, int]] = {}
    last_at: dict[int, int] = {}
    for number, step in enumerate(program.steps):
        written = _written(program, step)
        for name in step_tensors(step):
            binding = bindings[name]
            if binding.segment or (binding.place != "arena" and name not in program.room):
                continue
            offset = evaluate(program.room.get(name, binding.offset), inside)
            # A tensor read before it is written is a view: its base is live.
            begin = number if name in written else last_at.get(offset, number)
            first, _ = spans.get(name, (begin, number))
            spans[name] = (first, number)
            last_at[offset] = number
    return tuple(_region(program, name, span, inside) for name, span in spans.items())


def _written(program: Program, step: Step) -> frozenset[str]:
    """Tensors that a step and its inner steps write."""
    found: set[str] = set()
    for leaf in leaves((step,)):
        if isinstance(leaf, CopyTensor):
            found.add(leaf.target)
        elif isinstance(leaf, Launch):
            found.update(program.results(leaf))
    return frozenset(found)


def _region(program: Program, name: str, span: tuple[int, int], env: Mapping[str, int]) -> Region:
    type = program.types[name]
    place = program.room.get(name, program.placed.bindings[name].offset)
    offset = evaluate(place, env)
    return Region(name, str(type), offset, evaluate(type.bytes, env), *span)
