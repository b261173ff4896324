"""Handlers of onnxruntime's further products with weights of few bits (com.microsoft)."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.contrib.fused import bits_product
from modelcc.ir.types import Array
from modelcc.ops import activation as act
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.layer_norm import RMSNorm
from modelcc.ops.matmul import MatMul

FP4 = np.array(
    [0.0, 0.0052083333, 0.6666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25], np.float32
)  # fmt: skip
"""Magnitudes of bitsandbytes' 4-bit floats; the highest bit is the sign."""

NF4 = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
"""Quantiles of a normal distribution (Dettmers et al., "QLoRA", 2023)."""


def matmul_of_codes(call: Call) -> str:
    """``a @ b^T``: b [N, K] is codes of a table in blocks, the first one in a byte's upper half."""
    attrs = call.attrs
    shape, block = (attrs.integer("N"), attrs.integer("K")), attrs.integer("block_size")
    count = shape[0] * shape[1]
    table = NF4 if attrs.integer("quant_type") else np.concatenate([FP4, -FP4])
    packed = call.array(1, "weights").reshape(-1)
    codes = np.stack([packed >> 4, packed & 15], -1).reshape(-1)[:count]
    scales = call.array(2, "scales").reshape(-1)
    whole = table[codes] * np.repeat(scales.astype(np.float32), block)[:count]
    weights = whole.reshape(shape).astype(scales.dtype)
    if attrs.flag("transB", True):
        weights = np.ascontiguousarray(weights.T)
    return of(MatMul(), call.value(0), call.literal(weights)).name


FORMATS = MappingProxyType({0: (32, False), 1: (32, True), 2: (64, False), 4: (128, False)})
"""Of the types of MatMulFpQ4: how many weights a block has, and whether there are zero points."""


def matmul_of_blocks(call: Call) -> str:
    """``a @ b``: columns of b are blocks of a scale, a zero point and halves of bytes."""
    rows, columns = call.integers(2, "shape of weights")
    kind = call.attrs.integer("blk_quant_type", 1)
    if kind not in FORMATS:
        unsupported(f"blocks of type {kind}")
    size, zeros = FORMATS[kind]
    bytes_ = call.array(1, "weights").reshape(columns, -(-rows // size), -1)
    scales = np.ascontiguousarray(bytes_[..., :4]).view(np.float32)
    zero = bytes_[..., 4:5].astype(np.int32) if zeros else 8
    weights = (_halves(bytes_[..., 4 + zeros :]) - zero) * scales
    whole = weights.reshape(columns, -1)[:, :rows].astype(np.float32)
    right = call.literal(np.ascontiguousarray(whole.T))
    return of(MatMul(), call.value(0), right).name


def _halves(data: Array) -> Array:
    """Lower halves of 16 bytes, then their upper halves."""
    runs = data.reshape(*data.shape[:-1], -1, 16)
    both = np.concatenate([runs & 15, runs >> 4], -1).astype(np.int32)
    return both.reshape(*data.shape[:-1], -1)


def _normal(call: Call) -> tuple[str, str]:
    """The normalised sum of operands 0 and 1, and the sum; as they are without a scale."""
    x = call.value(0)
    total = x + call.value(1) if call.has(1) else x
    if not call.has(2):
        return total.name, total.name
    norm = RMSNorm(x.type.rank - 1, call.attrs.number("epsilon", 1e-5))
    return of(norm, total, call.value(2)).name, total.name


def _layer(call: Call, x: str, first: int, columns: str) -> Value:
    """``x`` times the weights, scales and bias that begin at operand ``first``."""
    inputs = (x, call.input(first), call.input(first + 1), "", "", call.input(first + 2))
    return Value(call, bits_product(call.with_inputs(inputs), call.attrs.integer(columns)))


def gated_layers(call: Call) -> tuple[str, str]:
    """The activation of one product times another one."""
    x, total = _normal(call)
    name = call.choice(call.attrs.text("activation"), ("silu", "swish", "gelu", "relu"),
                       "activation")  # fmt: skip
    op = {"gelu": act.Gelu(), "relu": act.Relu()}.get(name, act.Silu())
    gate, up = _layer(call, x, 3, "N"), _layer(call, x, 6, "N")
    return (of(op, gate) * up).name, total


def three_layers(call: Call) -> tuple[str, str, str, str]:
    """Queries, keys and values of normalised operands, and the sum of these."""
    x, total = _normal(call)
    q = _layer(call, x, 3, "Nq")
    k, v = (_layer(call, x, first, "Nkv") for first in (6, 9))
    return q.name, k.name, v.name, total


CONTRIB_BITS = table(
    MatMulBnb4=matmul_of_codes,
    MatMulFpQ4=matmul_of_blocks,
    MatMulNBitsMlp=gated_layers,
    MatMulNBitsQkv=three_layers,
)
