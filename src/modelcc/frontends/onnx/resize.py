"""Handlers of Resize and its predecessor Upsample."""

from __future__ import annotations

from types import MappingProxyType

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.ratio import Ratio, as_fraction, divide
from modelcc.ir.index import Index, floordiv
from modelcc.ops.resize import Resize


def upsample(call: Call) -> str:
    """Scales are an attribute before opset 9, then an operand."""
    if call.opset < 9:
        scales = call.attrs.numbers("scales")
    else:
        scales = _scales(call, 1)
    return _resized(call, scales, None, "asymmetric", "floor")


def resize(call: Call) -> str:
    if call.opset < 11:
        return _resized(call, _scales(call, 1), None, "asymmetric", "floor")
    attrs = call.attrs
    coordinates = attrs.text("coordinate_transformation_mode", "half_pixel")
    if coordinates == "tf_crop_and_resize":
        unsupported("coordinate_transformation_mode tf_crop_and_resize")
    policy = attrs.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        unsupported(f"keep_aspect_ratio_policy {policy}")
    axes = _axes(call)
    scales = _scales(call, 2) if call.has(2) else ()
    given: tuple[float, ...] | None = _spread(scales, axes, call.rank()) if scales else None
    sizes = None
    if given is None:
        if not call.has(3):
            call.fail("neither scales nor sizes are given")
        sizes = _sizes(call, axes)
    nearest = attrs.text("nearest_mode", "round_prefer_floor")
    return _resized(call, given, sizes, coordinates, nearest)


def _axes(call: Call) -> tuple[int, ...]:
    rank = call.rank()
    axes = call.attrs.integers("axes", tuple(range(rank)))
    return tuple(call.normal(a, rank) for a in axes)


def _spread(scales: tuple[float, ...], axes: tuple[int, ...], rank: int) -> tuple[float, ...]:
    by_axis = dict(zip(axes, scales, strict=False))
    return tuple(by_axis.get(a, 1.0) for a in range(rank))


def _scales(call: Call, operand: int) -> tuple[float, ...]:
    elements = call.contents(operand, "scales").reshape(-1).tolist()
    if any(not isinstance(e, int | float) for e in elements):
        unsupported("scales that depend on a named dimension; give sizes instead")
    return tuple(float(e) for e in elements)


def _sizes(call: Call, axes: tuple[int, ...]) -> tuple[Index, ...]:
    sizes = call.indices(3, "sizes")
    if len(sizes) != len(axes):
        call.fail(f"{len(sizes)} sizes for {len(axes)} axes")
    by_axis = dict(zip(axes, sizes, strict=True))
    return tuple(by_axis.get(a, d) for a, d in enumerate(call.shape()))


def _resized(
    call: Call,
    scales: tuple[float, ...] | None,
    sizes: tuple[Index, ...] | None,
    coordinates: str,
    nearest: str,
) -> str:
    extents = call.shape()
    if scales is None:
        assert sizes is not None
        scales = tuple(_ratio(new, old) for new, old in zip(sizes, extents, strict=True))
    if len(scales) != len(extents) or any(s <= 0 for s in scales):
        call.fail(f"scales {list(scales)} must be {len(extents)} positive numbers")
    if sizes is None:
        sizes = tuple(_scaled(d, s) for d, s in zip(extents, scales, strict=True))
    if sizes == extents and all(s == 1 for s in scales):
        return call.input(0)
    mode = call.attrs.text("mode", "nearest")
    op = Resize(
        shape=sizes,
        scales=scales,
        mode="linear" if mode in ("bilinear", "trilinear") else mode,
        coordinates=coordinates,
        nearest=nearest,
        cubic_a=call.attrs.number("cubic_coeff_a", -0.75),
        exclude_outside=call.attrs.flag("exclude_outside"),
        extrapolation=call.attrs.number("extrapolation_value", 0.0),
        antialias=call.attrs.flag("antialias"),
    )
    return call.emit(op, call.input(0))


def _ratio(new: Index, old: Index) -> float:
    if new == old:
        return 1.0
    quotient = divide(new, old)
    if isinstance(quotient, Ratio) and isinstance(quotient.numerator, int):
        return quotient.numerator / quotient.denominator
    if not isinstance(quotient, int):
        unsupported(f"resizing {old} to {new}: the scale is not a known number")
    return float(quotient)


def _scaled(extent: Index, scale: float) -> Index:
    """``floor(extent * scale)``."""
    fraction = as_fraction(scale)
    if fraction is None:
        unsupported(f"a scale of {scale}")
    return floordiv(extent * fraction.numerator, fraction.denominator)


RESIZE: Handlers = MappingProxyType({"Resize": resize, "Upsample": upsample})
