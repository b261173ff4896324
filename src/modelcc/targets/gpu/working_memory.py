"""Memory that kernels need besides operands and results.

Partial sums are a tensor of the launch, freed after it.  Arrival counters are 0 before a launch and
after it, so that all launches share the same ones, in memory that belongs to the program alone and
need not be cleared for each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop_traversal import arrived_at
from modelcc.ir.naming import Names
from modelcc.ir.program import Launch, Program, Step, leaves
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.types import I32, TensorType

ARRIVALS = "arrivals"


def with_working_memory(program: Program) -> Program:
    """``program`` before memory is planned, with all buffers that its launches' functions need."""
    names = Names([*program.types, *program.callee])
    launches = (step for step in leaves(program.steps) if isinstance(step, Launch))
    most = max((_counters(program.callee[launch.callee]) for launch in launches), default=0)
    giver = _Giver(program.callee, names, names.fresh(ARRIVALS) if most else "")
    steps = giver.steps(program.steps)
    if not giver.types and not most:
        return program
    arrivals = {giver.counters: TensorType((most,), I32)} if most else {}
    types = {**program.types, **giver.types, **arrivals}
    return replace(program, steps=steps, types=types, arrivals=(*program.arrivals, *arrivals))


@dataclass
class _Giver:
    """Gives launches memory, and the same ``counters`` to all whose groups count arrivals."""

    callees: Mapping[str, Callee]
    names: Names
    counters: str
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])

    def steps(self, given: Sequence[Step]) -> tuple[Step, ...]:
        """Steps of a block."""
        return tuple(map(self._step, given))

    def _step(self, step: Step) -> Step:
        match step:
            case Launch():
                return self._launch(step)
            case Branch():
                return replace(step, then=self.steps(step.then), other=self.steps(step.other))
            case Repeat():
                return replace(step, body=self.steps(step.body))
            case _:
                return step

    def _launch(self, step: Launch) -> Launch:
        given, partial = [*step.arguments], [*step.partial]
        function = meaning_of(self.callees[step.callee])
        arrived = arrived_at(function)
        for parameter in function.parameters[len(given) :]:
            buffer = parameter.buffer
            if buffer.name in arrived:
                given.append(self.counters)
                partial.append(self.counters)
                continue
            name = self.names.fresh(f"{step.arguments[-1]}.{buffer.name}")
            self.types[name] = TensorType((buffer.size,), buffer.dtype)
            given.append(name)
        return replace(step, arguments=tuple(given), partial=tuple(partial))


def _counters(callee: Callee) -> int:
    """The number of arrival counters of a function."""
    function = meaning_of(callee)
    arrived = arrived_at(function)
    buffers = (p.buffer for p in function.parameters if p.buffer.name in arrived)
    sizes = [buffer.size for buffer in buffers]
    return max((size for size in sizes if isinstance(size, int)), default=0)
