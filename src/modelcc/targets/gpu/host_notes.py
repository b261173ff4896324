"""Why nodes of a model run on the host of a device, and which ones round operands, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from modelcc.ir.loop import Function, RoutineCall
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Launch, Program, leaves
from modelcc.ir.types import F32
from modelcc.passes.program.place_transfers import side_of
from modelcc.targets.isa.fragments import multiply

_ALONE = "its algorithm is one thread's"


def host_notes(scheduled: Program, reasons: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """A line for each reason with the nodes that it is of; ``reasons`` are those of kernels and
    updates, by the nodes that they are from."""
    hosted = {c.name for c in scheduled.callees if side_of(c) == "host"}
    nodes_of: dict[str, dict[str, None]] = {}
    for step in leaves(scheduled.steps):
        if isinstance(step, Launch) and step.callee in hosted:
            nodes = dict.fromkeys(step.source or (step.callee,))
            nodes_of.setdefault(reasons.get(step.source, _ALONE), {}).update(nodes)
    for why, nodes in nodes_of.items():
        yield f"on the processor, since {why}: {', '.join(nodes)}"


def rounding_notes(scheduled: Program) -> Iterator[str]:
    """How many kernels multiply f32 on matrix units, which take it with fewer bits."""
    found = {c.name for c in scheduled.callees if isinstance(c, Function) and _rounds(c)}
    steps = [s for s in leaves(scheduled.steps) if isinstance(s, Launch)]
    count = sum(step.callee in found for step in steps)
    yield f"{count} of {len(steps)} kernels multiply f32 rounded to tf32, and add in f32"


def _rounds(function: Function) -> bool:
    called = (s.routine for s in statements(function.body) if isinstance(s, RoutineCall))
    return multiply(F32) in called
