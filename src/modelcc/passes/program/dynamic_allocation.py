"""Memory whose size depends on data: bounded from above, or allocated while the program runs.

A tensor of ``k`` elements, where ``k`` is read from memory and ``0 <= k <= n``, is given the space
of ``n`` elements in the arena.  Without an upper bound it goes to a *segment*, which the host
allocates as soon as ``k`` is known.  Outputs are always allocated: they are returned at their exact
size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, Index, ceildiv, symbols
from modelcc.ir.index_upper import upper_bound
from modelcc.ir.memory_rules import ALIGNMENT
from modelcc.ir.program import Program
from modelcc.ir.tensor import ReadSize
from modelcc.passes.program.storage import Storage
from modelcc.passes.program.timeline import Timeline


def aligned(size: Index, alignment: int = ALIGNMENT) -> Index:
    """``size`` rounded up to a multiple of the alignment."""
    return ceildiv(size, alignment) * alignment


@dataclass(frozen=True)
class DynamicAllocation:
    """``size`` bytes called ``name``, an output or a segment, allocated after ``step``.

    ``offsets`` are those of the ``storages`` of a segment within it.
    """

    name: str
    size: Index
    step: int
    storages: tuple[str, ...] = ()
    offsets: Mapping[str, Index] = field(default_factory=dict[str, Index])


def bounded(program: Program, storages: Sequence[Storage], line: Timeline) -> list[Storage]:
    """Storages with sizes in terms of the inputs' dimensions, where these bound them.

    Dimensions with an upper bound count as that, so the arena of a model whose dimensions are all
    bounded is static.  :class:`ModelError` if a size depends on the counter of a loop and has no
    bound.
    """
    inner, dims = _inner_symbols(program, line)
    limited = frozenset(name for name, bounds in dims.items() if isinstance(bounds.hi, int))

    def most(size: Index) -> Index | None:
        greatest = _upper(size, inner | limited, dims)
        return _upper(size, inner, dims) if greatest is None else greatest

    return [replace(s, size=most(s.size) or _late(s, line)) for s in storages]


def _inner_symbols(program: Program, line: Timeline) -> tuple[frozenset[str], Bounds]:
    """Symbols without a value before the program runs, and bounds of all symbols."""
    counters = {span.loop.counter for span in line.loops}
    return frozenset(program.read_sizes) | counters, line.bounds(program.dims)


def _late(storage: Storage, line: Timeline) -> Index:
    counters = {span.loop.counter for span in line.loops}
    if symbols(storage.size) & counters:
        raise ModelError(
            f"the size of {storage.name!r}, {storage.size} bytes, changes from one iteration of a "
            "loop to the next, and has no bound"
        )
    return storage.size


def dynamic_allocations(
    program: Program, storages: Sequence[Storage], line: Timeline, alignment: int = ALIGNMENT
) -> tuple[DynamicAllocation, ...]:
    """Allocations by the host, in the order of steps."""
    gone = frozenset(program.read_sizes)
    if not gone:
        return ()
    inner, dims = _inner_symbols(program, line)
    parts: list[DynamicAllocation] = []
    waiting: dict[int, list[Storage]] = {}
    for storage in storages:
        # The tensor that an output is a view of may have other extents.
        extents = symbols_of(program.types[storage.name].shape) | symbols(storage.size)
        if storage.place == "output" and extents & gone:
            step = _known_after(line, storage, extents)
            parts.append(DynamicAllocation(storage.name, storage.size, step))
        elif not symbols(storage.size) & gone:
            continue
        elif storage.place == "arena" and _upper(storage.size, inner, dims) is None:
            step = _known_after(line, storage, symbols(storage.size))
            waiting.setdefault(step, []).append(storage)
    names = (f"segment{number}" for number in range(1, len(waiting) + 1))
    parts += [
        _segment(n, step, waiting[step], alignment) for n, step in zip(names, waiting, strict=True)
    ]
    return tuple(sorted(parts, key=lambda part: part.step))


def _upper(size: Index, gone: frozenset[str], dims: Bounds) -> Index | None:
    return upper_bound(size, gone, dims) if symbols(size) & gone else size


def symbols_of(shape: Sequence[Index]) -> frozenset[str]:
    """Symbols of all extents, even of a tensor without elements."""
    return frozenset[str]().union(*map(symbols, shape))


def _known_after(line: Timeline, storage: Storage, names: frozenset[str]) -> int:
    """The step that reads the last of ``names``, symbols in a storage's shape; -1 if it is none.

    Immediately following reads and constraints, before the storage is used, are included.
    """
    read, calls = line.read_at, line.calls
    last = max((read[name] for name in names if name in read), default=-1)
    while 0 <= last < storage.first - 1 and isinstance(calls.get(last + 1), ReadSize):
        last += 1
    return last


def _segment(
    name: str, step: int, storages: Sequence[Storage], alignment: int
) -> DynamicAllocation:
    """Storages that are live at once are disjoint; space of dead ones is reused."""
    offsets: dict[str, Index] = {}
    size: Index = 0
    taken: dict[Index, list[tuple[int, str]]] = {}  # by size: last step, and owner of the space
    for storage in sorted(storages, key=lambda s: (s.first, s.name)):
        wanted = aligned(storage.size, alignment)
        places = taken.setdefault(wanted, [])
        if places and places[0][0] < storage.first:
            offsets[storage.name] = offsets[heappop(places)[1]]
        else:
            offsets[storage.name] = size
            size = size + wanted
        heappush(places, (storage.last, storage.name))
    return DynamicAllocation(name, size, step, tuple(s.name for s in storages), offsets)
