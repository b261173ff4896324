"""Deformable convolution (Dai et al. 2017; with a mask Zhu et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, index_value
from modelcc.ir.condition import Demands
from modelcc.ir.index import Index, floordiv
from modelcc.ir.op import Op, Sample, equal, require
from modelcc.ir.types import Array, TensorType
from modelcc.ops.accumulate import Point, accumulator, require_equal, require_float, rounded
from modelcc.ops.bilinear import linear_taps, sample, weighted
from modelcc.ops.samples import tensor
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
        Sample((tensor(1, 2, 5, 6), tensor(3, 2, 2, 3), tensor(1, 12, 4, 4), None, None), {}),
        Sample(
            (
                tensor(2, 4, 5, 5),
                tensor(4, 2, 3, 3),
                tensor(2, 36, 3, 3),
                tensor(4),
                tensor(2, 18, 3, 3),
            ),
            {"strides": (2, 2), "pads_before": (1, 1), "groups": 2, "offset_groups": 2},
        ),
    )

    def infer(
        self,
        x: TensorType,
        w: TensorType,
        offset: TensorType,
        b: TensorType | None = None,
        mask: TensorType | None = None,
    ) -> tuple[TensorType]:
        require_float(x.dtype, "DeformConv")
        require(
            x.rank == w.rank == offset.rank == 4,
            f"DeformConv needs [n, c, h, w], not {x}, {w} and {offset}",
        )
        kernel = w.shape[2] * w.shape[3]
        require_equal(x.shape[1], w.shape[1] * self.groups, "channels of x and of the weights")
        require_equal(
            offset.shape[1], kernel * 2 * self.offset_groups, "offsets of all taps, by channels"
        )
        if mask is not None:
            require_equal(mask.shape[1], kernel * self.offset_groups, "masks of all taps")
        return (TensorType((x.shape[0], w.shape[0], *offset.shape[2:]), x.dtype),)

    def agreements(
        self,
        x: TensorType,
        w: TensorType,
        offset: TensorType,
        b: TensorType | None = None,
        mask: TensorType | None = None,
    ) -> Demands:
        taps = w.shape[2] * w.shape[3] * self.offset_groups
        masks = () if mask is None else equal(mask.shape, (x.shape[0], taps, *offset.shape[2:]))
        return (
            *equal(x.shape[:2], (offset.shape[0], w.shape[1] * self.groups)),
            *equal(offset.shape[1:2], (taps * 2,)),
            *masks,
            *(() if b is None else equal(b.shape, w.shape[:1])),
        )

    def compute(
        self,
        at: StageBuilder,
        x: Operand,
        w: Operand,
        offset: Operand,
        b: Operand | None = None,
        mask: Operand | None = None,
    ) -> Operand:
        (result,) = self.infer(x.type, w.type, offset.type)
        wide = accumulator(x.dtype)
        (channels, kh, kw), sizes = (x.shape[1], *w.shape[2:]), x.shape[2:]

        def tap(o: Point) -> Index:
            """Number of the tap at ``(n, c, i, j, …)`` among all offset groups."""
            group = floordiv(o[1], floordiv(channels, self.offset_groups))
            return (group * kh + o[2]) * kw + o[3]

        def column(o: Point) -> Element:
            positions = [
                index_value(
                    o[4 + a] * self.strides[a] + o[2 + a] * self.dilations[a] - self.pads_before[a],
                    wide,
                )
                + offset[o[0], tap(o) * 2 + a, o[4], o[5]].cast(wide)
                for a in (0, 1)
            ]
            taps = [linear_taps(p, s) for p, s in zip(positions, sizes, strict=True)]
            value = weighted(at, taps, lambda i: x[(o[0], o[1], *i)].cast(wide))
            if mask is None:
                return value
            return value * mask[o[0], tap(o), o[4], o[5]].cast(wide)

        columns = at.stage((x.shape[0], channels, kh, kw, *offset.shape[2:]), column)
        inner, outer = w.shape[1], floordiv(w.shape[0], self.groups)

        def term(o: Point, r: Point) -> Element:
            channel = floordiv(o[1], outer) * inner + r[0]
            return columns[(o[0], channel, r[1], r[2], o[2], o[3])] * w[(o[1], *r)].cast(wide)

        total = at.reduce(result.shape, w.shape[1:], "sum", term)
        if b is not None:
            plain = total
            total = at.stage(result.shape, lambda o: plain[o] + b[o[1]].cast(wide))
        return rounded(at, total, x.dtype)

    def reference(
        self,
        x: Array,
        w: Array,
        offset: Array,
        b: Array | None = None,
        mask: Array | None = None,
    ) -> Array:
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
            columns[k, c, i, j] = sample(image, positions) * weights[k, c // each, i, j]
        inner, outer = w.shape[1], len(w) // self.groups
        result = np.stack(
            [
                np.einsum("ncijhw,cij->nhw", _of_group(columns, m // outer, inner), w[m])
                for m in range(len(w))
            ],
            axis=1,
        )
        total = result if b is None else result + b[:, None, None]
        return total.astype(x.dtype)


def _of_group(columns: Array, group: int, channels: int) -> Array:
    return columns[:, group * channels : (group + 1) * channels]


OPS: tuple[type[Op], ...] = (DeformConv,)
