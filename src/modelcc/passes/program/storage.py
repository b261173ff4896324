"""Assignment of tensors to shared buffers, their locations and live ranges.

Steps are numbered as in :mod:`modelcc.passes.program.timeline`; views compute nothing.  A
*storage* is one buffer with all tensors that live in it: a tensor, its views, and later
(:func:`share_in_place`) results that overwrite an operand which is read for the last time::

    %h = arena …            storage "h": h, v (a view), y; steps 0 … 2
    launch @conv(%x, %h)    step 0
    %v = view %h
    launch @pool(%v, %p)    step 1
    launch @relu(%v, %y)    step 2, in place
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.ir.index import Bounds, Index, bounds_of, maximum, symbols
from modelcc.ir.program import Launch, Place, Program
from modelcc.passes.program.timeline import Call, Timeline


@dataclass(frozen=True)
class Storage:
    """One buffer: ``size`` in bytes, needed from step ``first`` to step ``last`` inclusive.

    ``name`` is one of ``tensors``: the input, constant or output itself, else the first one
    written.  Inputs, constants and counters of arrivals are live from step -1 on; outputs to the
    step after the last.  ``within`` has offsets of tensors that do not start at the buffer's start.
    """

    name: str
    tensors: tuple[str, ...]
    size: Index
    place: Place
    first: int
    last: int
    within: Mapping[str, Index] = field(default_factory=dict[str, Index], hash=False)


def storages(program: Program, line: Timeline) -> tuple[Storage, ...]:
    """Every buffer that a step or the caller accesses; a view is in its base's.

    A size that is negative for some dimensions, as in a branch not taken for these, counts as 0.
    """
    sizes = _StorageSizes(line.bounds(program.dims))
    groups = {
        name: [name]
        for name in (*program.inputs, *program.constants, *program.arrivals, *line.touches)
    }
    for view, base in line.bases.items():
        groups.setdefault(base, [base]).append(view)
    roots = _Roots.of(program)
    return tuple(
        _storage(program, roots, line, base, tuple(names), sizes.of(program.types[base].bytes))
        for base, names in groups.items()
    )


class _StorageSizes:
    """Sizes of buffers, none of them negative."""

    def __init__(self, dims: Bounds) -> None:
        self._dims = dims
        self._known: dict[Index, Index] = {}

    def of(self, bytes: Index) -> Index:
        if isinstance(bytes, int):
            return bytes
        if bytes not in self._known:
            least = bounds_of(bytes, self._dims).lo
            sure = least is not None and least >= 0
            self._known[bytes] = bytes if sure else maximum(0, bytes)
        return self._known[bytes]


@dataclass(frozen=True)
class _Roots:
    """The caller's arguments, results with their locations, and symbols that steps read."""

    inputs: frozenset[str]
    outputs: Mapping[str, int]
    read: frozenset[str]

    @staticmethod
    def of(program: Program) -> _Roots:
        return _Roots(
            frozenset(program.inputs),
            {name: place for place, name in reversed(list(enumerate(program.outputs)))},
            frozenset(program.read_sizes),
        )


def _storage(
    program: Program,
    roots: _Roots,
    line: Timeline,
    base: str,
    tensors: tuple[str, ...],
    size: Index,
) -> Storage:
    kept = base in program.constants or base in program.arrivals
    given = kept or base in roots.inputs
    needed = line.needed(base, given)
    first, last = needed or (-1, -1)
    if base in roots.inputs:
        return Storage(base, tensors, size, "input", -1, last)
    if kept:
        place = "constant" if base in program.constants else "arrivals"
        return Storage(base, tensors, size, place, -1, last)
    if needed is None:
        raise ValueError(f"{program.name}: no kernel writes tensor '{base}', which is used")
    returned = [name for name in tensors if name in roots.outputs]
    available = symbols(size)
    fitting = (n for n in returned if symbols(program.types[n].bytes) & roots.read <= available)
    output = min(fitting, key=roots.outputs.__getitem__, default=None)
    if output is None:
        copied = bool(returned)
        return Storage(base, tensors, size, "arena", first, line.end if copied else last)
    return Storage(output, tensors, size, "output", first, line.end)


def storage_of(found: Sequence[Storage]) -> dict[str, Storage]:
    """Tensor name to its storage."""
    return {name: storage for storage in found for name in storage.tensors}


@dataclass(frozen=True)
class Replaced:
    """What the output of a state replaces: tensors, and the last number at which one is needed."""

    tensors: tuple[str, ...]
    last: int


def share_in_place(
    line: Timeline, found: Sequence[Storage], states: Mapping[str, Replaced]
) -> tuple[Storage, ...]:
    """Storages after letting kernels overwrite operands that they read last.

    Only memory of the program itself is overwritten: arena storages that die in the step.  If the
    result is a graph output, the operand is already computed in the caller's output buffer; outputs
    of ``states`` only merge with tensors that are computed when these may be overwritten.
    """
    shared = _Shared(found)
    for step, call in line.calls.items():
        for output, operand in call.in_place if isinstance(call, Launch) else ():
            target, source = shared.of(output), shared.of(operand)
            over, first = states.get(target.storage.name), source.storage.first
            if over is not None and not may_replace(line, first, source.tensors, over):
                continue
            if _may_share(step, call, output, operand, target, source, shared):
                shared.merge(target, source)
    return shared.storages()


def may_replace(line: Timeline, first: int, tensors: Sequence[str], over: Replaced) -> bool:
    """Whether ``tensors``, which are first written at ``first``, may overwrite a state."""
    if first != over.last:
        return first > over.last
    call = line.calls.get(first)
    if not isinstance(call, Launch):
        carries = (c for span in line.loops if span.begin == first for c in span.loop.carries)
        return any(c.initial in over.tensors and c.state in tensors for c in carries)
    touched = {n for n in call.arguments if n in tensors or n in over.tensors}
    return any(
        output in tensors and operand in over.tensors and touched == {output, operand}
        for output, operand in call.in_place
    )


@dataclass
class _Joined:
    """A storage being merged: its current extent, and the tensors merged into it."""

    storage: Storage
    tensors: list[str]
    into: _Joined | None = None


class _Shared:
    """Storages being merged; merging a chain takes time linear in its length."""

    def __init__(self, found: Sequence[Storage]) -> None:
        self._all = [_Joined(storage, list(storage.tensors)) for storage in found]
        self._home = {name: joined for joined in self._all for name in joined.tensors}

    def of(self, tensor: str) -> _Joined:
        """The merged storage of ``tensor``."""
        storage = self._home[tensor]
        while storage.into is not None:
            storage = storage.into
        self._home[tensor] = storage
        return storage

    def merge(self, target: _Joined, source: _Joined) -> None:
        """Merges ``target`` into ``source``, at whose death the live range of ``target`` begins."""
        output = target.storage.place == "output"
        keeper = target.storage if output else source.storage
        first, last = source.storage.first, target.storage.last
        source.storage = replace(keeper, tensors=(), first=first, last=last)
        source.tensors += target.tensors
        target.into = source

    def storages(self) -> tuple[Storage, ...]:
        """The remaining storages, in order."""
        left = [joined for joined in self._all if joined.into is None]
        return tuple(replace(joined.storage, tensors=tuple(joined.tensors)) for joined in left)


def _may_share(
    step: int,
    call: Call,
    output: str,
    operand: str,
    target: _Joined,
    source: _Joined,
    shared: _Shared,
) -> bool:
    mine, theirs = source.storage, target.storage
    others = [shared.of(n) for n in call.arguments if n not in (output, operand)]
    return (
        mine.place == "arena"
        and theirs.place in ("arena", "output")
        and target is not source
        and mine.last == step
        and theirs.first == step
        and theirs.size == mine.size
        and not any(other is target or other is source for other in others)
    )
