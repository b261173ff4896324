"""Pooling along one, two or three spatial axes, by windows and to given extents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from modelcc.ir.index import Index, product
from modelcc.ir.types import Array
from modelcc.nn.functional.values import (
    Numbers,
    as_tensor,
    averaged,
    batched,
    number,
    of,
    per_axis,
    reshaped,
)
from modelcc.ops.gather import Gather
from modelcc.ops.lp_pool import LpPool
from modelcc.ops.matmul import MatMul
from modelcc.ops.pool import AveragePool, MaxPool
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.window import Window
from modelcc.tensor.tensor import Tensor


def max_pool(
    rank: int,
    x: Any,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The maximum of each window; a stride of None is the kernel."""
    kernel = per_axis(kernel_size, rank, "kernel_size")
    strides = kernel if stride is None else per_axis(stride, rank, "stride")
    pads = per_axis(padding, rank, "padding")
    dilations = per_axis(dilation, rank, "dilation")
    return batched(MaxPool(kernel, strides, pads, pads, dilations, ceil_mode), as_tensor(x), rank)


def average_pool(
    rank: int,
    x: Any,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window, or its sum divided by ``divisor_override``."""
    x = as_tensor(x)
    kernel = per_axis(kernel_size, rank, "kernel_size")
    strides = kernel if stride is None else per_axis(stride, rank, "stride")
    pads = per_axis(padding, rank, "padding")
    ones = (1,) * rank
    if divisor_override is None:
        op = AveragePool(kernel, strides, pads, pads, ones, ceil_mode, count_include_pad)
        return batched(op, x, rank)
    sizes = x.shape[-rank:]
    window = Window(kernel, strides, pads, pads, ones, ceil_mode)
    after = window.fitted_after(sizes, window.extents(sizes))  # whole windows, all of one size
    whole = AveragePool(kernel, strides, pads, after, ones, False, True)
    return batched(whole, x, rank) * (prod(kernel) / divisor_override)


def lp_pool(
    rank: int,
    x: Any,
    norm_type: int,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """``(sum of |x|^p)^(1/p)`` of each window."""
    kernel = per_axis(kernel_size, rank, "kernel_size")
    strides = kernel if stride is None else per_axis(stride, rank, "stride")
    zeros, ones = (0,) * rank, (1,) * rank
    op = LpPool(kernel, strides, zeros, zeros, ones, ceil_mode, norm_type)
    return batched(op, as_tensor(x), rank)


OutputSize = int | None | Sequence[int | None]
"""Extents of a result; None is that of the operand."""


def adaptive_average_pool(rank: int, x: Any, output_size: OutputSize) -> Tensor:
    """The mean of each of ``output_size`` windows, which cover the image as evenly as possible."""
    x = as_tensor(x)
    target = _extents(x, rank, output_size)
    if all(t == 1 for t in target):
        return averaged(x, *range(x.ndim - rank, x.ndim), keepdims=True)
    kernel = _even(x.shape[-rank:], target)
    if kernel is not None:
        zeros = (0,) * rank
        return batched(AveragePool(kernel, kernel, zeros, zeros, (1,) * rank), x, rank)
    for place, extent in enumerate(target):
        x = _averaged_along(x, x.ndim - rank + place, extent)
    return x


def adaptive_max_pool(rank: int, x: Any, output_size: OutputSize) -> Tensor:
    """The maximum of each of ``output_size`` windows, which cover the image as evenly as
    possible."""
    x = as_tensor(x)
    target = _extents(x, rank, output_size)
    if all(t == 1 for t in target):
        return of(ReduceMax(tuple(range(x.ndim - rank, x.ndim)), True), x)
    kernel = _even(x.shape[-rank:], target)
    if kernel is not None:
        zeros = (0,) * rank
        return batched(MaxPool(kernel, kernel, zeros, zeros, (1,) * rank), x, rank)
    for place, extent in enumerate(target):
        x = _greatest_along(x, x.ndim - rank + place, extent)
    return x


def _extents(x: Tensor, rank: int, output_size: OutputSize) -> tuple[Index, ...]:
    given = (output_size,) * rank if not isinstance(output_size, Sequence) else output_size
    return tuple(own if e is None else e for e, own in zip(given, x.shape[-rank:], strict=True))


def _even(sizes: Sequence[Index], target: Sequence[Index]) -> tuple[int, ...] | None:
    """Extents of the windows if these are all equal and adjacent."""
    kernel: list[int] = []
    for size, extent in zip(sizes, target, strict=True):
        if not isinstance(size, int) or not isinstance(extent, int) or size % extent:
            return None
        kernel.append(size // extent)
    return tuple(kernel)


def _bins(size: Index, extent: Index) -> list[range]:
    """The elements of each result: from floor(i * size / extent) to the ceiling of the next."""
    whole = number(size, "an extent of an adaptive pooling")
    many = number(extent, "an extent of an adaptive pooling")
    return [range(i * whole // many, -(-(i + 1) * whole // many)) for i in range(many)]


def _averaged_along(x: Tensor, axis: int, extent: Index) -> Tensor:
    if x.shape[axis] == extent:
        return x
    bins = _bins(x.shape[axis], extent)
    matrix = np.zeros((len(bins), number(x.shape[axis], "an extent")))
    for i, bin in enumerate(bins):
        matrix[i, bin.start : bin.stop] = 1 / len(bin)
    lead, tail = x.shape[:axis], x.shape[axis + 1 :]
    flat = reshaped(x, *lead, x.shape[axis], product(tail))
    return reshaped(of(MatMul(), _constant(x, matrix), flat), *lead, len(bins), *tail)


def _greatest_along(x: Tensor, axis: int, extent: Index) -> Tensor:
    """Windows gathered; smaller ones repeat their first element."""
    if x.shape[axis] == extent:
        return x
    bins = _bins(x.shape[axis], extent)
    most = max(map(len, bins))
    table = np.array([[*bin, *[bin.start] * (most - len(bin))] for bin in bins])
    return of(ReduceMax((axis + 1,), False), of(Gather(axis), x, as_tensor(table)))


def _constant(x: Tensor, array: Array) -> Tensor:
    return Tensor(array, x.dtype)


max_pool1d, max_pool2d, max_pool3d = (partial(max_pool, rank) for rank in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (partial(average_pool, rank) for rank in (1, 2, 3))
lp_pool1d, lp_pool2d, lp_pool3d = (partial(lp_pool, rank) for rank in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    partial(adaptive_average_pool, rank) for rank in (1, 2, 3)
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    partial(adaptive_max_pool, rank) for rank in (1, 2, 3)
)
