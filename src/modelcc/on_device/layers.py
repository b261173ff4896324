"""Time of each layer of a model on a microcontroller, estimated or measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.library import LibraryFunction
from modelcc.ir.program import Program
from modelcc.ir.program_cost import step_work
from modelcc.targets.mcu.cost import step_products
from modelcc.targets.mcu.machine import McuModel
from modelcc.targets.mcu.timing import TIMINGS, Kind, instructions


@dataclass(frozen=True)
class LayerCost:
    """One step of the program: ``source`` names the user's nodes, ``macs`` are its
    multiply-accumulates.  ``cycles`` are always an estimate."""

    step: int
    function: str
    source: tuple[str, ...]
    macs: int
    instructions: int
    cycles: int
    calls: str = ""

    @property
    def name(self) -> str:
        """Its display name."""
        more = f" + {len(self.source) - 1}" if len(self.source) > 1 else ""
        return f"{self.source[0]}{more}" if self.source else self.function


def layers_of(
    program: Program, machine: McuModel, counts: Mapping[int, Mapping[Kind, float]]
) -> tuple[LayerCost, ...]:
    """The layers of a planned program, by the ``counts`` of its steps."""
    timing, products = TIMINGS[machine.name], step_products(program)
    symbols = {c.name: c.call.symbol for c in program.callees if isinstance(c, LibraryFunction)}
    rows = ((number, name, source) for number, name, source, *_ in step_work(program, {}))
    return tuple(
        LayerCost(
            number, name, source, products[number],
            round(instructions(counts.get(number, {}))),
            round(timing.estimate(counts.get(number, {}))),
            symbols.get(name, ""),
        )
        for number, name, source in rows
    )  # fmt: skip


def trace_events(
    named: Sequence[tuple[str, float, Mapping[str, object]]], process: str
) -> dict[str, object]:
    """Consecutive spans in microseconds, in the trace format of Chrome and Perfetto."""
    events: list[dict[str, object]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": process}}
    ]
    at = 0.0
    for name, duration, facts in named:
        span = {"name": name, "ph": "X", "pid": 1, "tid": 1, "ts": at, "dur": duration}
        events.append({**span, "args": dict(facts)})
        at += duration
    return {"traceEvents": events, "displayTimeUnit": "ms"}
