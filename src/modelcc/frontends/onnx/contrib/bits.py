"""Handlers of onnxruntime's further products with weights of few bits (com.microsoft)."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.fused import bits_product, plus
from modelcc.frontends.onnx.contrib.operands import operators
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


def matmul_of_codes(call: Call, a: Value, b: Value, absmax: Value) -> Value:
    """``a @ b^T``: b [N, K] is codebook indices in blocks, the first one in a byte's upper half."""
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
    return of(MatMul(), a, call.literal(weights))


FORMATS = MappingProxyType({0: (32, False), 1: (32, True), 2: (64, False), 4: (128, False)})
"""By type of MatMulFpQ4: weights per block, and whether there are zero points."""


def matmul_of_blocks(call: Call, a: Value, b: Value, shape: Value) -> Value:
    """``a @ b``: columns of b consist of blocks of a scale, a zero point and 4-bit weights."""
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
    return of(MatMul(), a, right)


def _halves(data: Array) -> Array:
    """The low nibbles of 16 bytes, then their high nibbles."""
    runs = data.reshape(*data.shape[:-1], -1, 16)
    both = np.concatenate([runs & 15, runs >> 4], -1).astype(np.int32)
    return both.reshape(*data.shape[:-1], -1)


def _normal(call: Call, x: Value, skip: Value | None, scale: Value | None) -> tuple[Value, Value]:
    """The normalised sum of ``x`` and ``skip``, and the sum; unnormalised without a scale."""
    total = plus(x, skip)
    if scale is None:
        return total, total
    norm = RMSNorm(x.type.rank - 1, call.attrs.number("epsilon", 1e-5))
    return of(norm, total, scale), total


def _layer(call: Call, x: Value, first: int, bias: Value | None, columns: str) -> Value:
    """``x`` times the weights and scales that begin at operand ``first``, plus a bias."""
    places = (first, first + 1, None)
    return plus(bits_product(call, x, places, call.attrs.integer(columns)), bias)


def gated_layers(
    call: Call, x: Value, skip: Value | None, scale: Value | None, *layers: Value | None
) -> tuple[Value, Value]:
    """The activation of one product times another product."""
    normal, total = _normal(call, x, skip, scale)
    name = call.choice(call.attrs.text("activation"), ("silu", "swish", "gelu", "relu"),
                       "activation")  # fmt: skip
    op = {"gelu": act.Gelu(), "relu": act.Relu()}.get(name, act.Silu())
    gate, up = (_layer(call, normal, 3 + i, layers[i + 2], "N") for i in (0, 3))
    return of(op, gate) * up, total


def three_layers(
    call: Call, x: Value, skip: Value | None, scale: Value | None, *layers: Value | None
) -> list[Value]:
    """Projections to queries, keys and values of the normalised sum, and the sum."""
    normal, total = _normal(call, x, skip, scale)
    columns = ((0, "Nq"), (3, "Nkv"), (6, "Nkv"))
    return [*(_layer(call, normal, 3 + i, layers[i + 2], n) for i, n in columns), total]


CONTRIB_BITS = operators(
    MatMulBnb4=("A B absmax", matmul_of_codes),
    MatMulFpQ4=("A B B_shape", matmul_of_blocks),
    MatMulNBitsMlp=(
        "A skip? norm_scale? gate_B gate_scales gate_bias? up_B up_scales up_bias?",
        gated_layers,
    ),
    MatMulNBitsQkv=(
        "A skip? norm_scale q_B q_scales q_bias? k_B k_scales k_bias? v_B v_scales v_bias?",
        three_layers,
    ),
)
