"""Calls of a device's libraries, and their workspaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from modelcc.ir.index import Index, product
from modelcc.ir.library import Address, Callee, ExternalCall, call_of, meaning_of, with_meaning
from modelcc.ir.loop import Buffer, IndexOf, Parameter
from modelcc.ir.naming import Names
from modelcc.ir.program import Launch, Program, Step
from modelcc.ir.region import map_leaves
from modelcc.ir.types import F32, I8, I64, Layout, TensorType
from modelcc.schedule.canonical import CanonicalKernel

WORKSPACE = "workspace"
"""The workspace among a call's buffers; its bytes are the next argument."""

_PARTS = 16
"""Partial sums of a product that a workspace has room for."""


LEAST_GAIN = 1.1
"""The least speedup at which a library is used."""


@dataclass(frozen=True)
class DeviceCall:
    """The ``call`` that computes a kernel whose constants have ``layouts``, and is expected to be
    ``gain`` times as fast as our own kernel (None: it is preferred)."""

    call: ExternalCall
    layouts: Mapping[str, Layout] = field(default_factory=dict[str, Layout])
    gain: float | None = None

    @property
    def pays(self) -> bool:
        """Whether it replaces our own kernel."""
        return self.gain is None or self.gain >= LEAST_GAIN


def library_notes(
    calls: Mapping[tuple[str, ...], DeviceCall], refused: Mapping[tuple[str, ...], str]
) -> Iterator[str]:
    """A line for each library and decision, and for each reason why a possible call is not made,
    with the nodes that it concerns."""
    nodes_of: dict[str, dict[str, None]] = {}
    for source, reason in refused.items():
        why = f"by kernels of ours, and not by a library, as {reason}"
        nodes_of.setdefault(why, {}).update(dict.fromkeys(source))
    for source, call in calls.items():
        expected = "" if call.gain is None else ", as is estimated to be faster"
        why = f"by {call.call.library}{expected}"
        if not call.pays:
            why = f"by kernels of ours, as {call.call.library} is estimated to gain too little"
        nodes = (f"{node} ({call.gain:.2g} x)" if call.gain else node for node in source)
        nodes_of.setdefault(why, {}).update(dict.fromkeys(nodes))
    for why, nodes in nodes_of.items():
        yield f"{why}: {', '.join(nodes)}"


def workspace(kernel: CanonicalKernel, most: int) -> tuple[Address, IndexOf]:
    """A workspace for partial sums of what ``kernel`` computes, or of ``most`` bytes, if those need
    more or their number is not a constant."""
    results = product(dict(kernel.types)[kernel.outputs[0]].shape)
    wanted = -(-_PARTS * results * F32.bytes // 256) * 256 if isinstance(results, int) else most
    return Address(WORKSPACE), IndexOf(min(most, wanted), I64)


def with_workspaces(program: Program) -> Program:
    """``program`` before memory is planned, with workspaces for library functions."""
    names, added = Names(program.types), dict[str, TensorType]()
    working = {c.name: size for c in program.callees if (size := _workspace_of(call_of(c)))}

    def visit(step: Step) -> Step:
        if not isinstance(step, Launch) or step.callee not in working:
            return step
        name = names.fresh(f"{step.arguments[-1]}.{WORKSPACE}")
        added[name] = TensorType((working[step.callee],), I8)
        return replace(step, arguments=(*step.arguments, name))

    steps = map_leaves(program.steps, visit)
    callees = tuple(_with_memory(c, working.get(c.name)) for c in program.callees)
    return replace(program, steps=steps, callees=callees, types={**program.types, **added})


def _with_memory(callee: Callee, size: Index | None) -> Callee:
    if size is None:
        return callee
    memory = Parameter(Buffer(WORKSPACE, I8, size), mutable=True)
    meaning = meaning_of(callee)
    return with_meaning(callee, replace(meaning, parameters=(*meaning.parameters, memory)))


def _workspace_of(call: ExternalCall | None) -> Index | None:
    """Bytes of a call's workspace; None if it has none."""
    arguments = call.arguments if call is not None else ()
    if Address(WORKSPACE) not in arguments:
        return None
    size = arguments[arguments.index(Address(WORKSPACE)) + 1]
    assert isinstance(size, IndexOf)
    return size.index
