"""Integer constants: weights per slice or block, biases in 32 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.types import I32, Array, DType
from modelcc.ops.quant import DequantizeLinear, limits
from modelcc.quantization.ranges import SMALLEST

LARGEST_BIAS = 2.0**30
"""Maximum bias in units of the accumulator, which leaves as much for the sum of products."""

SHRINKS = np.linspace(1.0, 0.6, 21)
"""Fractions of the maximum weight that are tried for low-bit weights."""


@dataclass(frozen=True)
class IntegerWeights:
    """``data * scale`` with one scale, or one per slice of ``axis``, or per ``block``."""

    data: Array
    scale: Array
    axis: int
    block: int = 0

    @property
    def op(self) -> DequantizeLinear:
        """The op that dequantises them."""
        return DequantizeLinear(self.axis, self.block)

    def floats(self) -> Array:
        """The dequantised weights."""
        return self.op.reference(self.data, self.scale)


def sliced_weights(
    weights: Array, axis: int | None, dtype: DType, least: Array | float = 0.0
) -> IntegerWeights:
    """Weights with a scale per slice of ``axis`` (None: per tensor) of at least ``least``."""
    most = limits(dtype)[1]
    others = tuple(a for a in range(weights.ndim) if axis is None or a != axis)
    scale = np.maximum(np.abs(weights).max(axis=others, initial=0.0) / most, least)
    scale = np.where(scale > 0, np.maximum(scale, SMALLEST), 1.0).astype(np.float32)
    shape = () if axis is None else (-1, *(1,) * (weights.ndim - axis - 1))
    data = np.clip(np.rint(weights / scale.reshape(shape)), -most, most).astype(dtype.numpy)
    return IntegerWeights(data, np.asarray(scale, np.float32), axis or 0)


def blocked_weights(weights: Array, axis: int, block: int, dtype: DType) -> IntegerWeights:
    """Weights with a scale per ``block`` of ``axis``: the candidate with the least squared
    error."""
    most, extent = limits(dtype)[1], weights.shape[axis]
    blocks = -(-extent // block)
    filled = [(0, blocks * block - extent if a == axis else 0) for a in range(weights.ndim)]
    shape = (*weights.shape[:axis], blocks, block, *weights.shape[axis + 1 :])
    split = np.pad(weights, filled).reshape(shape)
    whole = np.abs(split).max(axis=axis + 1, keepdims=True) / most
    best, least = np.where(whole > 0, whole, 1.0), np.full(whole.shape, np.inf)
    for share in SHRINKS if dtype.bits < 8 else SHRINKS[:1]:
        scale = np.where(whole > 0, np.maximum(whole * share, SMALLEST), 1.0)
        left = np.clip(np.rint(split / scale), -most, most) * scale
        error = ((left - split) ** 2).sum(axis=axis + 1, keepdims=True)
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    scale = best.squeeze(axis + 1).astype(np.float32)
    every = np.repeat(scale, block, axis)[(slice(None),) * axis + (slice(extent),)]
    data = np.clip(np.rint(weights / every), -most, most).astype(dtype.numpy)
    return IntegerWeights(data, scale, axis, block)


def integer_bias(bias: Array, scale: Array) -> IntegerWeights:
    """A bias in units of the accumulator it is added to."""
    steps = np.clip(np.rint(bias.astype(np.float64) / scale), *limits(I32))
    return IntegerWeights(steps.astype(np.int32), np.asarray(scale, np.float32), 0)
