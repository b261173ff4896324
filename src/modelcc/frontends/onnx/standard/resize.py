"""Handlers of Resize and its predecessor Upsample."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import gcd, isfinite
from typing import get_args

import numpy as np

from modelcc.frontends.kit.dynamic_choice import by, either
from modelcc.frontends.kit.emit import ANYTHING
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.ratio import Ratio, as_fraction, divide
from modelcc.frontends.kit.rational import scales_of
from modelcc.frontends.kit.vectors import named_sizes, vector_of
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.standard.conversion import bytes_of_bools, computed_in, floats
from modelcc.ir.index import (
    Expr,
    Index,
    Range,
    compare,
    divisions,
    floordiv,
    maximum,
    minimum,
    product,
    symbols,
)
from modelcc.ops.activation import Clip
from modelcc.ops.coordinates import Nearest, Scale, Transformation, ratio
from modelcc.ops.elementwise import Cast, Round
from modelcc.ops.resize import Resize
from modelcc.ops.resize_taps import Mode

COORDINATES: tuple[Transformation, ...] = get_args(Transformation)
NEAREST: tuple[Nearest, ...] = get_args(Nearest)
MODES: tuple[Mode, ...] = get_args(Mode)
_MODES = {"bilinear": "linear", "trilinear": "linear"}


def upsample(call: Call) -> str:
    """Scales are an attribute before opset 9, then an operand."""
    scales = call.attrs.numbers("scales") if call.opset < 9 else _scales(call, 1)
    if any(isinstance(s, float) and s < 1 for s in scales or ()):
        call.fail(f"scales {list(scales or ())} make the image smaller")
    return _resized(call, scales, None, "asymmetric", "floor")


def resize(call: Call) -> str:
    if call.opset < 11:
        return _resized(call, _scales(call, 1), None, "asymmetric", "floor")
    attrs = call.attrs
    what = "coordinate_transformation_mode"
    coordinates: Transformation = call.choice(attrs.text(what, "half_pixel"), COORDINATES, what)
    policy = attrs.text("keep_aspect_ratio_policy", "stretch")
    rank = call.rank()
    axes = tuple(call.normal(a, rank) for a in attrs.integers("axes", tuple(range(rank))))
    rounding = attrs.text("nearest_mode", "round_prefer_floor")
    nearest: Nearest = call.choice(rounding, NEAREST, "nearest_mode")
    region = _region(call, axes) if coordinates == "tf_crop_and_resize" else ()
    factors = _scales(call, 2) if call.has(2) else ()
    if factors:
        if len(factors) != len(axes):
            call.fail(f"{len(factors)} scales for {len(axes)} axes")
        by_axis = dict(zip(axes, factors, strict=True))
        scales = tuple(by_axis.get(a, 1.0) for a in range(rank))
        return _resized(call, scales, None, coordinates, nearest, region)
    if not call.has(3):
        call.fail("neither scales nor sizes are given")
    sizes = _sizes(call, axes)
    _require_both_or_none(call, sizes)
    if policy == "stretch":
        return _resized(call, None, sizes, coordinates, nearest, region)
    scale, sizes = _in_proportion(call, sizes, axes, policy)
    scales = tuple(scale if a in axes else 1.0 for a in range(rank))
    return _resized(call, scales, sizes, coordinates, nearest, region)


def _require_both_or_none(call: Call, sizes: tuple[Index, ...]) -> None:
    """As in onnxruntime: an empty result requires an empty operand, and vice versa."""
    pairs = [(minimum(s, 1), minimum(e, 1)) for s, e in zip(sizes, call.shape(), strict=True)]
    if any(compare(s, "==", e, call.bounds) is False for s, e in pairs):
        call.fail(f"{call.type()} cannot be resized to {list(sizes)}")
    call.emitter.require([(s, "==", e) for s, e in pairs], call.source, always=True)


def _in_proportion(
    call: Call, sizes: tuple[Index, ...], axes: tuple[int, ...], policy: str
) -> tuple[Scale, tuple[Index, ...]]:
    """A single scale for all of ``axes``, that of the decisive axis, and the resulting sizes."""
    if policy not in ("not_larger", "not_smaller"):
        call.fail(f"unknown keep_aspect_ratio_policy {policy!r}")
    extents = call.shape()
    whole = product(extents[a] for a in axes)
    # The ratios of the axes, with the product of all extents as common denominator.
    tops = [sizes[a] * product(extents[b] for b in axes if b != a) for a in axes]
    top = reduce(minimum if policy == "not_larger" else maximum, tops)
    found = [
        floordiv(2 * e * top + whole, 2 * whole) if a in axes else e for a, e in enumerate(extents)
    ]
    if isinstance(top, int) and isinstance(whole, int):
        common = gcd(top, whole)
        return (top // common, whole // common), tuple(found)
    return (top, whole), tuple(found)


def _region(call: Call, axes: tuple[int, ...]) -> tuple[tuple[Scale, Scale], ...]:
    """Region of interest for every axis: all the starts, then all the ends."""
    flat = scales_of(call, 1, "region of interest", ANYTHING)
    if len(flat) != 2 * len(axes):
        call.fail(f"a region of {len(flat)} numbers for {len(axes)} axes")
    given = {a: (flat[i], flat[i + len(axes)]) for i, a in enumerate(axes)}
    return tuple(given.get(a, (0.0, 1.0)) for a in range(call.rank()))


def _scales(call: Call, operand: int) -> tuple[Scale, ...]:
    return scales_of(call, operand, "scales", Range(1, None))


def _sizes(call: Call, axes: tuple[int, ...]) -> tuple[Index, ...]:
    sizes = call.indices(3, "sizes", Range(0, None))
    if len(sizes) != len(axes):
        call.fail(f"{len(sizes)} sizes for {len(axes)} axes")
    by_axis = dict(zip(axes, sizes, strict=True))
    return tuple(by_axis.get(a, d) for a, d in enumerate(call.shape()))


def _resized(
    call: Call,
    scales: tuple[Scale, ...] | None,
    sizes: tuple[Index, ...] | None,
    coordinates: Transformation,
    nearest: Nearest,
    region: tuple[tuple[Scale, Scale], ...] = (),
) -> str:
    """By ``scales``, or to ``sizes`` (the scales are then their ratio)."""
    extents = call.shape()
    if scales is not None and (len(scales) != len(extents) or not all(map(_is_positive, scales))):
        call.fail(f"scales {list(scales)} must be {len(extents)} positive numbers")
    if sizes is None:
        parts = region or ((0.0, 1.0),) * len(extents)
        sizes = _named(call, tuple(map(_scaled, extents, scales or (), parts)))
    if sizes == extents and not region and all(s == 1 for s in scales or ()):
        return call.input(0)
    given = call.attrs.text("mode", "nearest")
    op = Resize(
        shape=sizes,
        scales=scales or tuple(_ratio(n, o) for n, o in zip(sizes, extents, strict=True)),
        mode=call.choice(_MODES.get(given, given), MODES, "mode"),
        coordinates=coordinates,
        nearest=nearest,
        cubic_a=call.attrs.number("cubic_coeff_a", -0.75),
        exclude_outside=call.attrs.flag("exclude_outside"),
        extrapolation=call.attrs.number("extrapolation_value", 0.0),
        antialias=call.attrs.flag("antialias"),
        region=region,
    )
    if op.mode == "nearest" or not call.dtype().is_integer:
        return _emitted(call, op, call.input(0))
    return _interpolated_integers(call, op)


def _interpolated_integers(call: Call, op: Resize) -> str:
    """In floats; truncated as in onnxruntime if linear, else rounded, within the type's range."""
    dtype = call.dtype()
    wide = floats(dtype) or dtype
    y = _emitted(call, op, call.emit(Cast(wide), call.input(0)))
    if op.mode == "cubic" or op.antialias:
        info = np.iinfo(dtype.numpy)
        y = call.emit(Clip(float(info.min), float(info.max)), call.emit(Round(), y))
    return call.emit(Cast(dtype), y)


def _named(call: Call, sizes: tuple[Index, ...]) -> tuple[Index, ...]:
    """``sizes``, in which quotients by run-time values are replaced by symbols."""
    dynamic = [
        a for a, size in enumerate(sizes) if any(symbols(d.divisor) for d in divisions(size))
    ]
    names = named_sizes(call, [sizes[a] for a in dynamic], f"{call.labels[0]}_resized")
    found = dict(zip(dynamic, names, strict=True))
    return tuple(found.get(a, size) for a, size in enumerate(sizes))


def _emitted(call: Call, op: Resize, x: str) -> str:
    """``x`` by ``op``; if batch and channels are unchanged at run time, only along the other
    axes."""
    type = call.type_of(x)
    axes = [a for a in (0, 1) if a < type.rank - 1 and op.line(a, type.shape[a]).is_dynamic]
    if not axes or op.mode == "nearest" or op.coordinates == "tf_crop_and_resize":
        return call.emit(op, x)
    ratios = [
        given if isinstance(given := op.scales[a], tuple) else (op.shape[a], type.shape[a])
        for a in axes
    ]
    tops, bottoms = (vector_of(call, side) for side in zip(*ratios, strict=True))
    same = tops.equals(bottoms).where(1, 0).product().equals(1)
    inner = replace(op, scales=tuple(1.0 if a in axes else s for a, s in enumerate(op.scales)))
    call.emitter.require(op.shape_constraints(type), call.source, always=True)
    return either(call, same, x, (by(call, inner), by(call, op)), op.symbols())


def _is_positive(scale: Scale) -> bool:
    return isinstance(scale, tuple) or scale > 0


def _ratio(new: Index, old: Index) -> float | None:
    """The scale if it is known although the extents may not be; None: to be computed."""
    quotient = divide(new, old) if isinstance(new, Expr) and isinstance(old, Expr) else None
    if isinstance(quotient, Ratio) and isinstance(quotient.numerator, int):
        return quotient.numerator / quotient.denominator
    return float(quotient) if isinstance(quotient, int) else None


def _scaled(extent: Index, scale: Scale, part: tuple[Scale, Scale]) -> Index:
    """``floor(extent * scale)``, for the cropped part of the extent."""
    if not isinstance(scale, tuple) and not isfinite(scale):
        unsupported(f"a scale of {scale}")
    (first, below), (last, under), (top, bottom) = ratio(part[0]), ratio(part[1]), _exact(scale)
    return floordiv(extent * top * (last * below - first * under), bottom * below * under)


def _exact(scale: Scale) -> tuple[Index, Index]:
    fraction = None if isinstance(scale, tuple) else as_fraction(scale)
    return ratio(scale) if fraction is None else (fraction.numerator, fraction.denominator)


RESIZE = table(
    Resize=computed_in(bytes_of_bools, resize), Upsample=computed_in(bytes_of_bools, upsample)
)
