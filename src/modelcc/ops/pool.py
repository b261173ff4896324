"""Pooling: MaxPool and AveragePool over the spatial axes of [N, C, *S]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from modelcc.ir.compute import (
    Element,
    Operand,
    StageBuilder,
    apply,
    guard,
    index_value,
    number,
    select,
)
from modelcc.ir.index import Index, Sym, product
from modelcc.ir.narrowing import FOLLOWS
from modelcc.ir.op import Builder, Gradients, Meeting, Op, Sample, Values, require, same_dtype
from modelcc.ir.quantized_form import MOVES, ROUNDED, QuantizedForm
from modelcc.ir.scalar import identity
from modelcc.ir.types import F16, I8, I32, I64, U8, Array, TensorType, dtype_of
from modelcc.ops.accumulate import (
    Point,
    accumulator,
    combined,
    require_float,
    require_numeric,
    rounded,
    widen,
)
from modelcc.ops.arithmetic import Value
from modelcc.ops.broadcast import Reshape
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.gather import Gather
from modelcc.ops.generate import Full
from modelcc.ops.phase import Phase, choices, conditions, fill_phase, reached, sources
from modelcc.ops.samples import sample, tensor
from modelcc.ops.window import Window, numbers, require_rank, row_major, taps


def plain_sample(x: TensorType, kernel: tuple[int, ...], **attributes: object) -> Sample:
    """A sample with stride 1 and neither pads nor dilation unless given."""
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    plain = {"strides": ones, "pads_before": zeros, "pads_after": zeros, "dilations": ones}
    return Sample((x,), {"kernel": kernel, **plain, **attributes})


def _with_result(given: Sample, *extents: Index) -> Sample:
    """The sample with a gradient of the pooled shape as second operand."""
    x = given.operands[0]
    assert isinstance(x, TensorType)
    return sample(x, TensorType((*x.shape[:2], *extents), x.dtype), **given.attributes)


def geometries() -> tuple[Sample, ...]:
    """Samples of windows, strides, pads and dilations that any pooling has."""
    asymmetric = {"strides": (2, 1), "pads_before": (1, 0), "pads_after": (0, 2)}
    ceil = {"strides": (2, 2), "ceil_mode": True}
    return (
        plain_sample(tensor("n", 3, 8, 8), (2, 2), strides=(2, 2)),
        plain_sample(
            tensor(2, 3, 7, 6), (3, 3), strides=(2, 2), pads_before=(1, 1), pads_after=(1, 1)
        ),
        plain_sample(tensor(1, 2, "h", "w"), (3, 3), pads_before=(1, 1), pads_after=(1, 1)),
        plain_sample(tensor(1, 2, 7, 8), (3, 4), **asymmetric),
        plain_sample(tensor(1, 2, 7, 8), (3, 3), **ceil),
        plain_sample(tensor(1, 2, 6, 7), (2, 3), pads_before=(0, 1), pads_after=(1, 1), **ceil),
        plain_sample(
            tensor(1, 2, 9, 9), (3, 2), dilations=(2, 3), pads_before=(2, 0), pads_after=(1, 1)
        ),
        plain_sample(tensor(2, 3, "t"), (3,), strides=(2,), pads_before=(1,), pads_after=(1,)),
        plain_sample(tensor(1, 2, 4, 5, 6), (2, 3, 2), strides=(2, 1, 2)),
        plain_sample(tensor(1, 2, 6, dtype=F16), (2,)),
        plain_sample(tensor(1, 2, 2, 5), (3, 2), strides=(3, 2), ceil_mode=True),
        plain_sample(tensor(1, 2, "t"), (4,), strides=(3,), ceil_mode=True),
    )


def _with_nan(*extents: int) -> Array:
    """Numbers of which some are NaN, two in a window of 3 by 3 and one that is not the first."""
    x = np.random.default_rng(0).standard_normal((1, 2, *extents)).astype(np.float32)
    x[0, 0, 1, 2:4], x[0, 1, -1, -1], x[0, 1, 0, 0] = np.nan, np.nan, np.inf
    return x


def _nan_samples(*results: Sequence[int]) -> tuple[Sample, ...]:
    """Samples of poolings that keep NaN, with gradients of these extents if there are any."""
    halved = {"strides": (2, 2), "pads_before": (1, 1), "pads_after": (1, 1)}
    even = {"strides": (2, 2), "pads_before": (0, 0), "pads_after": (0, 0)}
    return tuple(
        Sample((x, *gradient), {"kernel": kernel, "dilations": (1, 1), "keep_nan": True, **given})
        for x, kernel, given, gradient in zip(
            (_with_nan(7, 9), _with_nan(6, 40)),
            ((3, 3), (2, 2)),
            (halved, even),
            [(tensor(1, 2, *r),) for r in results] or [(), ()],
            strict=True,
        )
    )


@dataclass(frozen=True)
class Pool(Op):
    """What the poolings share: the window, its checks and its result type."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_before: tuple[Index, ...]
    pads_after: tuple[Index, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def window(self) -> Window:
        """The sliding window."""
        return Window(
            self.kernel,
            self.strides,
            self.pads_before,
            self.pads_after,
            self.dilations,
            self.ceil_mode,
        )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        name = type(self).__name__
        require_numeric(x.dtype, name)
        require(x.rank >= 3, f"{name} needs [batch, channels, *spatial], not {x}")
        require_rank(self.window, x.rank - 2)
        return (TensorType((*x.shape[:2], *self.window.extents(x.shape[2:])), x.dtype),)

    def spread(self, build: Builder, dy: Value, x: str) -> str:
        """Sum over each element's windows of ``dy``: the transpose of summing windows of ``x``."""
        shape, outputs = build.type_of(x).shape, dy.type.shape[2:]
        after = self.window.fitted_after(shape[2:], outputs)
        zeros = (0,) * self.window.rank
        scatter = ConvTranspose(self.strides, self.pads_before, after, self.dilations, 1, zeros)
        ones = build.constant(np.ones((1, 1, *self.kernel), dy.type.dtype.numpy))
        single = build.emit(Reshape((shape[0] * shape[1], 1, *outputs)), dy.name)
        return build.emit(Reshape(shape), build.emit(scatter, single, ones))

    def read(
        self,
        x: Operand,
        o: Point,
        r: Point,
        inside: Callable[[Element], Element],
        outside: float | int,
    ) -> Element:
        """``inside`` of what tap ``r`` of output ``o`` sees, ``outside`` in the padding."""
        window = self.window
        place = window.places(o[2:], r)
        element = inside(x[(*o[:2], *place)])
        return guard(window.conditions(place, x.shape[2:]), element, outside)


def sum_of_taps(x: Array, window: Window) -> Array:
    """Sum of each window, padding counting as 0."""
    return np.add.reduce([view for _, view in taps(x, window)])


@dataclass(frozen=True)
class Greatest(Pool):
    """What poolings by the greatest element share.

    NaN is greater than any number if ``keep_nan``; else it may be lost, whichever way is faster.
    """

    keep_nan: bool = False

    def greatest(self, at: StageBuilder, x: Operand, shape: Sequence[Index]) -> Operand:
        """The greatest element that each window sees."""
        combine = "maximum" if self.keep_nan and x.dtype.is_float else "max"
        return combined(at, shape, self.kernel, combine, lambda o, r: self.element(x, o, r))

    def element(self, x: Operand, o: Point, r: Point) -> Element:
        """What tap ``r`` of output ``o`` sees; in the padding what never wins."""
        return self.read(x, o, r, lambda element: element, identity("max", x.dtype))

    def where_greatest(
        self,
        at: StageBuilder,
        x: Operand,
        shape: Sequence[Index],
        numbered: Callable[[Point, Point], Element],
        never: Element,
    ) -> Operand:
        """The least number of a tap that sees the greatest element, ``never`` if none does.

        NaN that is kept is looked for from behind, as PyTorch does: numbers below 0 stand for it.
        """
        best = self.greatest(at, x, shape)
        keeps = self.keep_nan and x.dtype.is_float

        def key(o: Point, r: Point) -> Element:
            place = self.window.places(o[2:], r)
            own, tap = x[(*o[:2], *place)], numbered(o, r)
            chosen = apply("eq", own, best[o])
            if x.dtype.is_float and not keeps:
                chosen = apply("or", chosen, apply("isnan", best[o]))
            found = select(chosen, tap, never)
            if keeps:
                found = select(apply("isnan", own), -1 - tap, found)
            return guard(self.window.conditions(place, x.shape[2:]), found, never)

        first = combined(at, shape, self.kernel, "min", key)
        if not keeps:
            return first
        return at.stage(shape, lambda o: select(first[o] < 0, -1 - first[o], first[o]))

    def places_of_greatest(self, values: Array) -> Array:
        """Which of ``values`` along the first axis is the greatest: the first, or the last NaN."""
        first: Array = np.argmax(values, axis=0)
        if not self.keep_nan:
            return first
        odd = np.isnan(values)
        last = len(values) - 1 - np.argmax(odd[::-1], axis=0)
        found: Array = np.where(odd.any(0), last, first)
        return found


@dataclass(frozen=True)
class MaxPool(Greatest):
    """Greatest element of each window; padding never wins."""

    narrowing = FOLLOWS
    samples = (
        *geometries(),
        plain_sample(tensor(1, 2, 6, 6, dtype=I8), (3, 3), pads_before=(1, 1), pads_after=(1, 1)),
        plain_sample(tensor(1, 2, 6, 6, dtype=U8), (2, 2)),
        *_nan_samples(),
    )

    def reference(self, x: Array) -> Array:
        views = [view for _, view in taps(x, self.window, identity("max", dtype_of(x)))]
        return np.maximum.reduce(views)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)
        return self.greatest(at, x, result.shape)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        attributes = self.attributes()
        return (build.emit(MaxPoolGrad(**attributes), x, dys[0]),)

    def quantize(self) -> QuantizedForm:
        return MOVES


@dataclass(frozen=True)
class MaxPoolIndices(Greatest):
    """The position of the first greatest element of each window in the flattened x.

    ``column_major`` numbers the last two axes, rows and columns, the other way round.
    """

    differentiable = False
    column_major: bool = False
    samples = (
        *MaxPool.samples[:10],
        sample(*MaxPool.samples[0].operands, **MaxPool.samples[0].attributes, column_major=True),
        *_nan_samples(),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        (pooled,) = super().infer(x)
        return (TensorType(pooled.shape, I64),)

    def reference(self, x: Array) -> Array:
        values = np.stack([view for _, view in taps(x, self.window, identity("max", dtype_of(x)))])
        numbers = np.arange(x.size).reshape(x.shape)
        if self.column_major:
            numbers = np.moveaxis(
                np.arange(x.size).reshape(*x.shape[:-2], *x.shape[:-3:-1]), -1, -2
            )
        places = np.stack([view for _, view in taps(numbers, self.window, -1)])
        first = self.places_of_greatest(np.where(places >= 0, values, -np.inf))
        return np.take_along_axis(places, first[None], 0)[0]

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)

        def numbered(o: Point, r: Point) -> Element:
            place = (*o[:2], *self.window.places(o[2:], r))
            return index_value(row_major(place, x.shape), I64)

        never = index_value(product(x.shape), I64)
        first = self.where_greatest(at, x, result.shape, numbered, never)
        if not self.column_major:
            return first
        rows, columns = (index_value(e, I64) for e in x.shape[-2:])

        def turned(o: Point) -> Element:
            number = first[o]
            row = apply("mod", apply("div", number, columns), rows)
            column = apply("mod", number, columns)
            return number - row * columns - column + column * rows + row

        return at.stage(result.shape, turned)


@dataclass(frozen=True)
class MaxPoolGrad(Greatest):
    """Gradient of :class:`MaxPool`: ``dy`` goes to the first greatest element of its window."""

    samples = (
        _with_result(geometries()[0], 4, 4),
        _with_result(geometries()[1], 4, 3),
        _with_result(geometries()[2], Sym("h"), Sym("w")),
        _with_result(geometries()[3], 3, 7),
        _with_result(geometries()[5], 3, 4),
        _with_result(geometries()[6], 8, 7),
        _with_result(geometries()[8], 2, 3, 3),
        _with_result(geometries()[9], 5),
        *_nan_samples((4, 5), (3, 20)),
    )

    def infer(self, x: TensorType, dy: TensorType) -> tuple[TensorType]:
        (pooled,) = super().infer(x)
        same_dtype(x, dy)
        require(
            len(pooled.shape) == len(dy.shape),
            f"gradient {dy} of a MaxPool whose result is {pooled}",
        )
        self.require_meetings(x, dy)
        return (TensorType(x.shape, x.dtype),)

    def meetings(self, x: TensorType, dy: TensorType) -> Iterator[Meeting]:
        (pooled,) = super().infer(x)
        for ours, theirs in zip(pooled.shape, dy.shape, strict=True):
            yield ours, theirs, f"gradient {dy} of a MaxPool whose result is {pooled}"

    def reference(self, x: Array, dy: Array) -> Array:
        views = [view for _, view in taps(x, self.window, identity("max", dtype_of(x)))]
        winner = self.places_of_greatest(np.stack(views))
        places = np.arange(x.size).reshape(x.shape) + 1
        sources = [view for _, view in taps(places, self.window, 0)]
        chosen = np.take_along_axis(np.stack(sources), winner[None], 0)[0]
        dx = np.zeros(x.size + 1, widen(dy).dtype)
        np.add.at(dx, chosen, widen(dy))
        return dx[1:].reshape(x.shape).astype(x.dtype, copy=False)

    def compute(self, at: StageBuilder, x: Operand, dy: Operand) -> Operand:
        winner = self._winner(at, x, dy.shape)
        total = at.tensor(x.shape, accumulator(x.dtype))
        for chosen in choices(self.window, x.shape[2:]):
            self._fill(at, total, winner, dy, chosen)
        return rounded(at, total, x.dtype)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """Of dy, on which the result depends linearly: what is at the greatest elements."""
        where = build.emit(MaxPoolIndices(**self.attributes()), inputs[0])
        line = build.emit(Reshape((product(build.type_of(dys[0]).shape),)), dys[0])
        return None, build.emit(Gather(0), line, where)

    def _winner(self, at: StageBuilder, x: Operand, outputs: tuple[Index, ...]) -> Operand:
        """Row-major number of the first greatest tap of each window."""

        def numbered(_: Point, r: Point) -> Element:
            return index_value(row_major(r, self.kernel), I32)

        return self.where_greatest(at, x, outputs, numbered, number(prod(self.kernel), I32))

    def _fill(
        self, at: StageBuilder, dx: Operand, winner: Operand, dy: Operand, axes: tuple[Phase, ...]
    ) -> None:
        """The stage of those elements of ``dx`` that are of phase ``axes[a]`` along axis ``a``."""

        def body(o: Point, r: Point) -> Element:
            source = (*o[:2], *sources(axes, o[2:], r))
            tap = row_major(reached(axes, r), self.kernel)
            mine = apply("eq", winner[source], index_value(tap, I32))
            value = select(mine, dy[source].cast(dx.dtype), 0)
            return guard(conditions(axes, source[2:], dy.shape[2:]), value, 0)

        fill_phase(at, dx, axes, (), body)


@dataclass(frozen=True)
class AveragePool(Pool):
    """Mean of each window: over the elements inside x, or padding too if ``count_include_pad``.

    What a window of ``ceil_mode`` has beyond the padding is not counted, as in PyTorch and
    onnxruntime.
    """

    narrowing = FOLLOWS
    count_include_pad: bool = False
    samples = (
        *geometries(),
        *(
            sample(*s.operands, **s.attributes, count_include_pad=True)
            for s in (*geometries()[1:7], *geometries()[10:])
        ),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "AveragePool")
        return super().infer(x)

    def count(self, positions: Sequence[Index], sizes: Sequence[Index]) -> Index:
        """Number of elements averaged at output ``positions``."""
        return product(
            self.window.count(axis, position, size, self.count_include_pad)
            for axis, (position, size) in enumerate(zip(positions, sizes, strict=True))
        )

    def counts(self, sizes: Sequence[int]) -> Array:
        """Number of elements averaged at every output, in f64."""
        counts = np.ones(())
        for axis, extent in enumerate(numbers(self.window.extents(sizes), "output extents")):
            each = [
                self.window.count(axis, o, sizes[axis], self.count_include_pad)
                for o in range(extent)
            ]
            counts = counts[..., None] * np.array(each, np.float64)
        return counts

    def reference(self, x: Array) -> Array:
        total = sum_of_taps(widen(x), self.window)
        return (total / self.counts(x.shape[2:]).astype(total.dtype)).astype(x.dtype, copy=False)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> tuple[str]:
        (x,) = inputs
        sizes = build.type_of(x).shape[2:]
        even = self.count(tuple(Sym(f"o{a}") for a in range(len(sizes))), sizes)
        dy = Value(build, dys[0])
        if isinstance(even, int):
            return (self.spread(build, dy / even, x),)
        return (self.spread(build, dy / self._count_values(build, sizes, dy.type), x),)

    def _count_values(self, build: Builder, sizes: Sequence[Index], dy: TensorType) -> Value:
        """The varying counts: a constant, or a convolution of ones if the extents are named."""
        if all(isinstance(s, int) for s in sizes):
            extents = numbers(sizes, "spatial extents of an AveragePool")
            return Value(build, build.constant(self.counts(extents).astype(dy.dtype.numpy)))
        before, after = self.pads_before, self.window.fitted_after(sizes, dy.shape[2:])
        if self.count_include_pad:
            pads = zip(sizes, before, self.pads_after, strict=True)
            sizes = tuple(size + b + a for size, b, a in pads)
            after = tuple(f - a for f, a in zip(after, self.pads_after, strict=True))
            before = (0,) * len(sizes)
        image = build.emit(Full((1, 1, *sizes), 1.0, dy.dtype))
        kernel = build.constant(np.ones((1, 1, *self.kernel), dy.dtype.numpy))
        window = Conv(self.strides, before, after, self.dilations, 1)
        return Value(build, build.emit(window, image, kernel))

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        (result,) = self.infer(x.type)
        wide = accumulator(x.dtype)
        total = combined(
            at,
            result.shape,
            self.kernel,
            "sum",
            lambda o, r: self.read(x, o, r, lambda e: e.cast(wide), 0),
        )

        def mean(o: Point) -> Element:
            count = self.count(o[2:], x.shape[2:])
            divisor = number(count, wide) if isinstance(count, int) else index_value(count, wide)
            return (total[o] / divisor).cast(x.dtype)

        return at.stage(result.shape, mean)

    def quantize(self) -> QuantizedForm:
        return ROUNDED


OPS: tuple[type[Op], ...] = (MaxPool, MaxPoolIndices, MaxPoolGrad, AveragePool)
