"""Results of what selects by value, which have room for the most there can be, cut to a count."""

from __future__ import annotations

from modelcc.frontends.kit.conversion import Conversion
from modelcc.ir.index import Index, Range
from modelcc.ops.nonzero import NonZero
from modelcc.ops.slicing import Slice
from modelcc.ops.unique import Unique


def cut(call: Conversion, x: str, axis: int, count: Index) -> str:
    """``x`` up to ``count`` along ``axis``."""
    shape = call.type_of(x).shape
    if shape[axis] == count:
        return x
    extents = (*shape[:axis], count, *shape[axis + 1 :])
    return call.emit(Slice((0,) * len(shape), extents, (1,) * len(shape)), x)


def counted(call: Conversion, count: str, most: Index) -> Index:
    """The one element of ``count``, which is at most ``most``, as a size."""
    label = f"{call.source[-1]}_count"
    (found,) = call.emitter.read_sizes(count, label, Range(0, most), (), call.source)
    return found


def places(call: Conversion, x: str) -> str:
    """Indices of the elements that are not 0, a column for each."""
    where, count = call.emitter.add_node(NonZero(), x, source=call.source)
    return cut(call, where, 1, counted(call, count, call.type_of(x).elements))


def different(
    call: Conversion, x: str, axis: int | None, ascending: bool
) -> tuple[str, str, str, str]:
    """The different slices, where each is first, which one each slice is, and their numbers."""
    results = call.emitter.add_node(Unique(axis, ascending), x, source=call.source)
    values, first, inverse, counts, count = results
    size = counted(call, count, call.type_of(inverse).shape[0])
    own = [cut(call, values, axis or 0, size)]
    own += [cut(call, line, 0, size) for line in (first, counts)]
    return own[0], own[1], inverse, own[2]
