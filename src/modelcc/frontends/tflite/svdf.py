"""SVDF: a product with feature weights, whose last results are kept, and one along time."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.tflite.activations import activated
from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.frontends.tflite.convolution import weights
from modelcc.frontends.tflite.hybrid import asymmetric_rows, symmetric_rows
from modelcc.frontends.tflite.requantization import rescaled, saturated
from modelcc.ir.index import floordiv
from modelcc.ir.types import F32, I8, I16, I32, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.matmul import MatMul
from modelcc.ops.quant import limits
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.ops.shape import Concat
from modelcc.ops.views import part, reshaped


def svdf(call: TfliteCall) -> str:
    """Operands: the input, feature weights [F, I], time weights [F, M], a bias and the memory.

    Nakkiran et al., "Compressing deep neural networks using a rank-constrained topology", 2015.
    """
    rank = call.integer("rank", 1)
    filters, memory = (number_of(extent, "size") for extent in call.shape(2))
    if rank < 1 or filters % rank:
        call.fail(f"{filters} filters do not divide into units of {rank}")
    if call.dtype() == F32:
        units = _units(_over_time(call, _features(call), filters, memory, F32), rank)
        return activated(call, units + call.value(3) if call.has(3) else units).name
    return _integer(call, rank, filters, memory)


def _features(call: TfliteCall) -> Value:
    """Features of the newest input, in f32."""
    matrix = weights(call, 1, (1, 0))
    if call.dtype(1) == F32:
        return of(MatMul(), call.value(0), matrix)
    asymmetric = call.flag("asymmetric_quantize_inputs")
    x = call.value(0)
    rows = asymmetric_rows(x, (1,)) if asymmetric else symmetric_rows(x, (1,))
    sums = of(MatMul(), rows.centred, of(ew.Cast(F32), matrix))
    return sums * (rows.factor * call.single(1).scale)


def _over_time(call: TfliteCall, newest: Value, filters: int, memory: int, wide: DType) -> Value:
    """The memory with the newest features replacing the oldest, times the time weights."""
    batch = newest.type.shape[0]
    old = reshaped(call.variable(4), batch, filters, memory)
    column = reshaped(newest, batch, filters, 1)
    kept = of(Concat(2), part(old, 2, 1, memory - 1), column) if memory > 1 else column
    call.keep(4, reshaped(kept, batch, filters * memory))
    along = of(ew.Cast(wide), call.value(2))
    if wide == F32 and call.dtype(2) != F32:
        along = along * call.single(2).scale
    own = of(ew.Cast(wide), kept)
    state = call.operands[4]
    if wide == I32 and state is not None and state.quantization is not None:
        own = own + -state.quantization.zero
    return of(ReduceSum((2,), False), own * along)


def _units(sums: Value, rank: int) -> Value:
    """Sums over ``rank`` filters each."""
    batch, filters = sums.type.shape
    return of(ReduceSum((2,), False), reshaped(sums, batch, floordiv(filters, rank), rank))


def _integer(call: TfliteCall, rank: int, filters: int, memory: int) -> str:
    """8-bit numbers, 16-bit features or, as in TFLite Micro, 8-bit ones, 32-bit sums."""
    tensor = call.operands[4]
    if call.dtype() != I8 or tensor is None or tensor.quantization is None:
        unsupported(f"it is of {call.dtype()} with a memory of {tensor and tensor.type}")
    dtype = tensor.dtype
    if dtype not in (I8, I16) or call.dtype(2) != dtype:
        unsupported(f"weights of time in {call.dtype(2)} for a memory of {tensor.type}")
    x, own = call.single(0), np.float32(tensor.quantization.scale)
    first = np.float32(x.scale) * np.float32(call.single(1).scale) / own
    second = own * np.float32(call.single(2).scale) / np.float32(call.result().scale)
    low, high = (int(limit) for limit in limits(dtype))
    zero = call.literal(np.asarray(x.zero), I8)
    features = of(MatMulInteger(), call.value(0), weights(call, 1, (1, 0)), zero)
    inside = saturated(rescaled(features, float(first)), 0, (low, high), I32)
    newest = of(ew.Cast(dtype), inside + tensor.quantization.zero)
    units = _units(_over_time(call, newest, filters, memory, I32), rank)
    if call.has(3):
        units = units + call.value(3)
    return saturated(rescaled(units, float(second)), call.result().zero, (-128, 127), I8).name


SVDF: Handlers = {"SVDF": svdf}
