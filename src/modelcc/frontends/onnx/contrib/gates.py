"""Handlers of onnxruntime's gates and mixed residual streams (com.microsoft)."""

from __future__ import annotations

import math

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.operands import operators
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


def gated_norm(call: Call, x: Value, scale: Value, gate: Value) -> Value:
    """Groups of each row, normalised and scaled, times an activation of the gate."""
    *lead, width = x.type.shape
    (size,) = scale.type.shape
    shape = (*lead, floordiv(width, size), size)
    normal = normalised(reshaped(x, *shape), call.attrs.number("epsilon", 1e-5))
    gate = cast(reshaped(gate, *shape), F32)
    name = call.attrs.text("activation", "silu")
    name = call.choice(name, ("silu", "swish", "sigmoid"), "activation")
    gate = of(ew.Sigmoid() if name == "sigmoid" else act.Silu(), gate)
    result = normal * cast(scale, F32) * gate
    return cast(reshaped(result, *lead, width), x.type.dtype)


def branch_norm(call: Call, x: Value, scale: Value | None) -> Value:
    """The branches [..., C, H] of a row, normalised separately."""
    grouped = _grouped(call, x)
    result = normalised(grouped, call.attrs.number("epsilon", 1e-5))
    if scale is not None:
        scale = cast(scale, F32)
        if scale.type.shape != grouped.type.shape[-1:]:
            scale = reshaped(scale, *grouped.type.shape[-2:])
        result = result * scale
    return cast(reshaped(result, *x.type.shape), x.type.dtype)


def _grouped(call: Call, x: Value) -> Value:
    """[..., C, H], from [..., C * H] if attribute num_branches gives C."""
    count = call.attrs.integer("num_branches", 0)
    if not count:
        return x
    *lead, width = x.type.shape
    return reshaped(x, *lead, count, floordiv(width, count))


def gated_add(call: Call, x: Value, y: Value, gate: Value, _: None) -> Value:
    return x + y * gate


def scaled_silu(call: Call, x: Value, scale: Value | None) -> Value:
    """The scaled operand times its sigmoid; both are rounded to the operand's type."""
    factor = call.attrs.number("alpha", 1.0) if scale is None else cast(scale, F32)
    scaled = cast(cast(x, F32) * factor, x.type.dtype)
    return scaled * of(ew.Sigmoid(), scaled)


def engram_gate(
    call: Call, key: Value, query: Value, value: Value, of_key: Value, of_query: Value,
    of_result: Value | None,
) -> list[Value]:  # fmt: skip
    """A value for all branches, each times a gate: the agreement of its key and query."""
    epsilon, dtype = call.attrs.number("epsilon", 1e-5), key.type.dtype
    size = number_of(key.type.shape[3], "hidden size")
    pairs = ((key, of_key), (query, of_query))
    key, query = (normalised(x, epsilon) * cast(scale, F32) for x, scale in pairs)
    dot = of(ReduceSum((3,), True), key * query) * (1 / math.sqrt(size))
    size_ = of(ew.Sqrt(), of(ew.Max(), of(ew.Abs(), dot), dot.lift(1e-6)))
    gate = of(ew.Sigmoid(), of(ew.Sign(), dot) * size_)
    batch, length, hidden = value.type.shape
    result = gate * cast(reshaped(value, batch, length, 1, hidden), F32)
    results = [cast(result, dtype)]
    if of_result is not None:
        normal = normalised(result, epsilon) * cast(of_result, F32)
        results.append(cast(normal, dtype))
    return results


def reduced_streams(call: Call, streams: Value, mix: Value) -> Value:
    """The weighted sum of the branches of a row."""
    x = _grouped(call, streams)
    weights = _weights(cast(mix, F32), x.type.shape)
    total = of(ReduceSum((x.type.rank - 2,), False), cast(x, F32) * weights)
    scale = call.attrs.number("reduction_scale", 1.0)
    return cast(total * scale if scale != 1.0 else total, x.type.dtype)


def _weights(given: Value, shape: tuple[Index, ...]) -> Value:
    """Weights of branches [..., C, H] from [..., C], [..., C, 1], [..., C, H] or flat."""
    if given.type.rank == len(shape):
        return given
    whole = given.type.shape[-1] != shape[-2]
    return reshaped(given, *shape) if whole else reshaped(given, *shape[:-1], 1)


def mixed_streams(call: Call, x: Value, feature: Value, weights: Value, mix: Value | None) -> Value:
    """Branches mixed by a matrix per row, plus a weighted new feature for each."""
    streams = _grouped(call, x)
    shape, wide = streams.type.shape, cast(streams, F32)
    *lead, hidden = feature.type.shape
    wide_feature = cast(reshaped(feature, *lead, 1, hidden), F32)
    added = _weights(cast(weights, F32), shape) * wide_feature
    if mix is not None:
        mix = cast(mix, F32)
        axes = (*range(mix.type.rank - 2), mix.type.rank - 1, mix.type.rank - 2)
        wide = of(MatMul(), permuted(mix, *axes), wide)
    return cast(reshaped(wide + added, *x.type.shape), x.type.dtype)


CONTRIB_GATES = operators(
    GatedRMSNorm=("X scale[s] gate", gated_norm),
    BranchwiseRMSNorm=("X scale?", branch_norm),
    GatedAdd=("X Y gate gate_weight!", gated_add),
    ScaledSiLU=("X scale?", scaled_silu),
    EngramGate=(
        "key[b,s,c,h] query[b,s,c,h] value[b,s,h] key_norm_scale query_norm_scale conv_norm_scale?",
        engram_gate,
    ),
    HyperConnectionPreMix=("streams pre_mix", reduced_streams),
    HyperConnectionPostMix=("streams block_output post_mix stream_mix?", mixed_streams),
)
