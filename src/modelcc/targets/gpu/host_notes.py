"""Why nodes of a model run on the host of a device, and which ones round operands, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType

from modelcc.ir.loop import Function, RoutineCall
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Launch, Program, leaves
from modelcc.ir.types import F32
from modelcc.passes.program.place_transfers import side_of
from modelcc.targets.base import TF32, TF32X3
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.products.tensor_choice import split_pays
from modelcc.targets.isa.fragments import INTEGERS, multiply
from modelcc.targets.isa.split_product import multiply_split

_ALONE = "its algorithm is one thread's"


def host_notes(scheduled: Program, reasons: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """A line for each reason with the nodes that it concerns; ``reasons`` are those of kernels and
    updates, by their source nodes."""
    hosted = {c.name for c in scheduled.callees if side_of(c) == "host"}
    nodes_of: dict[str, dict[str, None]] = {}
    for step in leaves(scheduled.steps):
        if isinstance(step, Launch) and step.callee in hosted:
            nodes = dict.fromkeys(step.source or (step.callee,))
            nodes_of.setdefault(reasons.get(step.source, _ALONE), {}).update(nodes)
    for why, nodes in nodes_of.items():
        yield f"on the processor, since {why}: {', '.join(nodes)}"


_WAYS: Mapping[str, tuple[Function, str]] = MappingProxyType(
    {
        TF32: (multiply(F32), "f32 rounded to tf32, and add in f32"),
        TF32X3: (
            multiply_split(),
            "f32 as sums of two tf32 each, by three products of four, and add in f32: what is "
            "left out is below 2**-20 of a product",
        ),
    }
)
"""Routines by the precision that selects them, and what they do."""

_OF_BYTES = frozenset(
    multiply(left, together=together, other=right)
    for left in INTEGERS
    for right in INTEGERS
    for together in (1, 2)
)
"""Routines that multiply bytes, by one fragment of terms or two."""


def rounding_notes(scheduled: Program, precision: str, gpu: GpuModel) -> Iterator[str]:
    """How many kernels multiply f32 on tensor cores, which round operands, or why none does
    although that was requested."""
    if precision not in _WAYS:
        return
    if precision == TF32X3 and not split_pays(gpu):
        yield f"f32 is multiplied by threads: on {gpu.name} three products of tf32 take longer"
        return
    routine, what = _WAYS[precision]
    count, of = _launches(scheduled, frozenset({routine}))
    yield f"{count} of {of} kernels multiply {what}"


def byte_notes(scheduled: Program) -> Iterator[str]:
    """How many kernels multiply bytes on tensor cores, if any."""
    count, of = _launches(scheduled, _OF_BYTES)
    if count:
        yield f"{count} of {of} kernels multiply bytes on tensor cores, and add in i32"


def _launches(scheduled: Program, routines: Set[Function]) -> tuple[int, int]:
    """How many kernels run any of ``routines``, and how many there are."""
    functions = [c for c in scheduled.callees if isinstance(c, Function)]
    found = {f.name for f in functions if not routines.isdisjoint(_routines(f))}
    steps = [s for s in leaves(scheduled.steps) if isinstance(s, Launch)]
    return sum(step.callee in found for step in steps), len(steps)


def _routines(function: Function) -> Iterator[Function]:
    return (s.routine for s in statements(function.body) if isinstance(s, RoutineCall))
