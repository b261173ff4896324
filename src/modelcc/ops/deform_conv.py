"""Deformable convolution (Dai et al. 2017; with a mask Zhu et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, index_value
from modelcc.ir.index import Index, floordiv, product
from modelcc.ir.op import Builder, Meeting, Op, require
from modelcc.ir.types import Array, DType, TensorType
from modelcc.ops.accumulate import Point, accumulator, require_float
from modelcc.ops.arithmetic import Add, Value, of
from modelcc.ops.bilinear import StoredPixel, sampled, stored_pixels, weighted_pixels
from modelcc.ops.conv import with_bias
from modelcc.ops.generate import Iota
from modelcc.ops.interpolated import linear_taps, read_between
from modelcc.ops.matmul import MatMul
from modelcc.ops.samples import sample, tensor
from modelcc.ops.views import part, reshaped
from modelcc.ops.window import numbers


@dataclass(frozen=True)
class DeformConv(Op):
    """A convolution of x by w whose taps are each moved by ``offset``, and weighted by ``mask``.

    ``offset`` is ``[n, offset_groups * kh * kw * 2, oh, ow]``, rows before columns; ``mask`` is
    ``[n, offset_groups * kh * kw, oh, ow]``.  Outside of x there are zeros.
    """

    strides: tuple[int, ...] = (1, 1)
    pads_before: tuple[Index, ...] = (0, 0)
    dilations: tuple[int, ...] = (1, 1)
    groups: int = 1
    offset_groups: int = 1
    samples = (
        sample(tensor(1, 2, 5, 6), tensor(3, 2, 2, 3), tensor(1, 12, 4, 4), None, None),
        sample(
            *(tensor(2, 4, 5, 5), tensor(4, 2, 3, 3), tensor(2, 36, 3, 3)),
            *(tensor(4), tensor(2, 18, 3, 3)),
            strides=(2, 2),
            pads_before=(1, 1),
            groups=2,
            offset_groups=2,
        ),
    )

    def infer(
        self, x: TensorType, w: TensorType, offset: TensorType, *rest: TensorType | None
    ) -> tuple[TensorType]:
        require_float(x.dtype, "DeformConv")
        require(
            x.rank == w.rank == offset.rank == 4,
            f"DeformConv needs [n, c, h, w], not {x}, {w} and {offset}",
        )
        self.require_meetings(x, w, offset, *rest)
        return (TensorType((x.shape[0], w.shape[0], *offset.shape[2:]), x.dtype),)

    def meetings(
        self, x: TensorType, w: TensorType, offset: TensorType, *rest: TensorType | None
    ) -> Iterator[Meeting]:
        b, mask = (*rest, *(None,) * (2 - len(rest)))
        kernel = w.shape[2] * w.shape[3]
        yield x.shape[1], w.shape[1] * self.groups, "channels of x and of the weights"
        taps = kernel * 2 * self.offset_groups
        yield offset.shape[1], taps, "offsets of all taps, by channels"
        yield offset.shape[0], x.shape[0], f"offsets {offset} of the images {x}"
        if b is not None:
            yield b.shape[0], w.shape[0], "the bias needs one value per output channel"
        if mask is not None:
            yield mask.shape[1], kernel * self.offset_groups, "masks of all taps"
            for axis in (0, 2, 3):
                yield mask.shape[axis], offset.shape[axis], f"mask {mask} of offsets {offset}"

    def compute(
        self, at: StageBuilder, x: Operand, w: Operand, offset: Operand, *rest: Operand | None
    ) -> Operand:
        b, mask = (*rest, *(None,) * (2 - len(rest)))
        (result,) = self.infer(x.type, w.type, offset.type)
        wide = accumulator(x.dtype)
        columns = self._columns(at, x, w.shape[2:], offset, mask)
        inner, outer = w.shape[1], floordiv(w.shape[0], self.groups)

        # Groups are an axis of their own, as products know those that both operands have.
        def term(o: Point) -> Element:
            n, group, own, row, column, *tap, channel = o
            weight = w[group * outer + own, channel, *tap].cast(wide)
            return columns[n, row, column, *tap, group * inner + channel] * weight

        def place(o: Point) -> Point:
            return (o[0], o[1] * outer + o[2], *o[3:])

        n, _, *plane = result.shape
        terms = (*w.shape[2:], inner)
        if self.groups == 1:
            total = at.reduce(result.shape, terms, "sum", lambda o, r: term((o[0], 0, *o[1:], *r)))
        else:
            total = at.tensor(result.shape, wide)
            at.fill(total, (n, self.groups, outer, *plane), place, term, terms, "sum")
        return with_bias(at, total, b, x.dtype)

    def _columns(
        self,
        at: StageBuilder,
        x: Operand,
        kernel: tuple[Index, ...],
        offset: Operand,
        mask: Operand | None,
    ) -> Operand:
        """What the taps of each position read, ``[n, oh, ow, kh, kw, channels]``.

        Channels come last, in the image too: they are read at the same places.
        """
        wide = accumulator(x.dtype)
        n, channels, *sizes = x.shape
        plane = offset.shape[2:]
        each = floordiv(channels, self.offset_groups)
        rows, columns = plane
        shape = (n, rows, self.offset_groups, *kernel, columns)
        taps = self._taps(at, shape, offset, sizes, mask, wide)
        image = at.stage((n, *sizes, channels), lambda o: x[o[0], o[3], o[1], o[2]])

        def column(o: Point) -> Element:
            place = (o[0], o[1], floordiv(o[5], each), o[3], o[4], o[2])

            def pixel(found: Point) -> Element:
                return image[(o[0], *found, o[5])].cast(wide)

            return weighted_pixels(at, [tap.at(place) for tap in taps], pixel)

        return at.stage((n, *plane, *kernel, channels), column)

    def _taps(
        self,
        at: StageBuilder,
        shape: tuple[Index, ...],
        offset: Operand,
        sizes: Sequence[Index],
        mask: Operand | None,
        wide: DType,
    ) -> list[StoredPixel]:
        """The four pixels around the place of each tap, which are the same for all channels of a
        group, of ``shape`` ``[n, oh, group, kh, kw, ow]``: those of a row lie together."""

        def tap(o: Point) -> Index:
            return (o[2] * shape[3] + o[3]) * shape[4] + o[4]

        def position(axis: int) -> Operand:
            def body(o: Point) -> Element:
                point = (o[1], o[5])[axis]
                middle = point * self.strides[axis] + o[3 + axis] * self.dilations[axis]
                moved = offset[o[0], tap(o) * 2 + axis, o[1], o[5]].cast(wide)
                return index_value(middle - self.pads_before[axis], wide) + moved

            return at.stage(shape, body)

        def masked(o: Point) -> Element | None:
            return None if mask is None else mask[o[0], tap(o), o[1], o[5]].cast(wide)

        positions = [position(axis) for axis in (0, 1)]
        return stored_pixels(at, positions, sizes, masked)

    def decompose(self, build: Builder, *inputs: str) -> tuple[str, ...]:
        names = (*inputs, "", "")[:5]
        x, w, offset, b, mask = (Value(build, n) if n else None for n in names)
        assert x is not None and w is not None and offset is not None
        n, channels, *sizes = x.type.shape
        outer, inner, *kernel = w.type.shape
        plane, taps = offset.type.shape[2:], product(kernel)
        lead, each = n * self.offset_groups, floordiv(channels, self.offset_groups)
        count = taps * product(plane)
        moved = reshaped(offset, lead, taps, 2, *plane)
        middles = (self._middles(offset, (*kernel, *plane), a) for a in (0, 1))
        along = [
            reshaped(part(moved, 2, a, 1), lead, count) + middle for a, middle in enumerate(middles)
        ]
        pairs = zip(along, sizes, strict=True)
        columns = read_between(
            reshaped(x, lead, each, *sizes), [linear_taps(p, extent) for p, extent in pairs]
        )
        if mask is not None:
            columns = columns * reshaped(mask, lead, 1, count)
        rows = reshaped(columns, n, self.groups, inner * taps, product(plane))
        weights = reshaped(w, self.groups, floordiv(outer, self.groups), inner * taps)
        result = reshaped(of(MatMul(), weights, rows), n, outer, *plane)
        return ((result if b is None else result + reshaped(b, outer, 1, 1)).name,)

    def _middles(self, like: Value, shape: tuple[Index, ...], axis: int) -> Value:
        """Where taps lie along ``axis`` without offsets, for ``shape`` ``[kh, kw, oh, ow]``."""
        before, dtype = self.pads_before[axis], like.type.dtype
        tap = Iota(shape, axis, 0 - before, self.dilations[axis], dtype)
        window = Iota(shape, 2 + axis, 0, self.strides[axis], dtype)
        both = (Value(like.build, like.build.emit(op)) for op in (tap, window))
        return reshaped(of(Add(), *both), 1, product(shape))

    def reference(self, x: Array, w: Array, offset: Array, *rest: Array | None) -> Array:
        b, mask = (*rest, *(None,) * (2 - len(rest)))
        n, channels = x.shape[:2]
        kh, kw = w.shape[2:]
        oh, ow = offset.shape[2:]
        moved = offset.astype(np.float64).reshape(n, self.offset_groups, kh, kw, 2, oh, ow)
        weights = np.ones((n, self.offset_groups, kh, kw, oh, ow)) if mask is None else mask
        weights = weights.reshape(n, self.offset_groups, kh, kw, oh, ow)
        columns = np.zeros((n, channels, kh, kw, oh, ow))
        before = numbers(self.pads_before, "pads of a DeformConv")
        each = channels // self.offset_groups
        for k, c, i, j in np.ndindex(n, channels, kh, kw):
            grid = np.indices((oh, ow)) * np.array(self.strides)[:, None, None]
            start = np.array([i, j]) * np.array(self.dilations) - before
            positions: Array = grid + start[:, None, None] + moved[k, c // each, i, j]
            image = x[k, c].astype(np.float64)
            columns[k, c, i, j] = sampled(image, positions) * weights[k, c // each, i, j]
        inner, outer = w.shape[1], len(w) // self.groups
        grouped = (_of_group(columns, m // outer, inner) for m in range(len(w)))
        pairs = zip(grouped, w, strict=True)
        result = np.stack([np.einsum("ncijhw,cij->nhw", *pair) for pair in pairs], axis=1)
        total = result if b is None else result + b[:, None, None]
        return total.astype(x.dtype)


def _of_group(columns: Array, group: int, channels: int) -> Array:
    return columns[:, group * channels : (group + 1) * channels]


OPS: tuple[type[Op], ...] = (DeformConv,)
