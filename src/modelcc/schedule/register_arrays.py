"""Nests with own variables, unrolled: their elements in registers or memory.

Own variables are constants here, so offsets are affine once and then moved by constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product as cartesian

from modelcc.ir.index import Index, Sym, coefficient, substitute, symbols
from modelcc.ir.loop import Expr, Store
from modelcc.ir.scalar_tree import reads, walk
from modelcc.ir.tensor import Bind, Read
from modelcc.schedule.expression import PointEmitter
from modelcc.schedule.lanes import Access, Lanes, repeats, widen
from modelcc.schedule.nest import Nest
from modelcc.schedule.parallel import Point
from modelcc.schedule.structure import Group


def emit_array(
    group: Group, nest: Nest, emitter: PointEmitter, corner: Point, internal: Mapping[str, Expr]
) -> None:
    """Emits the elements of ``nest`` of ``group`` at ``corner``, in order or where they are
    read."""
    names = [v.name for v in nest.own]
    known: dict[tuple[Index, ...], Expr] = {}
    _find_accesses(nest, emitter, corner, names)

    def element(place: tuple[Index, ...]) -> Expr:
        if place not in known:
            point = {**corner, **dict(zip(names, place, strict=True))}
            known[place] = emitter.name("v", emitter.emit(nest.body, point, internal))
        return known[place]

    emitter.arrays[nest.output] = element
    if _is_made_where_read(group, nest):
        return
    stored = nest.output in group.stored
    count = 1 if emitter.lanes is None else emitter.lanes.count
    access = _access(nest.output, nest.store, emitter.lanes, corner, names) if stored else None
    for place in cartesian(*(range(v.extent) for v in nest.own if isinstance(v.extent, int))):
        value, point = element(place), dict(zip(names, place, strict=True))
        moved = None if access is None else access.at(point)
        if access is not None and moved is not None:
            wide, offset = widen(value, count), access.start + moved
            store = Store(nest.output, offset, wide, access.stride, access.active)
            emitter.statements.append(store)
        elif stored:
            store = store_at(nest, value, {**corner, **point}, emitter.lanes)
            emitter.statements.append(store)


def store_at(nest: Nest, value: Expr, point: Point, lanes: Lanes | None) -> Store:
    """The store of the value of ``nest`` at ``point``."""
    offset = substitute(nest.store, point)
    if lanes is None:
        return Store(nest.output, offset, value)
    base, stride = lanes.split(offset)
    active = lanes.active_for(nest.output)
    active = substitute(active, point) if active is not None else None
    return Store(nest.output, base, widen(value, lanes.count), stride, active)


def _find_accesses(nest: Nest, emitter: PointEmitter, corner: Point, names: Sequence[str]) -> None:
    """Registers the reads of ``nest`` from memory with ``emitter``, except those at indices from
    memory."""
    nodes = list(walk(nest.body))
    if any(isinstance(node, Bind) for node in nodes):
        return
    for read in nodes:
        if isinstance(read, Read) and read.tensor not in emitter.arrays and len(read.indices) == 1:
            access = _access(read.tensor, read.indices[0], emitter.lanes, corner, names)
            if access is not None:
                emitter.accesses[read] = access


def _access(
    buffer: str, offset: Index, lanes: Lanes | None, corner: Point, names: Sequence[str]
) -> Access | None:
    found = {name: coefficient(offset, name) for name in names}
    steps = tuple((n, step) for n, step in found.items() if isinstance(step, int))
    if len(steps) < len(found):
        return None
    start = substitute(offset, {**corner, **dict.fromkeys(names, 0)})
    moved = start if isinstance(start, int) else start.const
    if lanes is None or lanes.variable not in symbols(start):
        return Access(start - moved, moved, steps, 1, 1, None)
    if repeats(start, lanes.variable, lanes.count) is not None:
        return None
    start, stride = lanes.split(start)
    active = lanes.active_for(buffer)
    active = substitute(active, corner) if active is not None else None
    return Access(start - moved, moved, steps, lanes.count, stride, active)


def _is_made_where_read(group: Group, nest: Nest) -> bool:
    """Whether the next nest reads an array in the order of its elements: fusing them saves
    registers."""
    nests = group.nests
    following = nests[nests.index(nest) + 1 :][:1]
    if nest.output in group.stored or not following or not following[0].own:
        return False
    found = [r for r in reads(following[0].body) if r.tensor == nest.output]
    return bool(found) and all(r.indices[0] == Sym(following[0].own[0].name) for r in found)
