"""If with a condition computed at run time: results of both branches are brought to the same types.

Sequences and optional values are passed as the tensors they consist of.  A tensor whose extents
differ is passed flattened, padded to the larger size, with its extents, which are then read as
sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelcc.frontends.kit.body import Body
from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.groups import MapValue
from modelcc.ir.index import Index, Range, maximum, product, symbols
from modelcc.ir.types import BOOL, I64, STRING
from modelcc.ops.control import If
from modelcc.ops.padding import Pad
from modelcc.ops.shape import Reshape
from modelcc.ops.slicing import Slice


def chosen(
    call: Conversion, condition: str, then: Body, other: Body, names: Sequence[str]
) -> tuple[str, ...]:
    """The results of ``then`` if ``condition`` holds, else those of ``other``.

    ``names`` are the user's names of the results.
    """
    pairs: list[_Pair] = []
    for name, a, b in zip(names, then.outputs, other.outputs, strict=True):
        if _form(a, then.emitter) != _form(b, other.emitter):
            unsupported(f"its branches give {name!r} different structures")
        leaves = zip(_leaves(a, then.emitter), _leaves(b, other.emitter), strict=True)
        pairs += [_pair(call, name, x, y, then.emitter, other.emitter) for x, y in leaves]
    captured = tuple(dict.fromkeys((*then.captured, *other.captured)))
    for body in (then, other):
        for value in captured:
            body.capture(value)
    sides = ([v for p in pairs for v in p.then], [v for p in pairs for v in p.other])
    graphs = (body.graph(side, captured) for body, side in zip((then, other), sides, strict=True))
    results = iter(call.add(If(*graphs), condition, *captured))
    tensors = iter([_taken(call, pair, results) for pair in pairs])
    return tuple(_rebuilt(a, then.emitter, call, tensors) for a in then.outputs)


@dataclass(frozen=True)
class _Pair:
    """A tensor that both branches yield: as it is, or flattened with its ``extents``."""

    name: str
    then: tuple[str, ...]
    other: tuple[str, ...]
    extents: tuple[Range, ...] | None = None


def _pair(call: Conversion, name: str, a: str, b: str, then: Emitter, other: Emitter) -> _Pair:
    first, second = then.type_of(a), other.type_of(b)
    if first == second:
        return _Pair(name, (a,), (b,))
    sizes = [product(type.shape) for type in (first, second)]
    known = all(symbols(size) <= call.bounds.keys() for size in sizes)
    if first.rank != second.rank or first.dtype != second.dtype or not known:
        unsupported(f"its branches give {name!r} different types, {first} and {second}")
    room = maximum(*sizes)
    extents = tuple(map(_either, first.shape, second.shape))
    return _Pair(name, _flat(then, a, room), _flat(other, b, room), extents)


def _either(a: Index, b: Index) -> Range:
    if isinstance(a, int) and isinstance(b, int):
        return Range(min(a, b), max(a, b))
    return Range(0, None)


def _flat(emitter: Emitter, value: str, room: Index) -> tuple[str, str]:
    type = emitter.type_of(value)
    size = product(type.shape)
    line = emitter.emit(Reshape((size,)), value)
    if type.dtype == STRING and room != size:
        unsupported("its branches give texts in different numbers")
    fill = False if type.dtype == BOOL else 0.0 if type.dtype.is_float else 0
    padded = emitter.emit(Pad((0,), (room - size,), "constant", fill), line)
    return padded, emitter.note_indices(type.shape, I64)


def _taken(call: Conversion, pair: _Pair, results: Iterator[str]) -> str:
    value = next(results)
    if pair.extents is None:
        return value
    label = f"{pair.name}_extent"
    shape = call.emitter.read_sizes(next(results), label, pair.extents, (), call.source)
    line = call.emit(Slice((0,), (product(shape),), (1,)), value)
    return call.emit(Reshape(shape), line)


def _leaves(value: str, emitter: Emitter) -> list[str]:
    """The tensors that a value consists of."""
    group = emitter.find_group(value)
    if group is None:
        return [value]
    if isinstance(group, MapValue):
        unsupported("a branch of it gives a map")
    return [leaf for part in group.parts for leaf in _leaves(part, emitter)]


def _form(value: str, emitter: Emitter) -> object:
    """Equal for values of the same structure."""
    group = emitter.find_group(value)
    if group is None or isinstance(group, MapValue):
        return type(group)
    parts = tuple(_form(part, emitter) for part in group.parts)
    return group.of([""] * len(parts)), parts


def _rebuilt(value: str, emitter: Emitter, call: Conversion, tensors: Iterator[str]) -> str:
    """A value of the structure of ``value`` from its tensors."""
    group = emitter.find_group(value)
    if group is None:
        return next(tensors)
    return call.group(group.of([_rebuilt(part, emitter, call, tensors) for part in group.parts]))
