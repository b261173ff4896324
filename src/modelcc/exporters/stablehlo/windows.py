"""Convolutions and poolings as windowed StableHLO operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from modelcc.exporters.stablehlo.builder import Hlo
from modelcc.exporters.stablehlo.text import type_text
from modelcc.exporters.stablehlo.writing import Names, Types, Writing, array
from modelcc.ir.index import Index, Sym, floordiv
from modelcc.ir.scalar import identity
from modelcc.ir.types import TensorType
from modelcc.ops.accumulate import accumulator
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.pool import AveragePool, MaxPool, Pool


def are_numbers(values: Sequence[Index]) -> TypeGuard[Sequence[int]]:
    """Whether all are static."""
    return all(isinstance(v, int) for v in values)


def convolution(at: Writing, op: Conv, inputs: Names, types: Types) -> tuple[Hlo, ...] | None:
    """Sums in the accumulator type, then the bias."""
    x, w, *bias = (at.values[n] for n in inputs if n)
    before, after = op.pads_before, op.pads_after
    if not are_numbers(before) or not are_numbers(after) or not are_numbers(w.shape):
        return None
    pads = list(map(list, zip(before, after, strict=True)))
    window = f"stride = {list(op.strides)}, pad = {pads}, rhs_dilate = {list(op.dilations)}"
    return _convolved(at, (x, w), window, op.groups, bias, types[0])


def transposed(
    at: Writing, op: ConvTranspose, inputs: Names, types: Types
) -> tuple[Hlo, ...] | None:
    """The convolution of the ``strides``-dilated input with flipped weights."""
    x, w, *bias = (at.values[n] for n in inputs if n)
    window = op.window(w.shape)
    amounts = (*op.pads_before, *op.pads_after, *op.output_padding)
    if not are_numbers(amounts) or not are_numbers(w.shape):
        return None
    reach = [window.reach(a) - 1 for a in range(window.rank)]
    more = zip(reach, op.pads_before, op.pads_after, op.output_padding, strict=True)
    pads = [[r - b, r - a + o] for r, b, a, o in more]
    given = f"pad = {pads}, lhs_dilate = {list(op.strides)}, rhs_dilate = {list(op.dilations)}"
    return _convolved(at, (x, _turned(at, w, op.groups)), given, op.groups, bias, types[0])


def _turned(at: Writing, w: Hlo, groups: int) -> Hlo:
    """Weights [inputs, outputs / groups, *kernel] as [outputs, inputs / groups, *kernel], with the
    kernel reversed."""
    channels, outputs, *kernel = w.shape
    spatial = list(range(2, 2 + len(kernel)))
    w = at.hlo.emit(f"stablehlo.reverse {w.name}, dims = {spatial} : {type_text(w.type)}", w.type)
    domain, per_group = at.domain(), floordiv(channels, groups)
    split = domain.reshape(w, (groups, per_group, outputs, *kernel))
    swapped = at.hlo.transpose(split, (0, 2, 1, *(a + 1 for a in spatial)))
    return domain.reshape(swapped, (groups * outputs, per_group, *kernel))


def _convolved(
    at: Writing,
    operands: tuple[Hlo, Hlo],
    window: str,
    groups: int,
    bias: Sequence[Hlo],
    type: TensorType,
) -> tuple[Hlo]:
    hlo, wide = at.hlo, accumulator(type.dtype)
    x, w = (hlo.convert(o, wide) for o in operands)
    axes = ", ".join(map(str, range(type.rank - 2)))
    spelling = (
        f"convolution({x.name}, {w.name}) dim_numbers = [b, f, {axes}]x[o, i, {axes}]->"
        f"[b, f, {axes}], window = {{{window}}} {{batch_group_count = 1 : i64, "
        f"feature_group_count = {groups} : i64, precision_config = [#stablehlo<precision HIGHEST>, "
        "#stablehlo<precision HIGHEST>]}"
    )
    total = hlo.convert_by(spelling, TensorType(type.shape, wide), x, w)
    for b in bias:
        spread = at.domain().broadcast(hlo.convert(b, wide), (1,), total.type)
        total = hlo.elementwise("add", total, spread)
    return (hlo.convert(total, type.dtype),)


def greatest(at: Writing, op: MaxPool, inputs: Names, types: Types) -> tuple[Hlo, ...] | None:
    """The maximum of each window."""
    x = at.values[inputs[0]]
    found = _pooled(at, op, x, types[0], "maximum", identity("max", x.dtype))
    return None if found is None else (found,)


def mean(at: Writing, op: AveragePool, inputs: Names, types: Types) -> tuple[Hlo, ...] | None:
    """The sum of each window divided by its number of elements."""
    (type,), x = types, at.values[inputs[0]]
    sizes, wide = x.shape[2:], accumulator(x.dtype)
    even = op.count(tuple(Sym(f"o{a}") for a in range(len(sizes))), sizes)
    if not isinstance(even, int) and not are_numbers(sizes):
        return None
    wider = TensorType(type.shape, wide)
    total = _pooled(at, op, at.hlo.convert(x, wide), wider, "add", 0)
    if total is None:
        return None
    counts = np.full((1,) * len(sizes), even) if isinstance(even, int) else op.counts(sizes)  # type: ignore[arg-type]
    by = at.hlo.constant(counts.astype(wide.numpy))
    places = list(range(2, 2 + len(sizes)))
    if isinstance(even, int):
        by, places = at.hlo.scalar(even, wide), []
    quotient = at.hlo.elementwise("divide", total, at.domain().broadcast(by, places, wider))
    return (at.hlo.convert(quotient, type.dtype),)


def _pooled(
    at: Writing, op: Pool, x: Hlo, type: TensorType, combine: str, start: float
) -> Hlo | None:
    window, sizes = op.window, x.shape[2:]
    after = window.fitted_after(sizes, type.shape[2:]) if op.ceil_mode else op.pads_after
    if not are_numbers(after) or not are_numbers(op.pads_before):
        return None
    one = TensorType((), x.dtype)
    pairs = zip(op.pads_before, after, strict=True)
    pads = ", ".join(f"[{b}, {a}]" for b, a in ((0, 0), (0, 0), *pairs))
    attributes = {
        "window_dimensions": array((1, 1, *op.kernel)),
        "window_strides": array((1, 1, *op.strides)),
        "window_dilations": array((1, 1, *op.dilations)),
        "padding": f"dense<[{pads}]> : tensor<{len(sizes) + 2}x2xi64>",
    }
    region = at.hlo.block((one, one), lambda v: (at.hlo.elementwise(combine, *v),))
    operands = (x, at.hlo.scalar(start, x.dtype))
    return at.hlo.generic("reduce_window", operands, (type,), attributes, region)[0]
