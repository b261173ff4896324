"""Handlers of what selects by value: top-k, non-zero, compress, unique, suppression of boxes.

The ops give results with room for the most there can be, and a count; the count is read as a
size, and the results are cut to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.conversion import bytes_of_bools, computed_in
from modelcc.ir.index import Index, Range, minimum, product
from modelcc.ir.types import Array
from modelcc.ops import shape as sh
from modelcc.ops.gather import Gather
from modelcc.ops.nonzero import NonZero
from modelcc.ops.suppression import NonMaxSuppression
from modelcc.ops.top_k import TopK
from modelcc.ops.unique import Unique


def _cut(call: Call, x: str, axis: int, count: Index) -> str:
    """``x`` up to ``count`` along ``axis``."""
    shape = call.type_of(x).shape
    if shape[axis] == count:
        return x
    extents = (*shape[:axis], count, *shape[axis + 1 :])
    return call.emit(sh.Slice((0,) * len(shape), extents, (1,) * len(shape)), x)


def _count(call: Call, count: str, most: Index) -> Index:
    (found,) = call.emitter.read_sizes(
        count, f"{call.source[-1]}_count", Range(0, most), (), call.source
    )
    return found


def top_k(call: Call) -> Sequence[str]:
    axis = call.axis(-1)
    extent = call.shape()[axis]
    k: Index
    k = call.attrs.integer("k") if call.opset < 10 else call.index(1, "k", Range(0, extent))
    return call.add(TopK(k, axis, call.attrs.flag("largest", True)), call.input(0))


def non_zero(call: Call) -> str:
    return _places(call, call.input(0))


def _places(call: Call, x: str) -> str:
    where, count = call.emitter.add_node(NonZero(), x, source=call.source)
    return _cut(call, where, 1, _count(call, count, call.type_of(x).elements))


def compress(call: Call) -> str:
    x, axis = call.input(0), 0
    if call.attrs.has("axis"):
        axis = call.axis()
    else:
        x = call.emit(sh.Reshape((product(call.shape()),)), x)
    known = call.known(1)
    if known is not None:
        chosen = np.flatnonzero(known.reshape(-1)).astype(np.int64)
        return call.emit(Gather(axis), x, call.constant(chosen))
    extent, given = call.type_of(x).shape[axis], call.shape(1)[0]
    condition = _cut(call, call.input(1), 0, minimum(extent, given))
    places = _places(call, condition)
    kept = call.emit(sh.Reshape((call.type_of(places).shape[1],)), places)
    return call.emit(Gather(axis), x, kept)


def unique(call: Call) -> Sequence[str]:
    axis = call.axis() if call.attrs.has("axis") else None
    return different(call, axis, call.attrs.flag("sorted", True))


def different(call: Call, axis: int | None, ascending: bool) -> tuple[str, str, str, str]:
    """The different slices, where each is first, which one each slice is, and their numbers."""
    op = Unique(axis, ascending)
    results = call.emitter.add_node(op, call.input(0), source=call.source)
    values, first, inverse, counts, count = results
    extent = call.type_of(inverse).shape[0]
    size = _count(call, count, extent)
    cut = [_cut(call, values, axis or 0, size)]
    cut += [_cut(call, line, 0, size) for line in (first, counts)]
    return cut[0], cut[1], inverse, cut[2]


def suppression(call: Call) -> str:
    boxes, scores = call.shape(0), call.shape(1)
    if len(boxes) != 3 or len(scores) != 3:
        call.fail(f"boxes {call.type(0)} and scores {call.type(1)} must have three axes each")
    call.emitter.require([(boxes[2], "==", 4), (boxes[1], "==", scores[2])], call.source, True)
    limit: Index = boxes[1]
    known = call.known(2)
    if known is not None:
        most = int(known.reshape(-1)[0])
        limit = minimum(limit, max(most, 0))
    operands = [
        _scalar(call, 2, np.zeros(1, np.int64)),
        _scalar(call, 3, np.zeros(1, np.float32)),
        _scalar(call, 4, None),
    ]
    op = NonMaxSuppression(limit, call.attrs.flag("center_point_box"))
    overlap = call.known(3) if call.has(3) else None
    if overlap is not None and not 0 <= overlap.reshape(-1)[0] <= 1:
        call.fail(f"the overlap {overlap.reshape(-1)[0]} is not within [0, 1]")
    rows, count = call.emitter.add_node(
        op, _cut(call, call.input(0), 2, 4), call.input(1), *operands, source=call.source
    )
    return _cut(call, rows, 0, _count(call, count, scores[0] * scores[1] * limit))


def _scalar(call: Call, i: int, default: Array | None) -> str:
    """Operand ``i`` as a vector of one."""
    if not call.has(i):
        return "" if default is None else call.constant(default)
    return call.emit(sh.Reshape((1,)), call.input(i))


SELECTION = table(
    TopK=top_k,
    NonZero=non_zero,
    Compress=compress,
    Unique=computed_in(bytes_of_bools, unique),
    NonMaxSuppression=suppression,
)
