"""Shapes, slices and pads: data movement and creation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.types import element_type
from modelcc.exporters.onnx.writing import OnnxWriting
from modelcc.ir.index import Index
from modelcc.ir.types import BOOL, I64
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.generate import EyeLike, Full, Indices, Iota
from modelcc.ops.late_tile import LateTile
from modelcc.ops.padding import Pad
from modelcc.ops.shape import Tile, Transpose, Trilu
from modelcc.ops.slicing import At, ReplaceSlice, Slice, Unslice

_LEAST = -(2**62)
"""An end before the first element."""


def reshape(at: OnnxWriting, op: Reshape) -> OnnxValue:
    return at.reshape(at.input(), op.shape)


def expand(at: OnnxWriting, op: Expand) -> OnnxValue:
    return at.expand(at.input(), op.shape)


def transpose(at: OnnxWriting, op: Transpose) -> OnnxValue:
    return at.transpose(at.input(), op.perm)


def full(at: OnnxWriting, op: Full) -> OnnxValue:
    return at.full(op.value, op.shape, op.dtype)


def indices(at: OnnxWriting, op: Indices) -> OnnxValue:
    found = at.cast(at.vector(op.values), op.dtype)
    return found if len(op.shape) == 1 else at.reshape(found, op.shape)


def iota(at: OnnxWriting, op: Iota) -> OnnxValue:
    """In integers, unless start or step is a float."""
    whole = not isinstance(op.start, float) and not isinstance(op.step, float)
    line = at.count(op.shape[op.axis])
    dtype = I64 if whole else op.dtype
    line = at.cast(line, dtype)
    for operator, number, neutral in (("Mul", op.step, 1), ("Add", op.start, 0)):
        if number != neutral:
            line = at.node(operator, line, _number(at, number, dtype))
    place = [-1 if a == op.axis else 1 for a in range(len(op.shape))]
    line = at.node("Reshape", at.cast(line, op.dtype), at.build.ints(*place))
    return at.expand(line, op.shape)


def _number(at: OnnxWriting, value: Index | float, dtype: object) -> OnnxValue:
    if isinstance(value, float):
        return at.build.number(value, at.results[0].dtype)
    found = at.sizes.one(value)
    return found if dtype == I64 else at.cast(found, at.results[0].dtype)


def eye_like(at: OnnxWriting, op: EyeLike) -> OnnxValue:
    kind = element_type(op.dtype)
    (found,) = at.build.node_of("EyeLike", at.inputs, [op.dtype], dtype=kind, k=op.k)
    return found


def tile(at: OnnxWriting, op: Tile | LateTile) -> OnnxValue:
    return at.node("Tile", at.input(), at.vector(op.repeats)) if op.repeats else at.input()


def triangle(at: OnnxWriting, op: Trilu) -> OnnxValue:
    return at.node("Trilu", at.input(), at.sizes.scalar(op.k), upper=int(op.upper))


def part(at: OnnxWriting, op: Slice) -> OnnxValue:
    """Along the axes that are not taken whole."""
    rows = zip(op.starts, op.extents, op.steps, at.shape, strict=True)
    axes = [a for a, (start, n, step, e) in enumerate(rows) if (start, n, step) != (0, e, 1)]
    if not axes:
        return at.input()
    starts, extents, steps = ([v[a] for a in axes] for v in (op.starts, op.extents, op.steps))
    spans = zip(starts, extents, steps, strict=True)
    ends = [start + extent * step for start, extent, step in spans]
    operands = (at.vector(starts), _ends(at, ends, steps), at.build.ints(*axes), at.vector(steps))
    return at.node("Slice", at.input(), *operands)


def _ends(at: OnnxWriting, ends: Sequence[Index], steps: Sequence[Index]) -> OnnxValue:
    """Negative ends mean before the first element; ONNX would count them from the end."""
    fixed = [_LEAST if isinstance(e, int) and e < 0 else e for e in ends]
    found = at.vector(fixed)
    forward = (isinstance(e, int) or s == 1 for e, s in zip(ends, steps, strict=True))
    if all(forward):
        return found
    below = at.node("Less", found, at.build.ints(0), dtype=BOOL)
    return at.node("Where", below, at.build.ints(_LEAST), found, dtype=I64)


def element(at: OnnxWriting, op: At) -> OnnxValue:
    return at.node("Gather", at.input(), at.sizes.scalar(op.position), axis=op.axis)


def spread(at: OnnxWriting, op: Unslice) -> OnnxValue:
    """Zero padding; along axes with steps, rows are scattered."""
    x, shape = at.input(), list(at.shape)
    rows = enumerate(zip(op.starts, op.steps, op.shape, strict=True))
    stepped = [(a, *row) for a, row in rows if row[1] != 1]
    for axis, start, step, extent in stepped:
        places = at.node("Mul", at.count(shape[axis]), at.sizes.one(step))
        places = at.node("Add", places, at.sizes.one(start))
        line = at.build.ints(*(-1 if a == axis else 1 for a in range(len(shape))))
        places = at.expand(at.node("Reshape", places, line), shape)
        shape[axis] = extent
        zeros = at.full(0, shape, x.dtype)
        x = at.node("ScatterElements", zeros, places, x, axis=axis)
    before, after = _around(op.starts, at.shape, op.shape)
    for axis, *_ in stepped:
        before[axis] = after[axis] = 0
    return at.pad(x, before, after)


def _around(
    starts: Sequence[Index], inner: Sequence[Index], outer: Sequence[Index]
) -> tuple[list[Index], list[Index]]:
    """Padding before and after a slice."""
    rows = zip(starts, inner, outer, strict=True)
    return list(starts), [whole - start - own for start, own, whole in rows]


def replaced(at: OnnxWriting, op: ReplaceSlice) -> OnnxValue:
    """Selects the part by a mask of its size, padded likewise."""
    x, y, own = at.input(0), at.input(1), at.type(1).shape
    before, after = _around(op.starts, own, at.shape)
    if all(amount == 0 for amount in (*before, *after)):
        return y
    mask = at.pad(at.full(True, own, BOOL), before, after)
    return at.node("Where", mask, at.pad(y, before, after), x, dtype=x.dtype)


def pad(at: OnnxWriting, op: Pad) -> OnnxValue:
    """By gathering, where ONNX's runtimes do not support the padding: larger than the tensor, or
    after cropping."""
    x = at.input()
    amounts = (*op.before, *op.after)
    if all(amount == 0 for amount in amounts):
        return x
    if op.mode == "constant":
        return at.pad(x, op.before, op.after, op.value)
    extents = [e for e in at.shape if isinstance(e, int)]
    if len(extents) < len(at.shape) or not all(isinstance(e, int) for e in amounts):
        return at.node("Pad", x, at.vector(amounts), mode=op.mode)
    for axis, extent in enumerate(extents):
        line = np.arange(extent)
        places = Pad((op.before[axis],), (op.after[axis],), op.mode).reference(line)
        if not np.array_equal(places, line):
            x = at.node("Gather", x, at.constant(places, I64), axis=axis)
    return x
