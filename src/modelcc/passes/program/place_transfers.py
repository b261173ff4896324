"""Inserts transfers between the memories of a device and its host.

Before, with @relu a function of groups and @sort not::

    launch @relu(%x, %h)
    launch @sort(%h, %y)

After::

    transfer %x to device
    launch @relu(%x, %h)
    transfer %h to host
    launch @sort(%h, %y)

Inputs are on the host initially, constants on both sides, outputs on the host at the end; states,
and counters of arrivals, are on the device at both times, where the runtime keeps them.  A tensor
that is valid on a side stays valid until a step writes it elsewhere, so it is transferred once.
Outputs of branches and loops are on the device at their ends, where copies between their states
run; outer tensors that a loop reads are transferred before it.  The host reads sizes and conditions
of branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop_traversal import grid_loop
from modelcc.ir.program import Launch, Program, Side, Step, Transfer
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize

Valid: TypeAlias = Mapping[str, frozenset[Side]]
"""Sides where each tensor, not a view, is valid."""

DEVICE: frozenset[Side] = frozenset({"device"})
HOST: frozenset[Side] = frozenset({"host"})


def side_of(callee: Callee) -> Side:
    """The side where a callee runs: functions of groups, or calls with such a meaning, on the
    device, all others on its host."""
    return "host" if grid_loop(meaning_of(callee)) is None else "device"


def place_transfers(program: Program) -> Program:
    """``program``, before memory planning, with the transfers that it needs."""
    walk = _Transfers(program, {c.name: side_of(c) for c in program.callees}, program.bases)
    valid = dict.fromkeys(program.inputs, HOST)
    valid |= dict.fromkeys(program.constants, DEVICE | HOST)
    valid |= dict.fromkeys((*program.states.values(), *program.arrivals), DEVICE)
    steps, valid = walk.steps(program.steps, valid)
    ends: dict[tuple[str, Side], None] = {
        (walk.base(name), _end(program, name)): None for name in program.outputs
    }
    moved = (Transfer(n, side) for n, side in ends if side not in valid.get(n, _sides(side)))
    return replace(program, steps=(*steps, *moved))


def _end(program: Program, output: str) -> Side:
    """The side of an output at the end."""
    return "device" if output in program.states else "host"


@dataclass(frozen=True)
class _Transfers:
    """Steps of one program, whose callees run on ``sides`` and whose views have ``bases``."""

    program: Program
    sides: Mapping[str, Side]
    bases: Mapping[str, str]

    def base(self, name: str) -> str:
        """The tensor whose memory ``name`` shares."""
        return self.bases.get(name, name)

    def steps(self, steps: Sequence[Step], valid: Valid) -> tuple[tuple[Step, ...], Valid]:
        """Steps with their transfers, and ``valid`` sides after them, given those before."""
        found: list[Step] = []
        for step in steps:
            before, step, valid = self._step(step, valid)
            found += (*before, step)
        return tuple(found), valid

    def _step(self, step: Step, valid: Valid) -> tuple[Sequence[Step], Step, Valid]:
        match step:
            case Launch():
                return self._launch(step, valid)
            case ReadSize():
                given = (step.tensor,) if step.symbols else ()
                before, valid = self._brought(given, "host", valid, step.source)
                return before, step, valid
            case Branch():
                return self._branch(step, valid)
            case Repeat():
                return self._repeat(step, valid)
            case _:
                return (), step, valid

    def _launch(self, step: Launch, valid: Valid) -> tuple[Sequence[Step], Step, Valid]:
        side = self.sides[step.callee]
        before, valid = self._brought(self._read(step), side, valid, step.source)
        written = dict.fromkeys(map(self.base, self.program.results(step)), _sides(side))
        return before, step, {**valid, **written}

    def _read(self, step: Launch) -> list[str]:
        """Tensors that a launch reads, including those of which it writes a part only."""
        results = self.program.results(step)
        read = [name for name in step.arguments if name not in results]
        return [*read, *step.partial]

    def _branch(self, step: Branch[Step], valid: Valid) -> tuple[Sequence[Step], Step, Valid]:
        before, valid = self._brought((step.condition,), "host", valid, step.source)
        sides: list[tuple[Step, ...]] = []
        for steps in (step.then, step.other):
            placed, end = self.steps(steps, valid)
            last, _ = self._brought(step.outputs, "device", end, step.source)
            sides.append((*placed, *last))
        handed = dict.fromkeys(map(self.base, step.outputs), DEVICE)
        return before, replace(step, then=sides[0], other=sides[1]), {**valid, **handed}

    def _repeat(self, step: Repeat[Step], valid: Valid) -> tuple[Sequence[Step], Step, Valid]:
        first = [carry.initial for carry in step.carries]
        before, valid = self._brought(first, "device", valid, step.source)
        for side in ("device", "host"):
            outer, valid = self._brought(self._needed(step.body, side), side, valid, step.source)
            before = [*before, *outer]
        states = dict.fromkeys([c.state for c in step.carries], DEVICE)
        filled = dict.fromkeys(map(self.base, step.filled), DEVICE)
        body, end = self.steps(step.body, {**valid, **states, **filled})
        handed = [*(carry.next for carry in step.carries), *step.filled]
        last, _ = self._brought(handed, "device", end, step.source)
        outputs = dict.fromkeys(map(self.base, step.outputs), DEVICE)
        return before, replace(step, body=(*body, *last)), {**valid, **outputs}

    def _needed(self, steps: Iterable[Step], side: Side) -> Iterator[str]:
        """Tensors that steps and their inner steps read on a side."""
        for step in steps:
            match step:
                case Launch() if self.sides[step.callee] == side:
                    yield from self._read(step)
                case ReadSize() if side == "host" and step.symbols:
                    yield step.tensor
                case Branch():
                    yield from (step.condition,) if side == "host" else ()
                    yield from self._needed((*step.then, *step.other), side)
                case Repeat():
                    yield from (c.initial for c in step.carries) if side == "device" else ()
                    yield from self._needed(step.body, side)
                case _:
                    pass

    def _brought(
        self, names: Iterable[str], side: Side, valid: Valid, source: tuple[str, ...]
    ) -> tuple[list[Step], Valid]:
        """Transfers of those of ``names`` that are defined but not valid on ``side``."""
        missing = dict.fromkeys(self.base(n) for n in names)
        missing = [n for n in missing if n in valid and side not in valid[n]]
        moved: list[Step] = [Transfer(name, side, source) for name in missing]
        return moved, {**valid, **{name: valid[name] | _sides(side) for name in missing}}


def _sides(side: Side) -> frozenset[Side]:
    return DEVICE if side == "device" else HOST
