"""Handlers of resampled images: resized, and sampled at positions given by a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.torch.aten import Aten, Handlers, overloads
from modelcc.ir.index import Index
from modelcc.ir.types import Array
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.coordinates import Scale
from modelcc.ops.gather import Gather
from modelcc.ops.generate import Full
from modelcc.ops.grid_sample import GridSample
from modelcc.ops.padding import Pad
from modelcc.ops.resize import Resize
from modelcc.ops.resize_taps import Mode
from modelcc.ops.reverse import Recorder, adjoints

Scales = Sequence[float | None]
MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
_WHOLE = float(1 << 32)
"""A scale at which all results sample the first corner."""


@dataclass(frozen=True)
class Upsampling:
    """One mode of resizing: ``aligned`` corners are an argument except for the nearest ones."""

    mode: Mode
    exact: bool = False
    antialias: bool = False

    def forward(self, call: Aten, x: Value, _: object, *rest: Any) -> Value:
        aligned, scales = self._options(rest)
        return self._resized(call, x, aligned, scales)

    def by_factors(self, call: Aten, x: Value, _: object, *rest: Any) -> Value:
        """For overloads with all factors in one argument, or none."""
        aligned, (factors,) = self._options(rest)
        return self._resized(call, x, aligned, factors or ())  # type: ignore[arg-type]

    def backward(
        self, call: Aten, dy: Value, output_size: object, input_size: Sequence[Index], *rest: Any
    ) -> Value:
        """The gradient of an image that is not read: only its extents matter."""
        aligned, scales = self._options(rest)
        x = call.made(Full(tuple(input_size), 0, dy.type.dtype))
        op = self._op(call, x, dy.type.shape, aligned, scales)
        return Value(call, op.grad(call, [dy.name], [x.name], ())[0])

    def _options(self, rest: tuple[Any, ...]) -> tuple[bool, Scales]:
        return (False, rest) if self.mode == "nearest" else (rest[0], rest[1:])

    def _resized(self, call: Aten, x: Value, aligned: bool, scales: Scales) -> Value:
        op = self._op(call, x, call.extents(), aligned, scales)
        if self.mode != "nearest":
            return of(op, x)
        y = x
        for axis, (size, count) in enumerate(zip(x.type.shape, op.shape, strict=True)):
            if not (isinstance(size, int) and isinstance(count, int)) or size == count:
                continue
            places = self._places(size, count, op.scales[axis])
            if not np.array_equal(places, op.taps(axis, size)[0]):
                y = of(Gather(axis), y, call.literal(places))
        shape = y.type.shape
        left = tuple(
            1.0 if a == b else s for a, b, s in zip(shape, op.shape, op.scales, strict=True)
        )
        return y if shape == op.shape else of(replace(op, scales=left), y)

    def _op(
        self, call: Aten, x: Value, shape: Sequence[Index], aligned: bool, scales: Scales
    ) -> Resize:
        if self.mode != "nearest" and not x.type.dtype.is_float:
            unsupported(f"interpolation of {x.type.dtype}")
        given = (None,) * (len(shape) - 2) if aligned or not scales else scales
        factors = (1.0, 1.0, *(s if s is None or s > 0 else None for s in given))
        if aligned and self.antialias:
            factors = tuple(map(_between_corners, x.type.shape, shape))
        place = "align_corners" if aligned and not self.antialias else "half_pixel"
        return Resize(
            tuple(shape), factors, self.mode,
            "asymmetric" if self.mode == "nearest" and not self.exact else place,
            "round_prefer_ceil" if self.exact else "floor",
            cubic_a=-0.5 if self.antialias else -0.75,
            exclude_outside=self.antialias, antialias=self.antialias,
        )  # fmt: skip

    def _places(self, size: int, count: int, scale: Any) -> Array:
        """The source index of each result, by PyTorch's arithmetic in f32."""
        if count == 2 * size and not self.exact:
            return np.arange(count) // 2
        ratio = np.float32(size) / np.float32(count) if scale is None else np.float32(1 / scale)
        at = np.arange(count, dtype=np.float32) + np.float32(0.5 if self.exact else 0)
        return np.minimum(np.floor(at * ratio).astype(np.int64), size - 1)

    def table(self, names: Sequence[str]) -> dict[str, Callable[..., Value]]:
        """The handlers of operators of these names, in all overloads."""
        found: dict[str, Callable[..., Value]] = {}
        for name in names:
            found |= {f"{name}.default": self.forward, f"{name}.vec": self.by_factors}
            found[f"{name}_backward.default"] = self.backward
        return found


def _between_corners(size: Index, count: Index) -> Scale | None:
    """The scale of an axis for antialiasing filters: PyTorch aligns no corners with them, but takes
    their ratio, which is 0 for a single element."""
    if size in (1, count):
        return None
    whole, result = number_of(size, "image"), number_of(count, "image")
    return (result - 1, whole - 1) if result > 1 else _WHOLE


def grid_sample(
    call: Aten, x: Value, grid: Value, mode: int, padding: int, align_corners: bool
) -> Value:
    if (MODES[mode], PADDINGS[padding]) == ("cubic", "border"):
        x, grid = _with_border(call, x, grid, align_corners)
    return of(GridSample(MODES[mode], PADDINGS[padding], align_corners), x, grid)


def grid_sample_backward(
    call: Aten, dy: Value, x: Value, grid: Value, mode: int, padding: int, align_corners: bool,
    wanted: Sequence[bool],
) -> list[Value | None]:  # fmt: skip
    """Gradients of the image and of the positions."""
    run = Recorder(call)
    y = grid_sample(call, Value(run, x.name), Value(run, grid.name), mode, padding, align_corners)
    found = adjoints(call, run.nodes, {y.name: dy.name}, (x.name, grid.name))
    return [
        _slope(call, v, found.get(v.name)) if is_wanted else None
        for v, is_wanted in zip((x, grid), wanted, strict=True)
    ]


def _slope(call: Aten, x: Value, gradient: str | None) -> Value:
    zero = Full(x.type.shape, 0, x.type.dtype)
    return call.made(zero) if gradient is None else Value(call, gradient)


def _with_border(call: Aten, x: Value, grid: Value, align_corners: bool) -> tuple[Value, Value]:
    """The image padded by the width of the filter, and the grid shifted accordingly.

    PyTorch clamps each tap of a filter, the op the position of the filter.
    """
    width, rank = 3, x.type.rank - 2
    pads = (0, 0, *(width,) * rank)
    inner = [number_of(e, "image") - align_corners for e in reversed(x.type.shape[2:])]
    factors = [e / (e + 2 * width) for e in inner]
    moved = grid * call.literal(np.array(factors, grid.type.dtype.numpy))
    return of(Pad(pads, pads, "edge", 0), x), moved


UPSAMPLING: Handlers = overloads(
    {
        **Upsampling("nearest").table([f"upsample_nearest{n}d" for n in (1, 2, 3)]),
        **Upsampling("nearest", True).table([f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)]),
        **Upsampling("linear").table(
            ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"]
        ),
        **Upsampling("cubic").table(["upsample_bicubic2d"]),
        **Upsampling("linear", antialias=True).table(["_upsample_bilinear2d_aa"]),
        **Upsampling("cubic", antialias=True).table(["_upsample_bicubic2d_aa"]),
        "grid_sampler": grid_sample,
        "grid_sampler_2d": grid_sample,
        "grid_sampler_3d": grid_sample,
        "grid_sampler_2d_backward": grid_sample_backward,
        "grid_sampler_3d_backward": grid_sample_backward,
    }
)
