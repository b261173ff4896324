"""BATCH_MATMUL: products of stacks of matrices."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.requantization import requantized
from modelcc.ir.types import I8, I16, I32, I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.matmul import MatMul
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.ops.shape import Transpose


def batch_matmul(call: TfliteCall) -> str:
    """The product, either factor transposed if options say so; of floats, bytes or i16."""
    factors = [_factor(call, i, flag) for i, flag in enumerate(("adj_x", "adj_y"))]
    kinds = call.dtype(), call.dtype(1)
    if all(kind.is_float for kind in kinds):
        return of(MatMul(), *factors).name
    if kinds not in ((I8, I8), (I16, I16)):
        unsupported(f"a product of {kinds[0]} by {kinds[1]}")
    if call.result_dtype == I32:
        return of(MatMulInteger(), *factors).name
    return requantized(call, _sums(call, factors), _scale(call)).name


def _factor(call: TfliteCall, i: int, flag: str) -> Value:
    rank = call.rank(i)
    if rank < 2:
        call.fail(f"operand {i} is {call.type(i)}, no matrix")
    order = (*range(rank - 2), rank - 1, rank - 2)
    return of(Transpose(order), call.value(i)) if call.flag(flag) else call.value(i)


def _sums(call: TfliteCall, factors: list[Value]) -> Value:
    """Of products of numbers less their zero points, in 32 or 64 bits."""
    if call.dtype() == I16:
        return of(MatMul(), *(of(ew.Cast(I64), factor) for factor in factors))
    zeros = [call.literal(np.asarray(call.single(i).zero), I8) for i in (0, 1)]
    return of(MatMulInteger(), *factors, *zeros)


def _scale(call: TfliteCall) -> float:
    product = np.float32(call.single(0).scale) * np.float32(call.single(1).scale)
    return float(product) / float(call.result().scale)


BATCH_MATMUL: Handlers = {"BATCH_MATMUL": batch_matmul}
