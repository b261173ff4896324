"""Why nodes of a model run on the host of a device, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from modelcc.ir.program import Launch, Program, leaves
from modelcc.ir.tensor import Scatter, TensorProgram, leaf_items
from modelcc.passes.program.place_transfers import side_of

_MEETING = "updates may meet in one place"
_ALONE = "its algorithm is one thread's"


def host_notes(
    program: TensorProgram, scheduled: Program, told: Mapping[tuple[str, ...], str]
) -> Iterator[str]:
    """A line for each reason with the nodes that it is of; ``told`` are those of kernels, by the
    nodes that they are from."""
    scatters = {i.source for i in leaf_items(program.items) if isinstance(i, Scatter)}
    hosted = {c.name for c in scheduled.callees if side_of(c) == "host"}
    reasons: dict[str, dict[str, None]] = {}
    for step in leaves(scheduled.steps):
        if isinstance(step, Launch) and step.callee in hosted:
            usual = _MEETING if step.source in scatters else _ALONE
            nodes = dict.fromkeys(step.source or (step.callee,))
            reasons.setdefault(told.get(step.source, usual), {}).update(nodes)
    for why, nodes in reasons.items():
        yield f"on the processor, since {why}: {', '.join(nodes)}"
