"""GridSample: an image at positions that another tensor gives."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as cartesian
from typing import Literal, TypeVar

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, select
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Index, product
from modelcc.ir.op import Builder, Op, equal, require
from modelcc.ir.operators import Arithmetic
from modelcc.ir.types import I64, Array, DType, TensorType
from modelcc.ops.accumulate import Point, accumulator, require_float
from modelcc.ops.arithmetic import Floor, Mod, Round, Value, of
from modelcc.ops.bilinear import StoredTap, Tap, clamped, pixel_bound, weighted, within
from modelcc.ops.comparison import Greater, Less, LessOrEqual, where
from modelcc.ops.interpolated import PixelTap, between, inside_only, read_between, size_like
from modelcc.ops.samples import sample, tensor
from modelcc.ops.views import cast, part, reshaped

Mode = Literal["linear", "nearest", "cubic"]
Padding = Literal["zeros", "border", "reflection"]
Curve = TypeVar("Curve", bound=Arithmetic)
CUBIC = -0.75
"""The coefficient of Keys' cubic convolution that the standard asks for."""


@dataclass(frozen=True)
class GridSample(Op):
    """x at positions ``grid[n, o…, :]``, from -1 to 1 along each spatial axis, the last one first.

    The ends are the middles of the border pixels if ``align_corners``, else their outer edges.
    ``padding`` tells what lies outside: 0, the border, or the image reflected there.
    """

    mode: Mode = "linear"
    padding: Padding = "zeros"
    align_corners: bool = False
    samples = (
        *(
            sample(
                tensor(2, 2, 4, 5),
                tensor(2, 3, 3, 2),
                mode=mode,
                padding=padding,
                align_corners=align,
            )
            for mode in ("linear", "nearest", "cubic")
            for padding in ("zeros", "border", "reflection")
            for align in (False, True)
        ),
        sample(tensor(1, 2, 3, 4, 2), tensor(1, 2, 2, 2, 3)),
        sample(tensor(1, 1, "h", "w"), tensor(1, 2, "k", 2)),
    )

    def infer(self, x: TensorType, grid: TensorType) -> tuple[TensorType]:
        require_float(x.dtype, "GridSample")
        require_float(grid.dtype, "GridSample")
        fits = x.rank == grid.rank >= 3 and grid.shape[-1] == x.rank - 2
        require(fits, f"GridSample of {x} needs positions in {x.rank - 2} axes, not {grid}")
        return (TensorType((*x.shape[:2], *grid.shape[1:-1]), x.dtype),)

    def shape_constraints(self, x: TensorType, grid: TensorType) -> Constraints:
        return equal(x.shape[:1], grid.shape[:1])

    # --- stages

    def compute(self, at: StageBuilder, x: Operand, grid: Operand) -> Operand:
        (result,) = self.infer(x.type, grid.type)
        wide = accumulator(x.dtype)
        sizes = x.shape[2:]

        placed = [self._axis(at, grid, axis, sizes[axis], wide) for axis in range(len(sizes))]
        found = [self._stored(at, p, size) for p, size in zip(placed, sizes, strict=True)]

        def body(o: Point) -> Element:
            taps = [[tap.at((o[0], *o[2:])) for tap in along] for along in found]
            value = weighted(at, taps, lambda i: x[(o[0], o[1], *i)].cast(wide))
            return value.cast(x.dtype)

        return at.stage(result.shape, body)

    def _stored(self, at: StageBuilder, positions: Operand, extent: Index) -> list[StoredTap]:
        """What a position sees along one axis, in tensors: it is the same for all channels."""

        def stored(n: int) -> StoredTap:
            return StoredTap.of(at, positions.shape, lambda o: self._taps(positions[o], extent)[n])

        return [stored(n) for n in range({"nearest": 1, "linear": 2, "cubic": 4}[self.mode])]

    def _axis(
        self, at: StageBuilder, grid: Operand, axis: int, extent: Index, wide: DType
    ) -> Operand:
        """Positions along one axis, in pixels, within reach of the image."""
        rank = grid.rank - 2

        def body(o: Point) -> Element:
            g = grid[(*o, rank - 1 - axis)].cast(wide)
            size = index_value(extent, wide)
            scaled = (g + 1.0) * (size - 1.0) if self.align_corners else (g + 1.0) * size - 1.0
            p = scaled / 2.0
            if self.mode == "nearest":
                p = apply("round", p)
            return self._moved(p, size)

        return at.stage(grid.shape[:-1], body)

    def _moved(self, p: Element, size: Element) -> Element:
        """A position that lies outside as the padding wants it."""
        if self.padding == "zeros":
            return p
        if self.padding == "border":
            nearest = apply("min", apply("max", p, 0.0), size - 1.0)
            if self.mode != "cubic" or self.align_corners:
                return nearest
            # As in the standard's evaluator: the outer halves of border pixels are inside.
            return select(apply("and", p >= -0.5, p <= size - 0.5), p, nearest)
        low, period = self._period(size)
        t = apply("mod", p - low, period * 2.0)
        moved = low + select(t <= period, t, period * 2.0 - t)
        # The middle of one pixel is both ends.
        return select(size > 1.0, moved, 0.0) if self.align_corners else moved

    def _period(self, size: Element) -> tuple[Element | float, Element]:
        return (0.0, size - 1.0) if self.align_corners else (-0.5, size)

    def _taps(self, p: Element, extent: Index) -> list[Tap]:
        """The pixels that a position along one axis sees."""
        if self.mode == "nearest":
            one = p * 0.0 + 1.0
            return [self._tap(p, one, extent)]
        low = apply("floor", p)
        t = p - low
        if self.mode == "linear":
            return [self._tap(low, 1.0 - t, extent), self._tap(low + 1.0, t, extent)]
        return [self._tap(low + float(k), cubic(t, k), extent) for k in (-1, 0, 1, 2)]

    def _tap(self, place: Element, weight: Element, extent: Index) -> Tap:
        if self.padding == "reflection":
            place = self._moved(place, index_value(extent, place.dtype))
        number = place.cast(I64)
        if self.padding == "zeros":
            weight = select(within(number, extent), weight, 0.0)
        return Tap(clamped(number, extent), weight, pixel_bound(extent))

    # --- graph ops

    def decompose(self, build: Builder, *inputs: str) -> tuple[str, ...]:
        x, grid = (Value(build, name) for name in inputs)
        wide = accumulator(x.type.dtype)
        n, channels, *sizes = x.type.shape
        plane = grid.type.shape[1:-1]
        last_first = [part(grid, -1, a, 1) for a in reversed(range(len(sizes)))]
        along = [cast(reshaped(g, n, product(plane)), wide) for g in last_first]
        taps = [self._pixel_taps(g, extent) for g, extent in zip(along, sizes, strict=True)]
        value = read_between(cast(x, wide), taps)
        return (cast(reshaped(value, n, channels, *plane), x.type.dtype).name,)

    def _pixel_taps(self, g: Value, extent: Index) -> list[PixelTap]:
        """As :meth:`_axis` and :meth:`_taps` have them."""
        size = size_like(g, extent)
        p = ((g + 1.0) * (size - 1.0) if self.align_corners else (g + 1.0) * size - 1.0) * 0.5
        p = of(Round(), p) if self.mode == "nearest" else p
        p = self._placed(p, size)
        low = of(Floor(), p)
        t = p - low
        match self.mode:
            case "nearest":
                taps = [PixelTap(p, p * 0.0 + 1.0)]
            case "linear":
                taps = [PixelTap(low, 1.0 - t), PixelTap(low + 1.0, t)]
            case "cubic":
                taps = [PixelTap(low + float(k), cubic(t, k)) for k in (-1, 0, 1, 2)]
        if self.padding == "zeros":
            return [inside_only(tap, extent) for tap in taps]
        if self.padding == "reflection":
            return [PixelTap(self._placed(tap.number, size), tap.weight) for tap in taps]
        return taps

    def _placed(self, p: Value, size: Value) -> Value:
        """As :meth:`_moved` has it."""
        if self.padding == "zeros":
            return p
        if self.padding == "border":
            nearest = _inside(p, size)
            if self.mode != "cubic" or self.align_corners:
                return nearest
            return where(between(p, p.lift(-0.5), size - 0.5), p, nearest)
        low, period = (0.0, size - 1.0) if self.align_corners else (-0.5, size)
        t = of(Mod(), p - low, period * 2.0)
        moved = where(of(LessOrEqual(), t, period), t, period * 2.0 - t) + low
        if self.align_corners:
            moved = where(of(Greater(), size, size.lift(1.0)), moved, 0.0)
        return moved if self.mode == "cubic" else _inside(moved, size)

    # --- NumPy

    def reference(self, x: Array, grid: Array) -> Array:
        rank = grid.shape[-1]
        sizes = x.shape[2:]
        taps = [
            self._numpy_taps(grid[..., rank - 1 - a].astype(np.float64), sizes[a])
            for a in range(rank)
        ]
        total = np.zeros((*x.shape[:2], *grid.shape[1:-1]), np.float64)
        for chosen in cartesian(*taps):
            for n in range(len(x)):
                weight = np.prod([w[n] for _, w in chosen], axis=0)
                places = tuple(i[n] for i, _ in chosen)
                total[n] += weight * x[n].astype(np.float64)[(slice(None), *places)]
        return total.astype(x.dtype)

    def _numpy_taps(self, g: Array, size: int) -> list[tuple[Array, Array]]:
        p: Array = (g + 1) * (size - 1) / 2 if self.align_corners else ((g + 1) * size - 1) / 2
        if self.mode == "nearest":
            p = np.rint(p)
        p = self._numpy_moved(p, size)
        low: Array = np.floor(p)
        t = p - low
        match self.mode:
            case "nearest":
                taps = [(p, np.ones_like(p))]
            case "linear":
                taps = [(low, 1 - t), (low + 1, t)]
            case "cubic":
                taps = [(low + k, _keys(np.abs(t - k))) for k in (-1, 0, 1, 2)]
        return [self._numpy_tap(place, weight, size) for place, weight in taps]

    def _numpy_tap(self, place: Array, weight: Array, size: int) -> tuple[Array, Array]:
        if self.padding == "reflection":
            place = self._numpy_moved(place, size)
        number = place.astype(np.int64)
        if self.padding == "zeros":
            weight = np.where((number >= 0) & (number < size), weight, 0)
        return np.clip(number, 0, size - 1), weight

    def _numpy_moved(self, p: Array, size: int) -> Array:
        if self.padding == "zeros":
            return p
        if self.padding == "border":
            nearest = np.clip(p, 0, size - 1)
            if self.mode != "cubic" or self.align_corners:
                return nearest
            return np.where((p >= -0.5) & (p <= size - 0.5), p, nearest)
        if self.align_corners and size == 1:
            return np.zeros_like(p)
        low, period = (0.0, size - 1) if self.align_corners else (-0.5, size)
        t = np.mod(p - low, 2 * period)
        return low + np.where(t <= period, t, 2 * period - t)


def _inside(p: Value, size: Value) -> Value:
    """``p`` clamped to the pixels; on the middle of the first and the last one it has no slope."""
    last = size - 1.0
    return where(of(Greater(), p, p.lift(0.0)), where(of(Less(), p, last), p, last), 0.0)


def cubic(t: Curve, k: int) -> Curve:
    """Weight of the pixel ``k`` after the one below, at the fraction ``t``.

    Keys 1981, "Cubic convolution interpolation for digital image processing".
    """
    a = CUBIC
    d = t - float(k) if k <= 0 else float(k) - t
    if k in (0, 1):
        return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    return ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a


def _keys(d: Array) -> Array:
    a = CUBIC
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


OPS: tuple[type[Op], ...] = (GridSample,)
