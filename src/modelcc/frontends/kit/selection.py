"""Results of selection by value, allocated for the largest count, sliced to the actual one."""

from __future__ import annotations

from modelcc.frontends.kit.conversion import Conversion
from modelcc.ir.index import Index, Range
from modelcc.ops.nonzero import NonZero
from modelcc.ops.slicing import Slice
from modelcc.ops.unique import Unique


def cut(call: Conversion, x: str, axis: int, count: Index) -> str:
    """``x`` sliced to the first ``count`` along ``axis``."""
    shape = call.type_of(x).shape
    if shape[axis] == count:
        return x
    extents = (*shape[:axis], count, *shape[axis + 1 :])
    return call.emit(Slice((0,) * len(shape), extents, (1,) * len(shape)), x)


def counted(call: Conversion, count: str, most: Index) -> Index:
    """The single element of ``count``, at most ``most``, as a size."""
    label = f"{call.source[-1]}_count"
    (found,) = call.emitter.read_sizes(count, label, Range(0, most), (), call.source)
    return found


def places(call: Conversion, x: str) -> str:
    """Indices of the nonzero elements, one column each."""
    where, count = call.emitter.add_node(NonZero(), x, source=call.source)
    return cut(call, where, 1, counted(call, count, call.type_of(x).elements))


def different(
    call: Conversion, x: str, axis: int | None, ascending: bool
) -> tuple[str, str, str, str]:
    """The unique slices, the first index of each, the inverse indices, and the counts."""
    results = call.emitter.add_node(Unique(axis, ascending), x, source=call.source)
    values, first, inverse, counts, count = results
    size = counted(call, count, call.type_of(inverse).shape[0])
    own = [cut(call, values, axis or 0, size)]
    own += [cut(call, line, 0, size) for line in (first, counts)]
    return own[0], own[1], inverse, own[2]
