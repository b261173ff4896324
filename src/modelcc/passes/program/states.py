"""Decides which states are updated in place, and which are computed elsewhere and then copied.

A state's output takes the memory of its input if that is dead when it is first written, or if the
kernel that does so may overwrite its operand::

    state %next over %w
    launch @gradient(%x, %w, %dw)
    launch @sgd(%w, %dw, %next) in_place(%next over %w)

and if no later step can end the run: failures leave states unchanged.  Otherwise it is computed in
the arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.index import symbols
from modelcc.ir.program import Program
from modelcc.ir.tensor import ReadSize, size_conditions
from modelcc.passes.program.dynamic_allocation import DynamicAllocation
from modelcc.passes.program.storage import Replaced, Storage, may_replace, storage_of
from modelcc.passes.program.timeline import Call, Timeline


def share_states(
    program: Program,
    line: Timeline,
    found: tuple[Storage, ...],
    dynamic: Sequence[DynamicAllocation],
) -> tuple[Storage, ...]:
    """Storages of states' outputs in the memory of their inputs, ``"input"``, or in the arena."""
    if not program.states:
        return found
    home = storage_of(found)
    last_end = _last_end(program, line, home, dynamic)
    placed = dict[str, Storage]()
    for output, over in replaced_by(program, line, found).items():
        storage = home[output]
        if storage.name != output or storage.place != "output":
            continue
        alike = storage.size == home[program.states[output]].size
        free = may_replace(line, storage.first, storage.tensors, over)
        inside = alike and free and storage.first > last_end
        placed[output] = replace(storage, place="input" if inside else "arena")
    moved = [placed.get(storage.name, storage) for storage in found]
    return (*moved, *_kept(program, line, storage_of(moved)))


def copied_states(program: Program, home: Mapping[str, Storage]) -> tuple[str, ...]:
    """Outputs of states that are not updated in place."""
    inside = updated_states(program, home)
    return tuple(
        output
        for output, before in program.states.items()
        if output not in inside and home[output].name != before
    )


def updated_states(program: Program, home: Mapping[str, Storage]) -> dict[str, str]:
    """Outputs of states that are updated in place, with their inputs."""
    return {
        output: before
        for output, before in program.states.items()
        if home[output].place == "input" and home[output].name == output not in program.inputs
    }


def kept(output: str) -> str:
    """Name of a copy of a state's next value, if that is the old value of another state."""
    return f"{output}.kept"


def _kept(program: Program, line: Timeline, home: Mapping[str, Storage]) -> list[Storage]:
    """Memory for such copies, from which states are then copied in sequence."""
    replaced = frozenset(program.states.values())
    names = (n for n in copied_states(program, home) if home[n].name in replaced)
    sizes = ((kept(name), home[name].size) for name in names)
    return [Storage(n, (n,), size, "arena", line.end, line.end) for n, size in sizes]


def replaced_by(program: Program, line: Timeline, found: Sequence[Storage]) -> dict[str, Replaced]:
    """The memory that the output of each state replaces."""
    home = storage_of(found) if program.states else {}
    return {
        output: Replaced(home[before].tensors, _last_need(program, line, home[before], output))
        for output, before in program.states.items()
    }


def _last_need(program: Program, line: Timeline, before: Storage, output: str) -> int:
    """The last number at which a state's old value is needed; ``line.end`` if it is an output."""
    others = [name for name in program.outputs if name != output]
    return line.end if any(name in before.tensors for name in others) else before.last


def _last_end(
    program: Program,
    line: Timeline,
    home: Mapping[str, Storage],
    dynamic: Sequence[DynamicAllocation],
) -> int:
    """The last number at which the run may end early."""
    ends = [number for number, call in line.calls.items() if may_end(program, call)]
    ends += [part.step for part in dynamic]
    for span in line.loops:
        if any(span.begin < number < span.end for number in ends):
            ends.append(span.end)
    read = frozenset(program.read_sizes)
    asked = (n for n in program.outputs if symbols(program.types[n].bytes) & read)
    late = any(home[name].name != name or home[name].place != "output" for name in asked)
    return line.end if late else max(ends, default=-1)


def may_end(program: Program, call: Call) -> bool:
    """Whether the run may end at a step, depending on data."""
    if isinstance(call, ReadSize):
        return bool(size_conditions(call, program.dims))
    return bool(call.bounds)
