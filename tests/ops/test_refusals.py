"""What contractions, windows, norms and quantisation say about operands they cannot take."""

from __future__ import annotations

from typing import Any

import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, F16, I8, I32, U8, TensorType
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.matmul import Einsum, Gemm, MatMul
from modelcc.ops.norm import LRN, BatchNorm, GroupNorm, LayerNorm
from modelcc.ops.pool import AveragePool, MaxPool
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.ops.recurrent import LSTM
from modelcc.ops.resize import Resize
from modelcc.ops.samples import tensor

PLAIN: dict[str, Any] = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0)}
CONV = Conv(**PLAIN, dilations=(1, 1))
GROUPED = Conv(**PLAIN, dilations=(1, 1), groups=3)
POOL: dict[str, Any] = {"kernel": (3, 3), **PLAIN, "dilations": (1, 1)}
EMPTY: dict[str, Any] = POOL | {"kernel": (0, 3)}
IMAGE, KERNEL = tensor(1, 4, 8, 8), tensor(6, 4, 3, 3)

CASES: list[tuple[Op, tuple[TensorType, ...], str]] = [
    (MatMul(), (tensor(2, 3), tensor(4, 5)), "inner extents .* differ: 3 against 4"),
    (MatMul(), (tensor(2, 3), tensor(3, 5, dtype=F16)), "different dtypes: f32 and f16"),
    (MatMul(), (tensor(), tensor(3)), "rank 1 or more"),
    (MatMul(), (tensor(2, 3, dtype=BOOL), tensor(3, 2, dtype=BOOL)), "not bool"),
    (MatMul(), (tensor(2, 2, 3), tensor(3, 3, 2)), "do not broadcast: extent 2 against 3"),
    (Gemm(), (tensor(1, 2, 3), tensor(3, 4)), "multiplies matrices"),
    (Gemm(trans_b=True), (tensor(2, 3), tensor(3, 4)), "inner extents"),
    (Gemm(), (tensor(2, 3), tensor(3, 4), tensor(3)), "does not broadcast to"),
    (Einsum("ij,jk->ik"), (tensor(2, 3),), "2 terms for 1 operands"),
    (Einsum("ij->ik"), (tensor(2, 3),), r"\['k'\] of the result"),
    (Einsum("ij,jk->ik"), (tensor(2, 3), tensor(4, 5)), "extents of 'j'"),
    (CONV, (tensor(1, 3, 8, 8), KERNEL), "input channels differ: 3 against 4"),
    (CONV, (tensor(1, 4), KERNEL), "weights of the same rank"),
    (CONV, (IMAGE, tensor(6, 4, 9, 3)), "a window of 9 does not fit into spatial axis 0"),
    (CONV, (IMAGE, KERNEL, tensor(4)), "one value per output channel: 4 against 6"),
    (CONV, (tensor(1, 4, 8), tensor(6, 4, 3)), "2 values of strides .* 1 spatial"),
    (GROUPED, (tensor(1, 6, 8, 8), tensor(4, 2, 3, 3)), "do not divide into 3 groups"),
    (
        ConvTranspose(
            **{**PLAIN, "pads_after": (9, 0)}, dilations=(1, 1), groups=1, output_padding=(0, 0)
        ),
        (tensor(1, 4, 2, 2), tensor(4, 2, 3, 3)),
        "leave nothing of the result",
    ),
    (MaxPool(**EMPTY), (IMAGE,), "kernel must be at least 1"),
    (MaxPool(**POOL), (tensor(4, 8),), r"\[batch, channels, \*spatial\]"),
    (AveragePool(**POOL), (tensor(1, 1, 4, 4, dtype=I32),), "needs float operands, not i32"),
    (Softmax(2), (tensor(2, 3),), "axis 2 of .* 2 axes"),
    (
        Attention(1.0),
        (tensor(1, 2, 3, 4), tensor(1, 2, 5, 6), tensor(1, 2, 5, 4)),
        "head sizes .* 4 against 6",
    ),
    (LayerNorm(1), (tensor(2, 3), tensor(4)), "does not broadcast to"),
    (BatchNorm(), (IMAGE, *(tensor(3),) * 4), "against the channels of"),
    (GroupNorm(3), (IMAGE, tensor(4), tensor(4)), "4 channels .* 3 groups"),
    (LRN(0), (IMAGE,), "size of at least 1"),
    (Resize((1, 4, 8), (None,) * 3), (IMAGE,), "3 extents and 3 scales"),
    (
        Resize((1, 4, 8, 8), (None,) * 4, coordinates="tf_crop_and_resize"),
        (IMAGE,),
        "region of interest",
    ),
    (QuantizeLinear(U8), (tensor(2, 3), tensor(), tensor(dtype=I8)), "zero point i8"),
    (QuantizeLinear(I8, axis=1), (tensor(2, 3), tensor(2)), "2 against 3"),
    (DequantizeLinear(), (tensor(2, 3, dtype=I8), tensor(), tensor(dtype=U8)), "must agree"),
    (MatMulInteger(), (tensor(2, 3), tensor(3, 4, dtype=I8)), "multiplies i8 or u8, not f32"),
    (LSTM(), (tensor(4, 2, 3), tensor(1, 20, 4), tensor(1, 20, 5)), "weights of LSTM must be"),
    (
        LSTM(activations=("Tanh",)),
        (tensor(4, 2, 3), tensor(1, 20, 3), tensor(1, 20, 5)),
        "got 1 activations",
    ),
]


@pytest.mark.parametrize(("op", "operands", "message"), CASES)
def test_refusal_says_why(op: Op, operands: tuple[TensorType, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        op.infer(*operands)
