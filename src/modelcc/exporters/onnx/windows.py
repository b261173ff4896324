"""Convolutions and pools; pads that ONNX does not support become a Pad in front."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.writing import OnnxWriting, Settings
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.index import Index, ceildiv, compare, product
from modelcc.ir.scalar import identity
from modelcc.ir.types import I32, I64
from modelcc.ops.accumulate import accumulator
from modelcc.ops.columns import Col2Im
from modelcc.ops.conv import Conv, ConvTranspose, Windowed
from modelcc.ops.deform_conv import DeformConv
from modelcc.ops.lp_pool import LpPool
from modelcc.ops.pool import AveragePool, MaxPool, MaxPoolGrad, MaxPoolIndices, Pool
from modelcc.ops.quant_matmul import ConvInteger, QLinearConv
from modelcc.ops.window import Window

Pads = Sequence[Index]


def plain_pads(before: Pads, after: Pads) -> list[int] | None:
    """Pads as an attribute; None if one is symbolic, or crops."""
    pads = [p for p in (*before, *after) if isinstance(p, int) and p >= 0]
    return pads if len(pads) == len(before) + len(after) else None


def _padded(at: OnnxWriting, x: OnnxValue, before: Pads, after: Pads, value: float) -> OnnxValue:
    """An image with its pads."""
    return at.pad(x, (0, 0, *before), (0, 0, *after), value)


def _window(op: Windowed, weights: Sequence[Index]) -> Settings:
    """Settings of a convolution without its pads."""
    kernel = [e for e in weights[2:] if isinstance(e, int)]
    whole = kernel if len(kernel) == len(weights) - 2 else None
    return {"strides": op.strides, "dilations": op.dilations, "kernel_shape": whole}


def convolution(at: OnnxWriting, op: Conv) -> OnnxValue:
    """Pads that are symbolic or crop are applied separately."""
    x, pads = at.input(), plain_pads(op.pads_before, op.pads_after)
    if pads is None:
        x, pads = _padded(at, x, op.pads_before, op.pads_after, 0), [0] * (2 * len(op.strides))
    window = _window(op, at.type(1).shape)
    return at.node("Conv", x, *at.inputs[1:], pads=pads, group=op.groups, **window)


def transposed(at: OnnxWriting, op: ConvTranspose) -> OnnxValue:
    """Without pads, then cropped and extended, if ONNX's limits on pads are exceeded."""
    pads, more = plain_pads(op.pads_before, op.pads_after), op.output_padding
    window: Settings = {**_window(op, at.type(1).shape), "group": op.groups}
    reach = zip(more, op.strides, strict=True)
    fits = all(isinstance(m, int) and 0 <= m < stride for m, stride in reach)
    if pads is not None and fits:
        return at.node("ConvTranspose", *at.inputs, pads=pads, output_padding=more, **window)
    whole = at.node("ConvTranspose", at.input(0), at.input(1), **window)
    before = [-b for b in op.pads_before]
    after = [m - a for m, a in zip(more, op.pads_after, strict=True)]
    found = _padded(at, whole, before, after, 0)
    if not at.has(2):
        return found
    column = at.build.ints(1, -1, *(1,) * len(more))
    return at.node("Add", found, at.node("Reshape", at.input(2), column))


def _pool(op: Pool, pads: Pads, ceil_mode: bool = False) -> Settings:
    return {
        "kernel_shape": op.kernel,
        "strides": op.strides,
        "pads": pads,
        "dilations": op.dilations,
        "ceil_mode": int(ceil_mode),
    }


def _counts(at: OnnxWriting, op: Pool) -> Sequence[Index]:
    """Output extents."""
    return (at.type(1) if isinstance(op, MaxPoolGrad) else at.results[0]).shape[2:]


def _as_it_is(at: OnnxWriting, op: Pool) -> Settings | None:
    """Settings of an ONNX pool; None if it cannot express this form: pads must be less than the
    kernel.

    Checkers count windows of ``ceil_mode`` that begin in the trailing padding, runtimes do not: if
    there would be some, pads determine the number of windows.
    """
    sizes, counts, rank = at.shape[2:], _counts(at, op), len(op.kernel)
    after, ceil_mode = op.pads_after, op.ceil_mode
    rooms = (
        size + before + behind - op.window.reach(axis)
        for axis, (size, before, behind) in enumerate(
            zip(sizes, op.pads_before, op.pads_after, strict=True)
        )
    )
    counted = tuple(ceildiv(r, s) + 1 for r, s in zip(rooms, op.strides, strict=True))
    if ceil_mode and counted != counts and at.type().is_static:
        fitted = op.window.fitted_after(sizes, counts)
        after, ceil_mode = tuple(max(a, 0) if isinstance(a, int) else a for a in fitted), False
        beyond = any(compare(a, ">", p, {}) for a, p in zip(after, op.pads_after, strict=True))
        if beyond and isinstance(op, AveragePool) and op.count_include_pad:
            return None
    pads = plain_pads(op.pads_before, after)
    if pads is None or any(p >= op.kernel[i % rank] for i, p in enumerate(pads)):
        return None
    return _pool(op, pads, ceil_mode)


def _flush(at: OnnxWriting, op: Pool) -> tuple[Pads, Settings]:
    """Trailing padding that ends with the last window, and settings of a pool without pads."""
    after = op.window.fitted_after(at.shape[2:], _counts(at, op))
    return after, _pool(op, (0,) * (2 * len(op.kernel)))


def greatest(at: OnnxWriting, op: MaxPool) -> OnnxValue:
    """Unsupported pads are filled with the minimum."""
    settings = _as_it_is(at, op)
    if settings is not None:
        return at.node("MaxPool", at.input(), **settings)
    least = identity("max", at.input().dtype)
    after, settings = _flush(at, op)
    return at.node("MaxPool", _padded(at, at.input(), op.pads_before, after, least), **settings)


def greatest_places(at: OnnxWriting, op: MaxPoolIndices | MaxPoolGrad) -> OnnxValue:
    """The second result of a pool."""
    settings = _as_it_is(at, op)
    if settings is None:
        unsupported(f"its pads {op.pads_before} and {op.pads_after} are none of a pool of ONNX")
    column_major = isinstance(op, MaxPoolIndices) and op.column_major
    settings["storage_order"] = int(column_major)
    x = at.input()
    return at.build.node_of("MaxPool", [x], [x.dtype, I64], **settings)[1]


def greatest_gradient(at: OnnxWriting, op: MaxPoolGrad) -> OnnxValue:
    """Scatter-added at the indices of the maxima."""
    line = at.build.ints(-1)
    wide = accumulator(at.input().dtype)
    given = greatest_places(at, op), at.cast(at.input(1), wide)
    operands = (at.node("Reshape", x, line) for x in given)
    zeros = at.full(0, (product(at.shape),), wide)
    total = at.node("ScatterElements", zeros, *operands, axis=0, reduction="add")
    return at.cast(at.reshape(total, at.shape), at.input().dtype)


def average(at: OnnxWriting, op: AveragePool) -> OnnxValue:
    """Means over padded windows, times the ratio of window size to counted elements, if ONNX has no
    such pool."""
    settings = _as_it_is(at, op)
    if settings is not None:
        settings["count_include_pad"] = int(op.count_include_pad)
        return at.node("AveragePool", at.input(), **settings)
    after, settings = _flush(at, op)
    padded = _padded(at, at.input(), op.pads_before, after, 0)
    mean = at.node("AveragePool", padded, **settings)
    share = at.node("AveragePool", _counted(at, op, after), **settings)
    least = at.build.number(1 / prod(op.kernel), mean.dtype)
    return at.node("Div", mean, at.node("Max", share, least))


def _counted(at: OnnxWriting, op: AveragePool, after: Pads) -> OnnxValue:
    """A mask of counted elements: ones, padded with zeros as the operand is."""
    sizes, before = at.shape[2:], op.pads_before
    if op.count_include_pad:
        sides = zip(sizes, before, op.pads_after, strict=True)
        sizes = tuple(size + b + a for size, b, a in sides)
        before = (0,) * len(sizes)
        after = [a - p for a, p in zip(after, op.pads_after, strict=True)]
    ones = at.full(1, (1, 1, *sizes), at.input().dtype)
    return _padded(at, ones, before, after, 0)


def norm(at: OnnxWriting, op: LpPool) -> OnnxValue:
    settings = _as_it_is(at, op)
    if settings is not None:
        return at.node("LpPool", at.input(), p=op.p, **settings)
    if op.p < 1:
        unsupported(f"of p = {op.p}, with pads {op.pads_before} and {op.pads_after}")
    after, settings = _flush(at, op)
    padded = _padded(at, at.input(), op.pads_before, after, 0)
    return at.node("LpPool", padded, p=op.p, **settings)


def deformed(at: OnnxWriting, op: DeformConv) -> OnnxValue | None:
    """Trailing pads follow from the result."""
    kernel = at.type(1).shape[2:]
    window = Window(kernel, op.strides, op.pads_before, (0,) * len(kernel), op.dilations)
    pads = plain_pads(op.pads_before, window.fitted_after(at.shape[2:], at.results[0].shape[2:]))
    if pads is None:
        return None
    settings: Settings = {
        "group": op.groups,
        "offset_group": op.offset_groups,
        "strides": op.strides,
    }
    return at.node("DeformConv", *at.inputs, pads=pads, dilations=op.dilations, **settings)


def columns(at: OnnxWriting, op: Col2Im) -> OnnxValue:
    image, block = at.vector(op.image), at.vector(op.block)
    settings: Settings = {
        "strides": op.strides,
        "dilations": op.dilations,
        "pads": [*op.before, *op.after],
    }
    return at.node("Col2Im", at.input(), image, block, **settings)


def integer_convolution(at: OnnxWriting, op: ConvInteger) -> OnnxValue:
    """Pads are zero points, or as given."""
    x, pads = at.input(), plain_pads(op.pads_before, op.pads_after)
    if pads is None or (op.padding and not at.has(2)):
        if at.has(2):
            unsupported(f"its pads {op.pads_before} and {op.pads_after} are no numbers from 0 on")
        x = _padded(at, x, op.pads_before, op.pads_after, op.padding)
        pads = [0] * (2 * len(op.strides))
    settings: Settings = {
        "dtype": I32,
        "pads": pads,
        "group": op.groups,
        **_window(op, at.type(1).shape),
    }
    zeros = at.inputs[2:]
    if not at.has(3) or at.type(3).elements == 1:
        return at.node("ConvInteger", x, at.input(1), *zeros, **settings)
    whole = at.node("ConvInteger", x, at.input(1), *zeros[:1], **settings)
    return at.node("Sub", whole, _shares_of_zeros(at, op, x, settings))


def _shares_of_zeros(
    at: OnnxWriting, op: ConvInteger, x: OnnxValue, settings: Settings
) -> OnnxValue:
    """The contribution of per-channel zero points of weights, which runtimes do not support: each
    times its window's sum."""
    w, (_, per_group, *kernel) = at.input(1), at.type(1).shape
    ones = at.full(1, (op.groups, per_group, *kernel), w.dtype)
    seen = at.node("ConvInteger", x, ones, *at.inputs[2:3], **settings)
    seen = at.node("Unsqueeze", seen, at.build.ints(2))
    column = at.build.ints(op.groups, -1, *(1,) * len(kernel))
    zeros = at.node("Reshape", at.cast(at.input(3), I32), column)
    return at.reshape(at.node("Mul", seen, zeros), at.results[0].shape)


def quantised_convolution(at: OnnxWriting, op: QLinearConv) -> OnnxValue | None:
    pads = plain_pads(op.pads_before, op.pads_after)
    if pads is None:
        return None
    (result,) = at.results
    window = _window(op, at.type(3).shape)
    settings: Settings = {"dtype": result.dtype, "pads": pads, "group": op.groups}
    return at.node("QLinearConv", *at.inputs, **settings, **window)
