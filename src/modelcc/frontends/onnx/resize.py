"""Handlers of Resize and its predecessor Upsample."""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType
from typing import get_args

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.ratio import Ratio, as_fraction, divide
from modelcc.ir.index import Expr, Index, Range, floordiv
from modelcc.ops.coordinates import Nearest, Transformation
from modelcc.ops.resize import Mode, Resize

COORDINATES: tuple[Transformation, ...] = get_args(Transformation)
NEAREST: tuple[Nearest, ...] = get_args(Nearest)
MODES: tuple[Mode, ...] = get_args(Mode)
_MODES = {"bilinear": "linear", "trilinear": "linear"}


def upsample(call: Call) -> str:
    """Scales are an attribute before opset 9, then an operand."""
    scales = call.attrs.numbers("scales") if call.opset < 9 else _scales(call, 1)
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
    if policy == "stretch":
        return _resized(call, None, sizes, coordinates, nearest, region)
    scale, sizes = _in_proportion(call, sizes, axes, policy)
    scales = tuple(scale if a in axes else 1.0 for a in range(rank))
    return _resized(call, scales, sizes, coordinates, nearest, region)


def _in_proportion(
    call: Call, sizes: tuple[Index, ...], axes: tuple[int, ...], policy: str
) -> tuple[float, tuple[Index, ...]]:
    """One scale for all of ``axes``, that of the axis that decides, and the sizes it gives."""
    if policy not in ("not_larger", "not_smaller"):
        call.fail(f"unknown keep_aspect_ratio_policy {policy!r}")
    extents = call.shape()
    ratios: list[Fraction] = []
    for axis in axes:
        new, old = sizes[axis], extents[axis]
        if not isinstance(new, int) or not isinstance(old, int):
            unsupported(f"keep_aspect_ratio_policy {policy} with named dimensions; fix them")
        ratios.append(Fraction(new, old))
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    half_up = {a: (extents[a] * scale.numerator * 2 + scale.denominator) for a in axes}
    found = [
        floordiv(half_up[a], 2 * scale.denominator) if a in axes else d
        for a, d in enumerate(extents)
    ]
    return float(scale), tuple(found)


def _region(call: Call, axes: tuple[int, ...]) -> tuple[tuple[float, float], ...]:
    """Region of interest for every axis: all the begins, then all the ends."""
    flat = call.array(1, "region of interest").reshape(-1).tolist()
    if len(flat) != 2 * len(axes):
        call.fail(f"a region of {len(flat)} numbers for {len(axes)} axes")
    given = {a: (flat[i], flat[i + len(axes)]) for i, a in enumerate(axes)}
    return tuple(given.get(a, (0.0, 1.0)) for a in range(call.rank()))


def _scales(call: Call, operand: int) -> tuple[float, ...]:
    elements = call.contents(operand, "scales").reshape(-1).tolist()
    if any(not isinstance(e, int | float) for e in elements):
        unsupported("scales that depend on a named dimension; give sizes instead")
    return tuple(float(e) for e in elements)


def _sizes(call: Call, axes: tuple[int, ...]) -> tuple[Index, ...]:
    if call.attrs.flag("antialias"):
        call.contents(3, "sizes")  # its filters are laid out at import
    sizes = call.indices(3, "sizes", Range(0, None))
    if len(sizes) != len(axes):
        call.fail(f"{len(sizes)} sizes for {len(axes)} axes")
    by_axis = dict(zip(axes, sizes, strict=True))
    return tuple(by_axis.get(a, d) for a, d in enumerate(call.shape()))


def _resized(
    call: Call,
    scales: tuple[float, ...] | None,
    sizes: tuple[Index, ...] | None,
    coordinates: Transformation,
    nearest: Nearest,
    region: tuple[tuple[float, float], ...] = (),
) -> str:
    """By ``scales``, or to ``sizes`` (the scales are then their ratio)."""
    extents = call.shape()
    if scales is not None and (len(scales) != len(extents) or any(s <= 0 for s in scales)):
        call.fail(f"scales {list(scales)} must be {len(extents)} positive numbers")
    if sizes is None:
        known = scales or ()
        parts = region or ((0.0, 1.0),) * len(known)
        widths = (s * (end - start) for s, (start, end) in zip(known, parts, strict=True))
        sizes = tuple(_scaled(d, w) for d, w in zip(extents, widths, strict=True))
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
    return call.emit(op, call.input(0))


def _ratio(new: Index, old: Index) -> float | None:
    """The scale where it is known although the extents may not be; None: to be computed."""
    quotient = divide(new, old) if isinstance(new, Expr) and isinstance(old, Expr) else None
    if isinstance(quotient, Ratio) and isinstance(quotient.numerator, int):
        return quotient.numerator / quotient.denominator
    return float(quotient) if isinstance(quotient, int) else None


def _scaled(extent: Index, scale: float) -> Index:
    """``floor(extent * scale)``."""
    fraction = as_fraction(scale)
    if fraction is None:
        unsupported(f"a scale of {scale}")
    return floordiv(extent * fraction.numerator, fraction.denominator)


RESIZE: Handlers = MappingProxyType({"Resize": resize, "Upsample": upsample})
