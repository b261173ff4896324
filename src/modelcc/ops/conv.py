"""Convolution and its transpose, any number of spatial axes, grouped and dilated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, guard
from modelcc.ir.condition import Constraints
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, floordiv, mod
from modelcc.ir.narrowing import PRODUCTS
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Sample, Values, require, same_dtype
from modelcc.ir.quantized_form import QuantizedForm
from modelcc.ir.types import F16, Array, DType, TensorType
from modelcc.ops.accumulate import Point, accumulator, combined, require_numeric, rounded, widen
from modelcc.ops.broadcast import ReduceSum, Reshape
from modelcc.ops.convolve import convolve, scatter
from modelcc.ops.phase import Phase, choices, conditions, fill_phase, reached, sources
from modelcc.ops.samples import tensor
from modelcc.ops.shape import Transpose
from modelcc.ops.window import Window, numbers, require_rank


def _sample(*operands: TensorType, **attributes: object) -> Sample:
    """A sample with stride 1, no pads, no dilation and one group unless given."""
    n = operands[0].rank - 2
    plain = {"strides": (1,) * n, "pads_before": (0,) * n, "pads_after": (0,) * n}
    return Sample(operands, {**plain, "dilations": (1,) * n, "groups": 1, **attributes})


def _transposed(*operands: TensorType, **attributes: object) -> Sample:
    unpadded = {"output_padding": (0,) * (operands[0].rank - 2)}
    return _sample(*operands, **{**unpadded, **attributes})


def _same(n: int, pad: int = 1) -> dict[str, object]:
    return {"pads_before": (pad,) * n, "pads_after": (pad,) * n}


@dataclass(frozen=True)
class Windowed(Op):
    """Base of all ops by a sliding window with weights ``[…, …, *kernel]``."""

    strides: tuple[int, ...]
    pads_before: tuple[Index, ...]
    pads_after: tuple[Index, ...]
    dilations: tuple[int, ...]

    def window(self, w: Sequence[Index]) -> Window:
        """The sliding window for weights of shape ``w``; of a transpose, what it transposes."""
        return Window(tuple(w[2:]), self.strides, self.pads_before, self.pads_after, self.dilations)


@dataclass(frozen=True)
class Conv(Windowed):
    """``y[n, o, p] = b[o] + sum over i, k of x[n, i, p*stride + k*dilation - pad] * w[o, i, k]``.

    x is ``[N, C, *S]``, w ``[O, C/groups, *K]``, b ``[O]``; pads are zeros, negative ones crop.
    """

    narrowing = PRODUCTS
    costly: ClassVar[bool] = True
    groups: int = 1
    samples = (
        _sample(tensor("n", 3, 8, 8), tensor(4, 3, 3, 3), tensor(4), **_same(2)),
        _sample(tensor(2, 4, 5, 6), tensor(6, 4, 1, 1)),
        _sample(tensor(2, 3, "h", "w"), tensor(4, 3, 3, 3), tensor(4), strides=(2, 2), **_same(2)),
        _sample(
            tensor(1, 3, 9, 8),
            tensor(4, 3, 3, 2),
            strides=(2, 3),
            pads_before=(1, 0),
            pads_after=(0, 2),
        ),
        _sample(tensor(1, 2, 9, 9), tensor(3, 2, 3, 3), dilations=(2, 3), **_same(2, 2)),
        _sample(tensor(2, 4, 6, 6), tensor(6, 2, 3, 3), tensor(6), groups=2, **_same(2)),
        _sample(tensor(1, 6, 7, 7), tensor(6, 1, 3, 3), tensor(6), groups=6, **_same(2)),
        _sample(tensor(1, 3, 7, 7), tensor(6, 1, 3, 3), groups=3, strides=(2, 2), **_same(2)),
        _sample(tensor(2, 3, "t"), tensor(4, 3, 5), tensor(4), **_same(1, 2)),
        _sample(tensor(1, 2, 4, 5, 6), tensor(3, 2, 2, 3, 3), strides=(1, 2, 1), **_same(3)),
        _sample(tensor(1, 2, 6, 6), tensor(2, 2, 3, 3), pads_before=(-1, 0), pads_after=(0, -2)),
        _sample(tensor(1, 4, 5, dtype=F16), tensor(2, 4, 3, dtype=F16), tensor(2, dtype=F16)),
    )

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType]:
        dtype = _check("Conv", x, w, b)
        window = self.window(w.shape)
        require_rank(window, x.rank - 2)
        outputs = w.shape[0]
        self.require_meetings(x, w, b)
        return (TensorType((x.shape[0], outputs, *window.extents(x.shape[2:])), dtype),)

    def shape_constraints(
        self, x: TensorType, w: TensorType, b: TensorType | None = None
    ) -> Constraints:
        kernel: Constraints = tuple((e, ">=", 1) for e in w.shape[2:] if not isinstance(e, int))
        return (*super().shape_constraints(x, w, b), *kernel)

    def meetings(
        self, x: TensorType, w: TensorType, b: TensorType | None = None
    ) -> Iterator[Meeting]:
        what = f"Conv of {x} by weights [outputs, inputs / groups, *kernel] {w} in {self.groups}"
        yield x.shape[1], w.shape[1] * self.groups, f"{what} groups: input channels differ"
        divided = f"{w.shape[0]} output channels do not divide into {self.groups} groups"
        yield mod(w.shape[0], self.groups), 0, divided
        yield from _bias_meets(b, w.shape[0])

    def reference(self, x: Array, w: Array, b: Array | None = None) -> Array:
        wide, weights = widen(x), widen(w)
        y = convolve(wide, weights, self.window(w.shape), self.groups)
        if b is not None:
            y = y + widen(b).reshape(-1, *(1,) * (x.ndim - 2))
        return y.astype(x.dtype, copy=False)

    def compute(
        self, at: StageBuilder, x: Operand, w: Operand, b: Operand | None = None
    ) -> Operand:
        return with_bias(at, self.contract(at, x, w, accumulator(x.dtype)), b, x.dtype)

    def contract(
        self, at: StageBuilder, x: Operand, w: Operand, wide: DType, padding: int = 0
    ) -> Operand:
        """The sums in ``wide``, to which elements are cast before they are multiplied; pads are
        ``padding``."""
        (result,) = self.infer(TensorType(x.shape, wide), TensorType(w.shape, wide))
        window = self.window(w.shape)
        sizes, per_group = x.shape[2:], w.shape[1]

        def body(o: Point, r: Point) -> Element:
            place = window.places(o[2:], r[1:])
            channel = self._first_channel(o[1], w.shape) + r[0]
            inside = x[(o[0], channel, *place)]
            padded = guard(window.conditions(place, sizes), inside, padding)
            return padded.cast(wide) * w[(o[1], *r)].cast(wide)

        return combined(at, result.shape, (per_group, *window.kernel), "sum", body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, w, *b = inputs
        (dy,) = dys
        window = self.window(build.type_of(w).shape)
        after = window.fitted_after(build.type_of(x).shape[2:], build.type_of(dy).shape[2:])
        backward = ConvTranspose(
            self.strides, window.before, after, self.dilations, self.groups, (0,) * window.rank
        )
        dx = build.emit(backward, dy, w)
        dw = _weight_gradient(build, x, dy, window, self.groups)
        return (dx, dw, *(_bias_gradient(build, dy) if name else None for name in b))

    def _first_channel(self, output: Index, w: Sequence[Index]) -> Index:
        """First input channel of the group that makes ``output``."""
        if self.groups == 1:
            return 0
        return floordiv(output, floordiv(w[0], self.groups)) * w[1]

    def quantize(self) -> QuantizedForm:
        return QuantizedForm(weights=1, axis=0, channel=1, bias=2)


def _check(op: str, x: TensorType, w: TensorType, b: TensorType | None) -> DType:
    dtype = same_dtype(x, w, *(() if b is None else (b,)))
    require_numeric(dtype, op)
    require(
        x.rank >= 3 and w.rank == x.rank,
        f"{op} needs x [batch, channels, *spatial] and weights of the same rank, not {x} and {w}",
    )
    return dtype


def _bias_meets(b: TensorType | None, outputs: Index) -> Iterator[Meeting]:
    if b is not None:
        require(b.rank == 1, f"the bias must have one axis, not {b}")
        yield b.shape[0], outputs, "the bias needs one value per output channel"


def with_bias(at: StageBuilder, total: Operand, b: Operand | None, dtype: DType) -> Operand:
    """``total`` plus a per-channel bias, as ``dtype``."""
    if b is None:
        return rounded(at, total, dtype)
    return at.stage(total.shape, lambda o: (total[o] + b[o[1]].cast(total.dtype)).cast(dtype))


def _bias_gradient(build: Builder, dy: str) -> str:
    axes = (0, *range(2, build.type_of(dy).rank))
    return build.emit(ReduceSum(axes, keepdims=False), dy)


def _weight_gradient(build: Builder, x: str, dy: str, window: Window, groups: int) -> str:
    """``dw[o, i, k] = sum over n, p of x[n, i, p*s + k*d - pad] * dy[n, o, p]``.

    It is a convolution of x by dy with batch and channels exchanged, stride and dilation too.
    """
    (batch, channels, *sizes), (_, outputs, *positions) = (
        build.type_of(x).shape,
        build.type_of(dy).shape,
    )
    per_group, spatial = floordiv(channels, groups), tuple(range(2, 2 + window.rank))
    grouped = build.emit(Reshape((batch, groups, per_group, *sizes)), x)
    swapped = build.emit(Transpose((2, 1, 0, *(a + 1 for a in spatial))), grouped)
    stacked = build.emit(Reshape((per_group, groups * batch, *sizes)), swapped)
    weights = build.emit(Transpose((1, 0, *spatial)), dy)
    strides, dilations = numbers(window.strides, "strides"), numbers(window.dilations, "dilations")
    after = Window(tuple(positions), dilations, window.before, window.after, strides).fitted_after(
        sizes, window.kernel
    )
    flipped = Conv(dilations, window.before, after, strides, groups)
    dw = build.emit(flipped, stacked, weights)
    assert build.type_of(dw).shape[:2] == (per_group, outputs)
    return build.emit(Transpose((1, 0, *spatial)), dw)


@dataclass(frozen=True)
class ConvTranspose(Windowed):
    """The transpose of :class:`Conv` as a linear map of x: scatters ``x[n, i, p] * w[i, o, k]``.

    x is ``[N, C, *P]``, w ``[C, O/groups, *K]``; the result's spatial extents are
    ``(P-1)*stride + (K-1)*dilation + 1 - pads + output_padding``.
    """

    narrowing = PRODUCTS
    costly: ClassVar[bool] = True
    groups: int
    output_padding: tuple[Index, ...]
    samples = (
        _transposed(tensor("n", 3, 5, 5), tensor(3, 4, 2, 2), tensor(4), strides=(2, 2)),
        _transposed(tensor(1, 3, 5, 4), tensor(3, 2, 3, 3), **_same(2)),
        _transposed(tensor(1, 3, "h", 4), tensor(3, 2, 4, 4), strides=(2, 2), **_same(2)),
        _transposed(
            tensor(1, 2, 4, 4),
            tensor(2, 2, 3, 3),
            strides=(3, 2),
            pads_before=(1, 0),
            pads_after=(0, 1),
            output_padding=(2, 1),
        ),
        _transposed(tensor(1, 2, 4), tensor(2, 3, 2), strides=(3,)),
        _transposed(tensor(1, 2, 5), tensor(2, 3, 3), strides=(2,), dilations=(2,)),
        _transposed(tensor(1, 2, 5), tensor(2, 3, 3), strides=(4,), dilations=(6,), **_same(1)),
        _transposed(tensor(2, 4, 4, 4), tensor(4, 3, 3, 3), tensor(6), groups=2, strides=(2, 2)),
        _transposed(tensor(1, 3, 4, 4), tensor(3, 1, 3, 3), groups=3, strides=(2, 2), **_same(2)),
        _transposed(tensor(1, 2, 2, 3, 3), tensor(2, 2, 2, 2, 3), strides=(2, 1, 2)),
        _transposed(tensor(1, 2, 5, dtype=F16), tensor(2, 3, 3, dtype=F16)),
    )

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType]:
        dtype = _check("ConvTranspose", x, w, b)
        require_rank(self.window(w.shape), x.rank - 2)
        self.require_meetings(x, w, b)
        outputs = w.shape[1] * self.groups
        return (TensorType((x.shape[0], outputs, *self._extents(x.shape, w.shape)), dtype),)

    def meetings(
        self, x: TensorType, w: TensorType, b: TensorType | None = None
    ) -> Iterator[Meeting]:
        what = f"ConvTranspose of {x} by weights [inputs, outputs / groups, *kernel] {w}"
        yield x.shape[1], w.shape[0], f"{what}: input channels differ"
        yield mod(w.shape[0], self.groups), 0, f"{what}: {self.groups} groups do not divide"
        yield from _bias_meets(b, w.shape[1] * self.groups)

    def _extents(self, x: Sequence[Index], w: Sequence[Index]) -> tuple[Index, ...]:
        window = self.window(w)
        extents = tuple(
            (x[2 + a] - 1) * self.strides[a]
            + window.reach(a)
            - self.pads_before[a]
            - self.pads_after[a]
            + self.output_padding[a]
            for a in range(window.rank)
        )
        if any(isinstance(e, int) and e < 1 for e in extents):
            raise ModelError(
                f"pads {self.pads_before} and {self.pads_after} leave nothing of the result",
                hint="ConvTranspose crops by its pads; make them smaller",
            )
        return extents

    def reference(self, x: Array, w: Array, b: Array | None = None) -> Array:
        wide = widen(x)
        full = scatter(wide, widen(w), self.window(w.shape), self.groups)
        extents = numbers(self._extents(x.shape, w.shape), "output extents")
        before = numbers(self.pads_before, "pads")
        y = np.zeros((*full.shape[:2], *extents), full.dtype)
        source, target = [slice(None)] * 2, [slice(None)] * 2
        for pad, extent, size in zip(before, extents, full.shape[2:], strict=True):
            first, last = max(0, -pad), min(extent, size - pad)
            target.append(slice(first, max(first, last)))
            source.append(slice(first + pad, max(first, last) + pad))
        y[tuple(target)] = full[tuple(source)]
        if b is not None:
            y = y + widen(b).reshape(-1, *(1,) * (x.ndim - 2))
        return y.astype(x.dtype, copy=False)

    def compute(
        self, at: StageBuilder, x: Operand, w: Operand, b: Operand | None = None
    ) -> Operand:
        (result,) = self.infer(x.type, w.type, None if b is None else b.type)
        total = at.tensor(result.shape, accumulator(x.dtype))
        for chosen in choices(self.window(w.shape), result.shape[2:]):
            self._fill(at, total, x, w, chosen)
        return with_bias(at, total, b, x.dtype)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        x, w, *b = inputs
        (dy,) = dys
        window = self.window(build.type_of(w).shape)
        after = window.fitted_after(build.type_of(dy).shape[2:], build.type_of(x).shape[2:])
        forward = Conv(self.strides, window.before, after, self.dilations, self.groups)
        dx = build.emit(forward, dy, w)
        dw = _weight_gradient(build, dy, x, window, self.groups)
        return (dx, dw, *(_bias_gradient(build, dy) if name else None for name in b))

    def _fill(
        self, at: StageBuilder, y: Operand, x: Operand, w: Operand, axes: tuple[Phase, ...]
    ) -> None:
        """The stage of those elements of ``y`` that are of phase ``axes[a]`` along axis ``a``."""
        inputs, per_group = floordiv(w.shape[0], self.groups), w.shape[1]

        def body(o: Point, r: Point) -> Element:
            channel = r[0] + (floordiv(o[1], per_group) * inputs if self.groups > 1 else 0)
            place = sources(axes, o[2:], r[1:])
            inside = x[(o[0], channel, *place)]
            padded = guard(conditions(axes, place, x.shape[2:]), inside, 0)
            own = mod(o[1], per_group) if self.groups > 1 else o[1]
            return padded.cast(y.dtype) * w[(channel, own, *reached(axes, r[1:]))].cast(y.dtype)

        fill_phase(at, y, axes, (inputs,), body)

    def quantize(self) -> QuantizedForm | None:
        if self.groups != 1:  # its weights have no axis that all output channels are on
            return None
        return QuantizedForm(weights=1, axis=1, channel=1, bias=2)


OPS: tuple[type[Op], ...] = (Conv, ConvTranspose)
