"""Normalisations and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.writing import OnnxWriting, Settings, settings_of
from modelcc.ir.index import Index
from modelcc.ir.types import F64
from modelcc.ops.accumulate import accumulator
from modelcc.ops.attention import Attention
from modelcc.ops.channel_norm import BatchNorm, GroupNorm, InstanceNorm
from modelcc.ops.layer_norm import LayerNorm, RMSNorm
from modelcc.ops.matmul import Einsum, Gemm
from modelcc.ops.moments import Moments
from modelcc.ops.reduce import ArgMax, ArgMin


def reduction(at: OnnxWriting, op: Any) -> OnnxValue:
    """Axes are an operand; empty axes reduce nothing."""
    axes = at.build.ints(*op.axes)
    settings: Settings = {"keepdims": int(op.keepdims), "noop_with_empty_axes": 1}
    return at.node(type(op).__name__, at.input(), axes, **settings)


def moments(at: OnnxWriting, op: Moments) -> tuple[OnnxValue, ...]:
    """In f32 for narrow floats."""
    (result, _), axes = at.results, at.build.ints(*op.axes)
    x = at.cast(at.input(), accumulator(result.dtype))
    mean = at.node("ReduceMean", x, axes, keepdims=1, noop_with_empty_axes=1)
    apart = at.node("Sub", x, mean)
    squares = at.node("Mul", apart, apart)
    spread = at.node("ReduceMean", squares, axes, keepdims=1, noop_with_empty_axes=1)
    return at.cast(mean, result.dtype), at.cast(spread, result.dtype)


def extreme_place(at: OnnxWriting, op: ArgMax | ArgMin) -> tuple[OnnxValue, ...]:
    return at.direct(type(op).__name__, **settings_of(op))


def batch_norm(at: OnnxWriting, op: BatchNorm) -> OnnxValue:
    return at.node("BatchNormalization", *at.inputs, epsilon=op.epsilon)


def group_norm(at: OnnxWriting, op: GroupNorm) -> OnnxValue:
    settings: Settings = {"epsilon": op.epsilon, "num_groups": op.groups}
    return at.node("GroupNormalization", *at.inputs, **settings)


def instance_norm(at: OnnxWriting, op: InstanceNorm) -> OnnxValue:
    return at.node("InstanceNormalization", *at.inputs, epsilon=op.epsilon)


def trailing_norm(operator: str) -> Any:
    """A norm over the last axes.  ONNX computes in f32; parameters have all of these axes."""

    def entry(at: OnnxWriting, op: LayerNorm | RMSNorm) -> OnnxValue | None:
        trailing = at.shape[op.axis :]
        x = at.input()
        given = [at.given[n] if at.has(n) else None for n in range(1, len(at.inputs))]
        wide = any(t is not None and t.rank > len(trailing) for t in given)
        if x.dtype == F64 or wide:
            return None
        scale = _stretched(at, 1, trailing) if at.has(1) else at.full(1, trailing, x.dtype)
        bias = [_stretched(at, 2, trailing)] if at.has(2) else []
        return at.node(operator, x, scale, *bias, axis=op.axis, epsilon=op.epsilon)

    return entry


def _stretched(at: OnnxWriting, number: int, shape: Sequence[Index]) -> OnnxValue:
    value = at.input(number)
    return value if at.type(number).shape == shape else at.expand(value, shape)


def attention(at: OnnxWriting, op: Attention) -> OnnxValue | None:
    """ONNX's causal mask begins at the first key."""
    masked = at.has(3) and at.type(3).rank < 2
    if (op.causal and op.offset != 0) or masked:
        return None
    return at.node("Attention", *at.inputs, scale=op.scale, is_causal=int(op.causal))


def gemm(at: OnnxWriting, op: Gemm) -> OnnxValue:
    settings: Settings = {"alpha": op.alpha, "beta": op.beta}
    return at.node("Gemm", *at.inputs, transA=int(op.trans_a), transB=int(op.trans_b), **settings)


def einsum(at: OnnxWriting, op: Einsum) -> OnnxValue:
    return at.node("Einsum", *at.inputs, equation=op.equation)
