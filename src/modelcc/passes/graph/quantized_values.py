"""Quantised values in a graph: the bytes from which a value is dequantised, and their scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.graph import Node
from modelcc.ir.rewriting import Rewriter
from modelcc.ir.types import F32, I8, I32, U8, Array, DType, dtype_of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.gather import Gather
from modelcc.ops.pool import MaxPool
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear
from modelcc.ops.shape import Transpose
from modelcc.ops.slicing import Slice
from modelcc.passes.graph.products import made_by

BYTES = (I8, U8)
MOVEMENT = (Reshape, Transpose, Slice, Gather, MaxPool)
"""Ops whose results are elements of their first operand; MaxPool preserves order."""


@dataclass(frozen=True)
class Quantized:
    """``(name - zero) * scale``; the parameters have no dimension, or one along ``axis``."""

    name: str
    dtype: DType
    scale: Array
    zero: Array
    axis: int

    @property
    def per_tensor(self) -> bool:
        """Whether all elements have one scale and zero point."""
        return self.scale.ndim == 0 and self.zero.ndim == 0


def dequantised(at: Rewriter, name: str) -> Quantized | None:
    """The integers from which ``name`` is dequantised by constant parameters; None if it is not."""
    node = made_by(at, name, DequantizeLinear)
    if node is None or not isinstance(node.op, DequantizeLinear):
        return None
    dtype = at.type_of(node.inputs[0]).dtype
    scale_and_zero = parameters(at, node, dtype)
    if scale_and_zero is None or dtype not in (*BYTES, I32) or at.type_of(name).dtype != F32:
        return None
    return Quantized(node.inputs[0], dtype, *scale_and_zero, node.op.axis)


def parameters(at: Rewriter, node: Node, dtype: DType) -> tuple[Array, Array] | None:
    """Constant scale and zero point (i32) of a node of either kind, each of rank 0 or 1."""
    if not isinstance(node.op, QuantizeLinear | DequantizeLinear) or node.op.block:
        return None
    scale = at.constant_value(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else ""
    zero = at.constant_value(given) if given else np.zeros((), dtype.numpy)
    if scale is None or zero is None or dtype_of(scale) != F32:
        return None
    return _squeezed(scale), _squeezed(zero).astype(np.int32)


def _squeezed(parameter: Array) -> Array:
    return parameter.reshape(()) if parameter.size == 1 else parameter


def along(parameter: Array, axis: int, rank: int) -> Array:
    """A parameter shaped to broadcast against a tensor of ``rank`` dimensions."""
    return parameter.reshape(-1, *(1,) * (rank - axis - 1)) if parameter.ndim else parameter
