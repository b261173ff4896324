"""Handlers of selection by value: top-k, non-zero, compress, unique, non-maximum suppression.

The ops' results are allocated for the maximum count, and sliced to the actual one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelcc.frontends.kit.selection import counted, cut, different, places
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.standard.conversion import bytes_of_bools, computed_in
from modelcc.ir.index import Index, Range, minimum, product
from modelcc.ir.types import Array
from modelcc.ops import shape as sh
from modelcc.ops.gather import Gather
from modelcc.ops.suppression import NonMaxSuppression
from modelcc.ops.top_k import TopK


def top_k(call: Call) -> Sequence[str]:
    axis = call.axis(-1)
    extent = call.shape()[axis]
    k: Index
    k = call.attrs.integer("k") if call.opset < 10 else call.index(1, "k", Range(0, extent))
    return call.add(TopK(k, axis, call.attrs.flag("largest", True)), call.input(0))


def non_zero(call: Call) -> str:
    return places(call, call.input(0))


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
    condition = cut(call, call.input(1), 0, minimum(extent, given))
    found = places(call, condition)
    kept = call.emit(sh.Reshape((call.type_of(found).shape[1],)), found)
    return call.emit(Gather(axis), x, kept)


def unique(call: Call) -> Sequence[str]:
    axis = call.axis() if call.attrs.has("axis") else None
    return different(call, call.input(0), axis, call.attrs.flag("sorted", True))


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
        op, cut(call, call.input(0), 2, 4), call.input(1), *operands, source=call.source
    )
    return cut(call, rows, 0, counted(call, count, scores[0] * scores[1] * limit))


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
