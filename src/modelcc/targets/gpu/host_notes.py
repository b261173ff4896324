"""Why nodes of a model run on the host of a device, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from modelcc.ir.program import Launch, Program, leaves
from modelcc.passes.program.place_transfers import side_of

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
