"""Resize by nearest, linear or cubic interpolation along any axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, guard, index_value, select
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Index, Sym, ceildiv, floordiv, maximum, minimum
from modelcc.ir.narrowing import FOLLOWS
from modelcc.ir.op import Builder, Op, Sample, Values, require
from modelcc.ir.quantized_form import MOVES, ROUNDED, QuantizedForm
from modelcc.ir.types import F16, U8, Array, DType, TensorType
from modelcc.ops.accumulate import Point, accumulator, require_float, require_numeric, rounded
from modelcc.ops.broadcast import ReduceSum, Reshape
from modelcc.ops.coordinates import Coordinate, Nearest, Scale, Transformation, coordinate, ratio
from modelcc.ops.interpolation import clamped, far, fraction, in_range, near, separable
from modelcc.ops.matmul import MatMul
from modelcc.ops.resize_taps import (
    TAPS,
    Along,
    Interpolation,
    Mode,
    ResizedAxis,
    TapTables,
    choices_along,
    choices_inline,
)
from modelcc.ops.samples import tensor
from modelcc.ops.shape import Transpose
from modelcc.ops.statistics import as_number
from modelcc.ops.window import numbers

_LARGEST_STENCIL = 16


def _sample(x: TensorType, shape: tuple[Index | str, ...], **attributes: object) -> Sample:
    extents = tuple(Sym(d) if isinstance(d, str) else d for d in shape)
    return Sample((x,), {"shape": extents, "scales": (None,) * x.rank, **attributes})


def _samples() -> tuple[Sample, ...]:
    x, image = tensor(1, 2, 4, 5), tensor(1, 2, "h", "w")
    doubled = (1, 2, Sym("h") * 2, Sym("w") * 2)
    twice = {"scales": (1.0, 1.0, 2.0, 2.0)}
    floor: dict[str, object] = {"coordinates": "asymmetric", "nearest": "floor"}
    linear: dict[str, object] = {"mode": "linear"}
    cubic: dict[str, object] = {"mode": "cubic"}
    return (
        _sample(image, doubled, **twice, **floor),
        _sample(image, doubled, **twice),
        _sample(x, (1, 2, 7, 3)),
        _sample(x, (1, 2, 7, 3), nearest="round_prefer_ceil", coordinates="align_corners"),
        _sample(x, (1, 2, 9, 11), nearest="ceil", coordinates="half_pixel_symmetric"),
        _sample(x, (1, 2, 2, 1), scales=(None, None, 0.6, 0.3), **floor),
        _sample(image, doubled, **twice, **linear),
        _sample(x, (1, 2, 3, 9), **linear),
        _sample(x, (1, 2, 1, 9), coordinates="pytorch_half_pixel", **linear),
        _sample(x, (1, 2, 7, 9), coordinates="align_corners", **linear),
        _sample(x, (1, 2, 2, 9), coordinates="asymmetric", **linear),
        _sample(image, (1, 2, 6, 7), **linear),
        _sample(tensor(1, 1, 3, 4, 3), (1, 1, 5, 6, 2), **linear),
        _sample(tensor(1, 2, 5, dtype=F16), (1, 2, 8), **linear),
        _sample(x, (1, 2, 8, 10), **cubic),
        _sample(x, (1, 2, 3, 7), coordinates="align_corners", cubic_a=-0.5, **cubic),
        _sample(x, (1, 2, 8, 3), exclude_outside=True, **cubic),
        _sample(x, (1, 2, 2, 3), antialias=True, **linear),
        _sample(x, (1, 2, 2, 3), antialias=True, **cubic),
        _sample(x, (1, 2, 2, 3), antialias=True, exclude_outside=True, **linear),
        _sample(
            x,
            (1, 2, 3, 4),
            coordinates="tf_crop_and_resize",
            region=((0.0, 1.0), (0.0, 1.0), (0.25, 1.5), (-0.2, 0.7)),
            extrapolation=10.0,
            **linear,
        ),
        _sample(tensor(1, 1, 3, 3, dtype=U8), (1, 1, 6, 6)),
    )


@dataclass(frozen=True)
class Resize(Op):
    """x interpolated to ``shape``; attributes as ONNX Resize, given for every axis.

    ``scales`` (None: ratio of the extents) map coordinates; ``region`` holds begin and end of
    each axis for ``tf_crop_and_resize``, whose outside takes the value ``extrapolation``.
    Cubic convolution after Keys, "Cubic convolution interpolation", 1981, with ``cubic_a``.
    With ``antialias`` linear and cubic filters widen by the factor of reduction.
    """

    narrowing = FOLLOWS
    shape: tuple[Index, ...]
    scales: tuple[Scale | None, ...]
    mode: Mode = "nearest"
    coordinates: Transformation = "half_pixel"
    nearest: Nearest = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False
    region: tuple[tuple[Scale, Scale], ...] = ()
    samples = _samples()

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require_numeric(x.dtype, "Resize")
        if self.mode != "nearest":
            require_float(x.dtype, f"Resize by {self.mode} interpolation")
        require(
            len(self.shape) == len(self.scales) == x.rank,
            f"Resize of {x} got {len(self.shape)} extents and {len(self.scales)} scales",
            "give one per axis",
        )
        cropping = self.coordinates == "tf_crop_and_resize"
        require(
            len(self.region) == x.rank or not cropping,
            f"Resize with tf_crop_and_resize of {x} needs a region of interest for every axis",
        )
        require(
            all(s is None or isinstance(s, tuple) or s > 0 for s in self.scales),
            f"scales {self.scales} must be positive",
        )
        return (TensorType(self.shape, x.dtype),)

    def shape_constraints(self, x: TensorType) -> Constraints:
        """Elements are made of some."""
        pairs = zip(x.shape, self.shape, strict=True)
        return tuple((old, ">=", minimum(new, 1)) for old, new in pairs if old != new)

    def coordinate(self, axis: int, size: Index) -> Coordinate | None:
        """Map of output to input positions along ``axis``; None if it is the identity."""
        region: tuple[Scale, Scale] = self.region[axis] if self.region else (0.0, 1.0)
        found = coordinate(self.coordinates, size, self.shape[axis], self.scales[axis], region)
        same = found == Coordinate(1, 0, 1) and (self.scales[axis] == 1 or self.shape[axis] == size)
        return None if same else found

    def factor(self, axis: int, size: Index) -> tuple[Index, Index]:
        """Width of the filter along ``axis`` in input elements, a ratio: 1 or more."""
        if not self.antialias:
            return 1, 1
        scale = self.scales[axis]
        result, whole = (self.shape[axis], size) if scale is None else ratio(scale)
        return maximum(whole, result), result

    def reach(self, axis: int, size: Index) -> Index:
        """How many elements of the input the filter takes to each side."""
        width, unit = self.factor(axis, size)
        return ceildiv(width * (1 if self.mode == "linear" else 2), unit)

    def kernel(self, distance: Array) -> Array:
        """Weight of an input element at ``distance``, in filter widths, from the coordinate."""
        d = np.abs(distance)
        if self.mode == "linear":
            return np.maximum(0.0, 1.0 - d)
        a = self.cubic_a
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    def taps(self, axis: int, size: int) -> tuple[Array, Array]:
        """Input indices and weights ``[outputs, taps]`` along ``axis``, in f64."""
        (count,) = numbers(self.shape[axis : axis + 1], "output extent")
        map_ = self.coordinate(axis, size)
        if map_ is None:
            return np.arange(size)[:, None], np.ones((size, 1))
        position = np.array([map_.numerator(i) for i in range(count)]) / map_.divisor
        x = np.round(position, 9)[:, None]
        if self.mode == "nearest":
            return np.clip(self._rounded(x), 0, size - 1).astype(np.int64), np.ones((count, 1))
        width, unit = numbers(self.factor(axis, size), "width of a filter")
        (reach,) = numbers((self.reach(axis, size),), "width of a filter")
        place = (np.floor(x) + np.arange(1 - reach, 1 + reach)).astype(np.int64)
        weights = self.kernel((place - x) * unit / width)
        if self.exclude_outside:
            weights = np.where((place >= 0) & (place < size), weights, 0.0)
        weights = weights / weights.sum(axis=1, keepdims=True)
        return np.clip(place, 0, size - 1), weights

    def _rounded(self, x: Array) -> Array:
        match self.nearest:
            case "floor":
                return np.floor(x)
            case "ceil":
                return np.ceil(x)
            case "round_prefer_floor":
                return np.ceil(x - 0.5)
            case "round_prefer_ceil":
                return np.floor(x + 0.5)

    def reference(self, x: Array) -> Array:
        y = x if self.mode == "nearest" else x.astype(np.float64)
        for axis, size in enumerate(x.shape):
            index, weights = self.taps(axis, size)
            along = (-1, *(1,) * (x.ndim - axis - 1))
            if self.mode == "nearest":
                y = np.take(y, index[:, 0], axis)
            else:
                y = sum(
                    np.take(y, index[:, k], axis) * weights[:, k].reshape(along)
                    for k in range(index.shape[1])
                )
        return self._outside(np.asarray(y).astype(x.dtype), x.shape)

    def _outside(self, y: Array, sizes: Sequence[int]) -> Array:
        """``y`` with the extrapolation value where a crop leaves the input."""
        for axis, size in enumerate(sizes):
            y[(slice(None),) * axis + (self._crossing(axis, size),)] = self.extrapolation
        return y

    def _crossing(self, axis: int, size: int) -> Array:
        """Which outputs along ``axis`` a crop takes from outside the input."""
        (count,) = numbers(self.shape[axis : axis + 1], "output extent")
        map_ = self.coordinate(axis, size)
        if map_ is None or self.coordinates != "tf_crop_and_resize":
            return np.zeros(count, bool)
        values = np.array([map_.numerator(i) for i in range(count)])
        return (values < 0) | (values > (size - 1) * map_.divisor)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> tuple[str]:
        (x,) = inputs
        dx = dys[0]
        for axis, size in enumerate(build.type_of(x).shape):
            repeats = self._repeats(axis, size)
            if repeats is not None:
                dx = _summed_runs(build, dx, axis, size, repeats)
            elif self.coordinate(axis, size) is not None:
                (extent,) = numbers((size,), "extents of a Resize that is differentiated")
                dx = _times(build, dx, axis, self.matrix(axis, extent))
        return (dx,)

    def _repeats(self, axis: int, size: Index) -> int | None:
        """How often each element is repeated in a row, if that is all that happens to an axis."""
        map_ = self.coordinate(axis, size)
        if map_ is None or self.mode != "nearest" or self.coordinates == "tf_crop_and_resize":
            return None
        if 0 in (size, self.shape[axis]):
            return None
        factor = floordiv(self.shape[axis], size)
        if not isinstance(factor, int) or factor * size != self.shape[axis]:
            return None
        i = Sym("i")
        place = clamped(map_.nearest(i, self.nearest), size, i, self.shape[axis])
        return factor if place == floordiv(i, factor) else None

    def _doubles(self, axis: int, size: Index) -> bool:
        """Whether each element is repeated 2, 4, 8 … times, as vectors do by themselves."""
        times = self._repeats(axis, size)
        return times is not None and times & (times - 1) == 0

    def matrix(self, axis: int, size: int) -> Array:
        """The linear map ``[outputs, inputs]`` along ``axis``, in f64."""
        index, weights = self.taps(axis, size)
        hits: Array = index[:, :, None] == np.arange(size)
        matrix: Array = np.einsum("ok,oki->oi", weights, hits)
        matrix[self._crossing(axis, size)] = 0
        return matrix

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        if self.antialias and self.mode != "nearest":
            return self._filtered(at, x)
        wide = x.dtype if self.mode == "nearest" else accumulator(x.dtype)
        lines = [self.line(a, size) for a, size in enumerate(x.shape)]
        axes = [a for a, line in enumerate(lines) if line.map is not None]
        how = Interpolation(self.mode, self.nearest, self.cubic_a, self.exclude_outside)
        y = x
        if TAPS[self.mode] ** len(axes) > _LARGEST_STENCIL:
            # All at once would read too many elements.
            for axis in axes:
                taps = {axis: choices_along(at, lines[axis], how, wide)}
                y = self._along(at, y, taps, wide, {axis: self.shape[axis]})
            axes = []
        dynamic = [a for a in axes if lines[a].has_tables and not self._doubles(a, x.shape[a])]
        taps = {a: choices_inline(lines[a], how, wide) for a in axes if a not in dynamic}
        tables = {a: TapTables.of(at, lines[a], how, wide) for a in dynamic}
        if self.mode != "nearest" and len(axes) > 1 and x.rank - 1 in tables:
            # Elements gathered within the rows that are read first: then whole rows make rows.
            within: dict[int, Along] = {x.rank - 1: tables.pop(x.rank - 1).choices}
            extents = {x.rank - 1: self.shape[-1]}
            for axis, table in tables.items():
                rows, tables[axis] = table.of_those_read(at, x.shape[axis])
                within[axis] = lambda i, rows=rows: [(rows[i], None)]
                extents[axis] = rows.shape[0]
            y = self._along(at, y, within, wide, extents)
        taps |= {axis: table.choices for axis, table in tables.items()}

        def finish(o: Point, value: Element) -> Element:
            found = zip(lines, o, strict=True) if self.coordinates == "tf_crop_and_resize" else ()
            inside = [c for line, i in found for c in line.inside(i)]
            return guard(inside, value.cast(x.dtype), self.extrapolation)

        return self._along(at, y, taps, wide, dict(enumerate(self.shape)), finish)

    def line(self, axis: int, size: Index) -> ResizedAxis:
        """``axis``, of ``size`` elements before, as places are found along it."""
        return ResizedAxis(self.coordinate(axis, size), size, self.shape[axis])

    def _along(
        self,
        at: StageBuilder,
        x: Operand,
        taps: Mapping[int, Along],
        wide: DType,
        extents: Mapping[int, Index],
        finish: Callable[[Point, Element], Element] = lambda _, value: value,
    ) -> Operand:
        """One stage along the axes of ``taps``, with other ``extents`` where these are given."""

        def body(o: Point) -> Element:
            choices = [taps[a](i) if a in taps else [(i, None)] for a, i in enumerate(o)]
            return finish(o, separable(at, x, choices, (), wide))

        return at.stage([extents.get(a, e) for a, e in enumerate(x.shape)], body)

    def _filtered(self, at: StageBuilder, x: Operand) -> Operand:
        """One banded matrix product per resized axis: the antialiased filters."""
        wide, y = accumulator(x.dtype), x
        for axis in range(x.rank):
            map_ = self.coordinate(axis, x.shape[axis])
            if map_ is not None:
                y = self._filter_axis(at, y, axis, map_, wide)
        return rounded(at, y, x.dtype)

    def _filter_axis(
        self, at: StageBuilder, x: Operand, axis: int, map_: Coordinate, wide: DType
    ) -> Operand:
        size, result = x.shape[axis], self.shape[axis]
        width, unit = self.factor(axis, size)
        reach = self.reach(axis, size)
        narrowing = as_number(unit, wide) / as_number(width, wide)

        def weight(o: Point) -> Element:
            i, tap = o
            offset = index_value(tap + 1 - reach, wide) - fraction(map_, i, wide)
            value = self._kernel_element(apply("abs", offset * narrowing))
            place = map_.floor(i) + tap + 1 - reach
            return guard(in_range(place, size) if self.exclude_outside else (), value, 0)

        raw = at.stage((result, 2 * reach), weight)
        total = at.reduce((result,), (2 * reach,), "sum", lambda o, r: raw[(o[0], r[0])])
        weights = at.stage((result, 2 * reach), lambda o: raw[o] / total[o[0]])

        def body(o: Point, r: Point) -> Element:
            place = map_.floor(o[axis]) + r[0] + 1 - reach
            source = (*o[:axis], minimum(maximum(place, 0), size - 1), *o[axis + 1 :])
            return x[source].cast(wide) * weights[(o[axis], r[0])]

        shape = (*x.shape[:axis], result, *x.shape[axis + 1 :])
        return at.reduce(shape, (2 * reach,), "sum", body)

    def _kernel_element(self, d: Element) -> Element:
        """The filter at distance ``d`` of 0 or more."""
        if self.mode == "linear":
            return apply("max", 1.0 - d, 0.0)
        tail = select(d < 2.0, far(d, self.cubic_a), 0.0)
        return select(d <= 1.0, near(d, self.cubic_a), tail)

    def quantize(self) -> QuantizedForm:
        return MOVES if self.mode == "nearest" else ROUNDED


def _summed_runs(build: Builder, dy: str, axis: int, size: Index, run: int) -> str:
    shape = build.type_of(dy).shape
    split = build.emit(Reshape((*shape[:axis], size, run, *shape[axis + 1 :])), dy)
    return build.emit(ReduceSum((axis + 1,), keepdims=False), split)


def _times(build: Builder, dy: str, axis: int, matrix: Array) -> str:
    """``dy`` with ``axis`` contracted with the rows of ``matrix``."""
    rank, dtype = build.type_of(dy).rank, build.type_of(dy).dtype
    swap = Transpose(tuple({axis: rank - 1, rank - 1: axis}.get(a, a) for a in range(rank)))
    product = build.emit(MatMul(), build.emit(swap, dy), build.constant(matrix.astype(dtype.numpy)))
    return build.emit(swap, product)


OPS: tuple[type[Op], ...] = (Resize,)
