"""Which tensors share memory, where that memory lies, and during which steps it is needed.

Steps are numbered as in :mod:`modelcc.passes.program.timeline`; views compute nothing.  A
*storage* is one buffer with all tensors that live in it: a tensor, its views, and later
(:func:`share_in_place`) results computed over an operand that is read for the last time::

    %h = arena …            storage "h": h, v (a view), y; steps 0 … 2
    launch @conv(%x, %h)    step 0
    %v = view %h
    launch @pool(%v, %p)    step 1
    launch @relu(%v, %y)    step 2, in place
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.ir.index import Index, symbols
from modelcc.ir.program import Place
from modelcc.ir.scheduled import KernelCall, ScheduledProgram
from modelcc.ir.tensor import ReadSize
from modelcc.passes.program.timeline import Timeline


@dataclass(frozen=True)
class Storage:
    """One buffer: ``size`` in bytes, needed from step ``first`` to step ``last`` inclusive.

    ``name`` is one of ``tensors``: the input, constant or output itself, else the first one
    written.  Inputs and constants exist from step -1 on; outputs stay to the step after the last.
    ``within`` tells where in the buffer those tensors start that are not at its start.
    """

    name: str
    tensors: tuple[str, ...]
    size: Index
    place: Place
    first: int
    last: int
    within: Mapping[str, Index] = field(default_factory=dict[str, Index], hash=False)


def storages(program: ScheduledProgram, line: Timeline) -> tuple[Storage, ...]:
    """Every buffer a step or the caller touches; a view lives in its base's."""
    groups = {name: [name] for name in (*program.inputs, *program.constants, *line.touches)}
    for view, base in line.bases.items():
        groups.setdefault(base, [base]).append(view)
    return tuple(_storage(program, line, base, tuple(names)) for base, names in groups.items())


def _storage(
    program: ScheduledProgram, line: Timeline, base: str, tensors: tuple[str, ...]
) -> Storage:
    needed = line.needed(base)
    first, last = needed or (-1, -1)
    size = program.types[base].bytes
    if base in program.inputs:
        return Storage(base, tensors, size, "input", -1, last)
    if base in program.constants:
        return Storage(base, tensors, size, "constant", -1, last)
    if needed is None:
        raise ValueError(f"{program.name}: no kernel writes tensor '{base}', which is used")
    read = frozenset(program.read_sizes)
    known = symbols(size)
    output = next(
        (
            name
            for name in program.outputs
            if name in tensors and symbols(program.types[name].bytes) & read <= known
        ),
        None,
    )
    if output is None:
        copied = not set(tensors).isdisjoint(program.outputs)
        return Storage(base, tensors, size, "arena", first, line.end if copied else last)
    return Storage(output, tensors, size, "output", first, line.end)


def storage_of(found: Sequence[Storage]) -> dict[str, Storage]:
    """Tensor name to its storage."""
    return {name: storage for storage in found for name in storage.tensors}


def share_in_place(line: Timeline, found: Sequence[Storage]) -> tuple[Storage, ...]:
    """Storages after letting kernels write over operands they are the last to read.

    Only memory of our own is written over: arena storages that die in the step.  If the result is
    a graph output, the operand is computed in the caller's output buffer already.
    """
    home = storage_of(found)
    for step, call in line.calls.items():
        for output, operand in call.in_place:
            target, source = home[output], home[operand]
            if _may_share(step, call, output, operand, target, source, home):
                _merge(home, target, source)
    return tuple(dict.fromkeys(home.values()))


def _may_share(
    step: int,
    call: KernelCall | ReadSize,
    output: str,
    operand: str,
    target: Storage,
    source: Storage,
    home: Mapping[str, Storage],
) -> bool:
    others = {home[n].name for n in call.arguments if n not in (output, operand)}
    return (
        source.place == "arena"
        and target.place in ("arena", "output")
        and target.name != source.name
        and source.last == step
        and target.first == step
        and target.size == source.size
        and target.name not in others
        and source.name not in others
    )


def _merge(home: dict[str, Storage], target: Storage, source: Storage) -> None:
    keeper = target if target.place == "output" else source
    merged = replace(
        keeper,
        tensors=source.tensors + target.tensors,
        first=source.first,
        last=target.last,
    )
    home.update(dict.fromkeys(merged.tensors, merged))
