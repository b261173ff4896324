"""Handlers of onnxruntime's normalisations and embeddings (com.microsoft)."""

from __future__ import annotations

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.fused import plus
from modelcc.frontends.onnx.contrib.operands import operators, positional
from modelcc.ir.op import Op
from modelcc.ir.types import I32
from modelcc.ops.accumulate import accumulator
from modelcc.ops.activation import Silu
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.elementwise import Cast, Equal, Reciprocal, Sqrt
from modelcc.ops.gather import Gather
from modelcc.ops.norm import GroupNorm, LayerNorm, RMSNorm
from modelcc.ops.quant import DequantizeLinear
from modelcc.ops.reduce import ReduceMean, ReduceSum
from modelcc.ops.shape import Full, Iota, Reshape, Transpose
from modelcc.ops.views import cast


def simplified(call: Call) -> tuple[str, ...]:
    """Normalisation by the root mean square."""
    axis, epsilon = call.axis(-1), call.attrs.number("epsilon", 1e-5)
    result = of(RMSNorm(axis, epsilon), call.value(0), call.value(1)).name
    return (result, _deviation(call.value(0), axis, epsilon)) if call.want(1) else (result,)


def _deviation(x: Value, axis: int, epsilon: float) -> str:
    """``1 / sqrt(mean of x^2 + epsilon)``."""
    wide = cast(x, accumulator(x.type.dtype))
    axes = tuple(range(axis, x.type.rank))
    return of(Reciprocal(), of(Sqrt(), of(ReduceMean(axes, True), wide * wide) + epsilon)).name


def skip_layer_norm(
    call: Call, x: Value, skip: Value, gamma: Value, beta: Value | None, bias: Value | None
) -> list[Value | None]:
    parameters = (gamma,) if beta is None else (gamma, beta)
    op = LayerNorm(x.type.rank - 1, call.attrs.number("epsilon", 1e-12))
    return _of_sum(call, op, x + skip, bias, *parameters)


def skip_rms_norm(
    call: Call, x: Value, skip: Value, gamma: Value, bias: Value | None
) -> list[Value | None]:
    op = RMSNorm(x.type.rank - 1, call.attrs.number("epsilon", 1e-5))
    return _of_sum(call, op, x + skip, bias, gamma)


def _of_sum(
    call: Call, op: Op, x: Value, bias: Value | None, *parameters: Value
) -> list[Value | None]:
    """The norm of ``x + bias``; results: that, statistics, the sum."""
    if call.want(1) or call.want(2):
        unsupported("its second and third output, the statistics")
    total = plus(x, bias)
    return [of(op, total, *parameters), None, None, total]


def embeddings(
    call: Call, ids: Value, segments: Value | None, words: Value, places: Value,
    of_segments: Value | None, gamma: Value, beta: Value, mask: Value | None,
    positions: Value | None = None,
) -> list[Value]:  # fmt: skip
    """The norm of the sum of word, position and segment embeddings, and lengths."""
    length = ids.type.shape[1]
    positions = positions or call.made(Iota((1, length), 1, 0, 1, I32))
    total = of(Gather(0), words, ids) + of(Gather(0), places, positions)
    if segments is not None and of_segments is not None:
        total = total + of(Gather(0), of_segments, segments)
    norm = LayerNorm(2, call.attrs.number("epsilon", 1e-12))
    results = [of(norm, total, gamma, beta), _lengths(call, ids, mask), total]
    return results if call.wanted[1:] else results[:2]


def _lengths(call: Call, ids: Value, mask: Value | None) -> Value:
    """The number of unmasked tokens of each row; zeros without a mask."""
    if mask is None:
        return call.made(Full(ids.type.shape[:1], 0, I32))
    return of(ReduceSum((1,), False), of(Cast(I32), of(Equal(), mask, mask.lift(1))))


def group_norm(call: Call, x: Value, gamma: Value, beta: Value) -> Value:
    """GroupNorm of channels last or first, then silu if ``activation``."""
    last = call.attrs.flag("channels_last", True)
    rank = x.type.rank
    if last:
        x = of(Transpose((0, rank - 1, *range(1, rank - 1))), x)
    op = GroupNorm(call.attrs.integer("groups"), call.attrs.number("epsilon", 1e-5))
    result = of(op, x, *(cast(p, x.type.dtype) for p in (gamma, beta)))
    if call.attrs.integer("activation", 0):
        result = of(Silu(), result)
    return of(Transpose((0, *range(2, rank), 1)), result) if last else result


def skip_group_norm(
    call: Call, x: Value, gamma: Value, beta: Value, skip: Value, bias: Value | None
) -> tuple[Value, Value]:
    """GroupNorm of ``x + skip + bias``, channels last; results: that, and the sum.

    A skip may have one number per channel of an image.
    """
    if not call.attrs.flag("channels_last", True):
        unsupported("channels first (channels_last=0)")
    if skip.type.rank == 2:
        batch, channels = skip.type.shape
        skip = of(Reshape((batch, *(1,) * (x.type.rank - 2), channels)), skip)
    total = plus(x + skip, bias)
    return group_norm(call, total, gamma, beta), total


def quantised_embeddings(
    call: Call, ids: Value, segments: Value | None, *rest: Value | None
) -> list[Value]:
    """Word, position and segment embeddings with quantised tables."""
    tables, (mask, *scales) = rest[:5], rest[5:]
    words, places, of_segments, gamma, beta = (
        None if table is None or scale is None or zero is None
        else of(DequantizeLinear(0), table, scale, zero)
        for table, scale, zero in zip(tables, scales[:5], scales[5:], strict=True)
    )  # fmt: skip
    assert words is not None and places is not None and gamma is not None and beta is not None
    return embeddings(call, ids, segments, words, places, of_segments, gamma, beta, mask)


CONTRIB_NORM = operators(
    SimplifiedLayerNormalization=("X scale", positional(simplified)),
    SkipLayerNormalization=("input skip gamma beta? bias?", skip_layer_norm),
    SkipSimplifiedLayerNormalization=("input skip gamma bias?", skip_rms_norm),
    EmbedLayerNormalization=(
        "input_ids[b,s]:int segment_ids[b,s]:int? word_embedding[n,h] position_embedding[p,h] "
        "segment_embedding[g,h]? gamma[h] beta[h] mask[b,s]:int? position_ids:int?",
        embeddings,
    ),
    GroupNorm=("X gamma[c] beta[c]", group_norm),
    SkipGroupNorm=("X gamma[c] beta[c] skip bias[c]?", skip_group_norm),
    QEmbedLayerNormalization=(
        "input_ids[b,s]:int segment_ids[b,s]:int? "
        "word_embedding_quant position_embedding_quant segment_embedding? gamma_quant beta_quant "
        "mask[b,s]:int? word_embedding_scale position_embedding_scale segment_embedding_scale? "
        "gamma_scale beta_scale word_embedding_zero_point position_embedding_zero_point "
        "segment_embedding_zero_point? gamma_zero_point beta_zero_point",
        quantised_embeddings,
    ),
)
