"""Handlers of onnxruntime's gates and mixed residual streams (com.microsoft)."""

from __future__ import annotations

import math

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.onnx.call import Call, table
from modelcc.ir.index import Index, floordiv
from modelcc.ir.types import F32
from modelcc.ops import activation as act
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMean, ReduceSum
from modelcc.ops.views import cast, permuted, reshaped


def normalised(x: Value, epsilon: float) -> Value:
    """``x / sqrt(mean of x^2 + epsilon)`` over the last axis, in f32."""
    wide, axis = cast(x, F32), x.type.rank - 1
    return wide * of(ew.Rsqrt(), of(ReduceMean((axis,), True), wide * wide) + epsilon)


def gated_norm(call: Call) -> str:
    """Rows of groups, each normalised and scaled, times an activation of the gate."""
    x, dtype = call.value(0), call.dtype()
    *lead, width = call.shape()
    (size,) = call.shape(1)
    shape = (*lead, floordiv(width, size), size)
    normal = normalised(reshaped(x, *shape), call.attrs.number("epsilon", 1e-5))
    gate = cast(reshaped(call.value(2), *shape), F32)
    name = call.attrs.text("activation", "silu")
    name = call.choice(name, ("silu", "swish", "sigmoid"), "activation")
    gate = of(ew.Sigmoid() if name == "sigmoid" else act.Silu(), gate)
    result = normal * cast(call.value(1), F32) * gate
    return cast(reshaped(result, *lead, width), dtype).name


def branch_norm(call: Call) -> str:
    """The branches [..., C, H] of a row, each normalised by itself."""
    x = call.value(0)
    grouped = _grouped(call, x)
    result = normalised(grouped, call.attrs.number("epsilon", 1e-5))
    if call.has(1):
        scale = cast(call.value(1), F32)
        if scale.type.shape != grouped.type.shape[-1:]:
            scale = reshaped(scale, *grouped.type.shape[-2:])
        result = result * scale
    return cast(reshaped(result, *x.type.shape), x.type.dtype).name


def _grouped(call: Call, x: Value) -> Value:
    """[..., C, H], of [..., C * H] where attribute num_branches tells C."""
    count = call.attrs.integer("num_branches", 0)
    if not count:
        return x
    *lead, width = x.type.shape
    return reshaped(x, *lead, count, floordiv(width, count))


def gated_add(call: Call) -> str:
    return (call.value(0) + call.value(1) * call.value(2)).name


def scaled_silu(call: Call) -> str:
    """The scaled operand times its sigmoid; each is rounded to the operand's type."""
    x = call.value(0)
    wide, dtype = cast(x, F32), x.type.dtype
    scale = cast(call.value(1), F32) if call.has(1) else call.attrs.number("alpha", 1.0)
    scaled = cast(wide * scale, dtype)
    return (scaled * of(ew.Sigmoid(), scaled)).name


def engram_gate(call: Call) -> tuple[str, ...]:
    """A value for all branches, each times a gate: how well its key and query agree."""
    epsilon, dtype = call.attrs.number("epsilon", 1e-5), call.dtype()
    key, query = (normalised(call.value(i), epsilon) * cast(call.value(i + 3), F32) for i in (0, 1))
    size = number_of(call.shape()[3], "hidden size")
    dot = of(ReduceSum((3,), True), key * query) * (1 / math.sqrt(size))
    size_ = of(ew.Sqrt(), of(ew.Max(), of(ew.Abs(), dot), dot.lift(1e-6)))
    gate = of(ew.Sigmoid(), of(ew.Sign(), dot) * size_)
    batch, length, hidden = call.shape(2)
    result = gate * cast(reshaped(call.value(2), batch, length, 1, hidden), F32)
    results = [cast(result, dtype).name]
    if call.has(5):
        normal = normalised(result, epsilon) * cast(call.value(5), F32)
        results.append(cast(normal, dtype).name)
    return tuple(results)


def reduced_streams(call: Call) -> str:
    """The weighted sum of the branches of a row."""
    x = _grouped(call, call.value(0))
    weights = _weights(cast(call.value(1), F32), x.type.shape)
    total = of(ReduceSum((x.type.rank - 2,), False), cast(x, F32) * weights)
    scale = call.attrs.number("reduction_scale", 1.0)
    return cast(total * scale if scale != 1.0 else total, x.type.dtype).name


def _weights(given: Value, shape: tuple[Index, ...]) -> Value:
    """Weights of branches [..., C, H] that are [..., C], [..., C, 1], [..., C, H] or flat."""
    if given.type.rank == len(shape):
        return given
    whole = given.type.shape[-1] != shape[-2]
    return reshaped(given, *shape) if whole else reshaped(given, *shape[:-1], 1)


def mixed_streams(call: Call) -> str:
    """Branches mixed by a matrix for each row, and a new feature added to each, weighted."""
    x = call.value(0)
    streams = _grouped(call, x)
    shape, wide = streams.type.shape, cast(streams, F32)
    *lead, hidden = call.shape(1)
    feature = cast(reshaped(call.value(1), *lead, 1, hidden), F32)
    added = _weights(cast(call.value(2), F32), shape) * feature
    if call.has(3):
        mix = cast(call.value(3), F32)
        axes = (*range(mix.type.rank - 2), mix.type.rank - 1, mix.type.rank - 2)
        wide = of(MatMul(), permuted(mix, *axes), wide)
    return cast(reshaped(wide + added, *x.type.shape), x.type.dtype).name


CONTRIB_GATES = table(
    GatedRMSNorm=gated_norm,
    BranchwiseRMSNorm=branch_norm,
    GatedAdd=gated_add,
    ScaledSiLU=scaled_silu,
    EngramGate=engram_gate,
    HyperConnectionPreMix=reduced_streams,
    HyperConnectionPostMix=mixed_streams,
)
