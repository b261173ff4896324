"""Ops with data-dependent result sizes: ONNX's results are not padded."""

from __future__ import annotations

from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.writing import OnnxWriting, Settings
from modelcc.ir.types import I64
from modelcc.ops.fourier import FourierTransform
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.suppression import NonMaxSuppression
from modelcc.ops.top_k import TopK
from modelcc.ops.unique import Unique


def read_size(at: OnnxWriting, op: ReadSize) -> OnnxValue:
    """Binds its elements to symbols.  Runtimes check sizes themselves."""
    x = at.input()
    flat = x if at.type().rank == 1 else at.node("Reshape", x, at.build.ints(-1))
    for number, name in enumerate(op.names):
        place = at.build.ints(number)
        at.build.symbols[name] = at.node("Gather", flat, place, axis=0)
    return x


def non_zero(at: OnnxWriting, op: object) -> tuple[OnnxValue, ...]:
    found = at.node("NonZero", at.input(), dtype=I64)
    return _filled(at, found, 1, 0), at.build.extent(found, 1)


def unique(at: OnnxWriting, op: Unique) -> tuple[OnnxValue, ...]:
    x, axis = at.input(), 0 if op.axis is None else op.axis
    dtypes = [x.dtype, I64, I64, I64]
    settings: Settings = {"axis": op.axis, "sorted": int(op.sorted)}
    values, first, like, often = at.build.node_of("Unique", [x], dtypes, **settings)
    count = at.build.extent(first, 0)
    whole = (_filled(at, v, n, place) for v, n, place in ((values, axis, 0), (first, 0, 1)))
    return (*whole, like, _filled(at, often, 0, 3), count)


def kept_boxes(at: OnnxWriting, op: NonMaxSuppression) -> tuple[OnnxValue, ...]:
    centered = int(op.centered)
    found = at.node("NonMaxSuppression", *at.inputs, dtype=I64, center_point_box=centered)
    return _filled(at, found, 0, 0), at.build.extent(found, 0)


def _filled(at: OnnxWriting, x: OnnxValue, axis: int, result: int) -> OnnxValue:
    """``x`` zero-padded along ``axis`` to the extent of the op's result."""
    type = at.results[result]
    room = at.sizes.one(type.shape[axis])
    missing = at.node("Sub", room, at.build.extent(x, axis))
    before = at.build.ints(*(0,) * (type.rank + axis))
    after = at.build.ints(*(0,) * (type.rank - axis - 1)) if axis + 1 < type.rank else None
    parts = [p for p in (before, missing, after) if p is not None]
    amounts = at.node("Concat", *parts, axis=0)
    return at.node("Pad", x, amounts, at.build.number(0, x.dtype), mode="constant")


def top(at: OnnxWriting, op: TopK) -> tuple[OnnxValue, ...]:
    operands = [at.input(), at.sizes.one(op.k)]
    dtypes = [t.dtype for t in at.results]
    settings: Settings = {"axis": op.axis, "largest": int(op.largest), "sorted": 1}
    return at.build.node_of("TopK", operands, dtypes, **settings)


def fourier(at: OnnxWriting, op: FourierTransform) -> OnnxValue:
    """Without tables.  ONNX scales if and only if the transform is inverse."""
    x = at.input()
    if op.real:
        x = at.node("Unsqueeze", x, at.build.ints(-1))
    axis = at.build.number(1, I64)
    settings: Settings = {"inverse": int(op.inverse), "onesided": int(op.real)}
    found = at.node("DFT", x, at.sizes.scalar(op.length), axis, **settings)
    if op.divided == op.inverse:
        return found
    length = at.cast(at.sizes.one(op.length), x.dtype)
    return at.node("Div" if op.divided else "Mul", found, length)
