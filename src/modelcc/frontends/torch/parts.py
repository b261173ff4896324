"""Handlers of splitting, concatenation, repetition, rotation and padding of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.kit.parts import taken_apart
from modelcc.frontends.torch.aten import Aten, Handler, Number, table
from modelcc.frontends.torch.views import concatenate, concatenated
from modelcc.ir.index import Expr, Index, mod, product
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.gather import Gather, GatherSum
from modelcc.ops.generate import Full
from modelcc.ops.padding import Mode, Pad
from modelcc.ops.shape import Tile, Trilu
from modelcc.ops.slicing import Slice
from modelcc.ops.views import part, reshaped


def split(call: Aten, x: Value, _: object, dim: int = 0) -> Sequence[Value]:
    """The parts that PyTorch infers, whether their number or extents are given."""
    axis = call.axis(dim, x.type.rank)
    sizes = [call.extents(i)[axis] for i in range(len(call.results))]
    return [Value(call, name) for name in taken_apart(call, x.name, axis, sizes)]


def unbind(call: Aten, x: Value, dim: int = 0) -> Sequence[Value]:
    axis = call.axis(dim, x.type.rank)
    rows = taken_apart(call, x.name, axis, (1,) * len(call.results))
    return [reshaped(Value(call, name), *call.extents()) for name in rows]


def stack(call: Aten, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = call.axis(dim, tensors[0].type.rank + 1)
    rows = [call.as_value(t) for t in tensors]
    shape = rows[0].type.shape
    wide = [reshaped(r, *shape[:axis], 1, *shape[axis:]) for r in rows]
    return concatenated(call, axis, *wide)


def flip(call: Aten, x: Value, dims: Sequence[int]) -> Value:
    extents = x.type.shape
    axes = call.axes_of(dims, len(extents)) if dims and extents else ()
    starts = tuple(e - 1 if a in axes and e != 0 else 0 for a, e in enumerate(extents))
    steps = tuple(-1 if a in axes else 1 for a in range(len(extents)))
    return of(Slice(starts, extents, steps), x) if axes else x


def roll(call: Aten, x: Value, shifts: Sequence[Index] | Index, dims: Sequence[int] = ()) -> Value:
    """Each axis is split in two; without axes, all elements in row-major order are rolled."""
    many: Sequence[Index] = (shifts,) if isinstance(shifts, int | Expr) else shifts
    if 0 in x.type.shape or not x.type.rank:
        return x
    if not dims:
        return reshaped(_rolled(call, reshaped(x, x.type.elements), 0, many[0]), *x.type.shape)
    for axis, shift in zip(dims, many, strict=True):
        x = _rolled(call, x, call.axis(axis, x.type.rank), shift)
    return x


def _rolled(call: Aten, x: Value, axis: int, shift: Index) -> Value:
    extent = x.type.shape[axis]
    last = mod(shift, extent)
    if last == 0:
        return x
    ends = part(x, axis, extent - last, last), part(x, axis, 0, extent - last)
    return concatenated(call, axis, *ends)


def repeat(call: Aten, x: Value, repeats: Sequence[Index]) -> Value:
    wide = reshaped(x, *(1,) * (len(repeats) - x.type.rank), *x.type.shape)
    return of(Tile(tuple(repeats)), wide)


def triangle(upper: bool) -> Handler:
    def handler(call: Aten, x: Value, diagonal: Index = 0) -> Value:
        return of(Trilu(upper, diagonal), x)

    return handler


def constant_pad(call: Aten, x: Value, pads: Sequence[Index], value: Number = 0) -> Value:
    before, after = _amounts(pads, x.type.rank)
    kind = float if x.type.dtype.is_float else bool if x.type.dtype.kind == "bool" else int
    return of(Pad(before, after, "constant", kind(value)), x)


def padding(mode: Mode) -> Handler:
    """The last axes padded with elements of the tensor itself."""

    def handler(call: Aten, x: Value, pads: Sequence[Index]) -> Value:
        before, after = _amounts(pads, x.type.rank)
        cut = any(isinstance(p, int) and p < 0 for p in pads)
        if mode != "edge" or not cut:
            return of(Pad(before, after, mode), x)
        for axis, extent in enumerate(x.type.shape):
            if (before[axis], after[axis]) != (0, 0):
                x = of(Gather(axis), x, _edge_line(call, extent, before[axis], after[axis]))
        return x

    return handler


def _edge_line(call: Aten, extent: Index, before: Index, after: Index) -> Value:
    """Source indices along an axis; elements cropped at one end may be repeated at the other."""
    size, first, last = (number_of(n, "padded extent") for n in (extent, before, after))
    return call.literal(np.clip(np.arange(-first, size + last), 0, size - 1))


def _amounts(pads: Sequence[Index], rank: int) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """Amounts before and after each axis; PyTorch gives pairs, the last axis first."""
    rest = (0,) * (rank - len(pads) // 2)
    return (*rest, *reversed(pads[::2])), (*rest, *reversed(pads[1::2]))


def resize(call: Aten, x: Value, *_: object) -> Value:
    """The first elements in another shape; zeros after them, where PyTorch leaves memory
    uninitialised."""
    count = product(call.extents())
    room = call.made(Full((count,), 0, x.type.dtype))
    flat = concatenated(call, 0, reshaped(x, x.type.elements), room)
    return reshaped(part(flat, 0, 0, count), *call.extents())


def padding_backward(mode: Mode) -> Handler:
    """Gradients accumulated, axis by axis, at their source elements."""

    def handler(call: Aten, dy: Value, x: Value, pads: Sequence[Index]) -> Value:
        before, after = _amounts(pads, x.type.rank)
        for axis, extent in enumerate(x.type.shape):
            if (before[axis], after[axis]) != (0, 0):
                if mode == "edge":
                    places = _edge_line(call, extent, before[axis], after[axis])
                else:
                    line = call.literal(np.arange(number_of(extent, "padded extent")))
                    places = of(Pad((before[axis],), (after[axis],), mode), line)
                dy = of(GatherSum(axis, extent), dy, places)
        return dy

    return handler


PARTS = table(
    resize=resize,
    split=split,
    split_with_sizes=split,
    split_copy=split,
    split_with_sizes_copy=split,
    unsafe_split=split,
    unsafe_split_with_sizes=split,
    chunk=split,
    unbind=unbind,
    unbind_copy=unbind,
    stack=stack,
    concat=concatenate,
    concatenate=concatenate,
    flip=flip,
    roll=roll,
    repeat=repeat,
    tril=triangle(upper=False),
    triu=triangle(upper=True),
    constant_pad_nd=constant_pad,
    **{f"reflection_pad{n}d": padding("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": padding("edge") for n in (1, 2, 3)},
    **{f"reflection_pad{n}d_backward": padding_backward("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d_backward": padding_backward("edge") for n in (1, 2, 3)},
)
