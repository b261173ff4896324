"""dot_general and convolution, brought to the axis order of ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.frontends.stablehlo.structure import (
    converted,
    padded,
    reshaped,
    reversed_along,
    transposed,
)
from modelcc.ir.index import Index, product
from modelcc.ir.types import BOOL, F32, I32, DType
from modelcc.ops.conv import Conv
from modelcc.ops.matmul import MatMul


def dot_general(call: HloCall) -> str:
    """A matrix product with the batch first: ``[batch, rows, terms] @ [batch, terms, columns]``.

    Axes of a kind are merged, except those of rows if there is no batch and one matrix.
    """
    numbers = call.numbering("dot_dimension_numbers")
    batches, terms = (
        [tuple[int, ...](numbers[f"{side}_{kind}_dimensions"]) for side in ("lhs", "rhs")]
        for kind in ("batching", "contracting")
    )
    free = [
        tuple(a for a in range(call.rank(n)) if a not in (*batches[n], *terms[n])) for n in (0, 1)
    ]
    dtype = _computed(call)
    left, right = (converted(call, name, dtype) for name in call.inputs)
    shapes = call.shape(0), call.shape(1)
    batch = tuple(shapes[0][a] for a in batches[0])
    rows = tuple(shapes[0][a] for a in free[0])
    columns = tuple(shapes[1][a] for a in free[1])
    depth = product(shapes[0][a] for a in terms[0])
    plain = not batch and len(rows) > 0
    left = transposed(call, left, (*batches[0], *free[0], *terms[0]))
    left = reshaped(call, left, (*batch, *(rows if plain else (product(rows),)), depth))
    right = transposed(call, right, (*batches[1], *terms[1], *free[1]))
    right = reshaped(call, right, (*batch, depth, product(columns)))
    result = reshaped(call, call.emit(MatMul(), left, right), (*batch, *rows, *columns))
    return converted(call, result, call.result_dtype)


def _computed(call: HloCall) -> DType:
    """The type of the multiplication: the result's, for the operands may be narrower."""
    found = call.result_dtype
    if found == BOOL:
        return I32
    return F32 if found.is_float and found.bits < 16 else found


def dot(call: HloCall) -> str:
    """The product of two vectors or matrices."""
    dtype = _computed(call)
    result = call.emit(MatMul(), *(converted(call, name, dtype) for name in call.inputs))
    return converted(call, result, call.result_dtype)


def convolution(call: HloCall) -> str:
    rank = call.rank() - 2
    pads = call.pairs("padding", rank)
    return convolved(call, [low for low, _ in pads], [high for _, high in pads])


def dynamic_conv(call: HloCall) -> str:
    """A convolution with padding as an operand."""
    pads = call.indices(2, "padding")
    return convolved(call, pads[::2], pads[1::2])


def convolved(call: HloCall, low: Sequence[Index], high: Sequence[Index]) -> str:
    """Batch and channels first, then spatial axes; weights with output channels first."""
    numbers = call.numbering("dimension_numbers")
    rank, dtype = call.rank() - 2, _computed(call)
    ones = (1,) * rank
    images, kernels = (converted(call, name, dtype) for name in call.inputs[:2])
    images = transposed(call, images, _axes(numbers, "input", "batch", "feature"))
    kernels = transposed(call, kernels, _axes(numbers, "kernel", "output_feature", "input_feature"))
    images = _spread(call, images, call.integers("lhs_dilation", ones))
    turned = [2 + a for a, turn in enumerate(call.attribute("window_reversal", ())) if turn]
    kernels = reversed_along(call, kernels, turned)
    strides, dilations = (call.integers(n, ones) for n in ("window_strides", "rhs_dilation"))
    groups = call.integer("feature_group_count", 1)
    parts = call.integer("batch_group_count", 1)
    if parts > 1:
        images, groups = _batch_as_groups(call, images, parts), parts
    if rank == 0:
        images, kernels = (_with_axis(call, name) for name in (images, kernels))
        low, high, strides, dilations = (0,), (0,), (1,), (1,)
    op = Conv(strides, tuple(low), tuple(high), dilations, groups)
    result = call.emit(op, images, kernels)
    if rank == 0:
        result = reshaped(call, result, call.type_of(result).shape[:2])
    order = _axes(numbers, "output", "batch", "feature")
    back = sorted(range(len(order)), key=order.__getitem__)
    return converted(call, transposed(call, result, back), call.result_dtype)


def _axes(numbers: Mapping[str, Any], operand: str, *first: str) -> tuple[int, ...]:
    """Indices of an operand's axes, ``first`` and the spatial ones."""
    leading = (int(numbers[f"{operand}_{name}_dimension"]) for name in first)
    return (*leading, *numbers[f"{operand}_spatial_dimensions"])


def _spread(call: HloCall, images: str, dilation: Sequence[int]) -> str:
    """With zeros between the elements of spatial axes (dilated)."""
    if all(d == 1 for d in dilation):
        return images
    between = (0, 0, *(d - 1 for d in dilation))
    none = (0,) * len(between)
    zero = call.constant(0, call.type_of(images).dtype)
    return padded(call, images, zero, none, none, between)


def _batch_as_groups(call: HloCall, images: str, parts: int) -> str:
    """Parts of the batch as groups of channels, each with its own weights."""
    batch, channels, *spatial = call.type_of(images).shape
    size = number_of(batch, "batch") // parts
    apart = reshaped(call, images, (parts, size, channels, *spatial))
    turned = transposed(call, apart, (1, 0, *range(2, 3 + len(spatial))))
    return reshaped(call, turned, (size, channels * parts, *spatial))


def _with_axis(call: HloCall, name: str) -> str:
    return reshaped(call, name, (*call.type_of(name).shape, 1))


CONTRACTION = table(
    dot_general=dot_general, dot=dot, convolution=convolution, dynamic_conv=dynamic_conv
)
