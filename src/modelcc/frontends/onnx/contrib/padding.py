"""Handlers of onnxruntime's batches without padding, and of relative positions (com.microsoft).

Tokens of all sequences are concatenated; ``offsets`` [batch, length] are their positions in the
padded batch, first those of valid tokens and then the padding.
"""

from __future__ import annotations

import math

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.fused import plus
from modelcc.frontends.onnx.contrib.heads import (
    biased,
    hidden,
    iota,
    products,
    projected,
    split_heads,
    weighted,
)
from modelcc.frontends.onnx.contrib.operands import operators
from modelcc.ir.index import Index, Range, floordiv
from modelcc.ir.types import F32, I32, I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.cumulative import CumSum
from modelcc.ops.gather import Gather
from modelcc.ops.gather_elements import ScatterElements
from modelcc.ops.gather_nd import ScatterND
from modelcc.ops.generate import Full
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMax, ReduceSum
from modelcc.ops.shape import Concat
from modelcc.ops.views import cast, part, reshaped


def without_padding(call: Call, x: Value, counts: Value) -> list[Value]:
    """The valid tokens, their offsets, the cumulative lengths of sequences, and the maximum
    length."""
    batch, length, width = x.type.shape
    room = batch * length
    steps = iota(call, length)
    counted = of(ew.Less(), reshaped(steps, 1, length), reshaped(counts, batch, 1))
    flat = cast(reshaped(counted, room), I32)
    total = of(ReduceSum((0,), True), counts)
    before = of(CumSum(0, True, False), flat)
    padding = of(CumSum(0, True, False), flat.lift(1) - flat) + total
    rank = where(reshaped(counted, room), before, padding)
    nothing = call.made(Full((room,), 0, I32))
    offsets = of(ScatterElements(0, "none"), nothing, rank, iota(call, room))
    size = call.with_inputs((cast(total, I64).name,)).indices(0, "tokens", Range(0, room))[0]
    kept = of(Gather(0), reshaped(x, room, width), part(offsets, 0, 0, size))
    zero = call.made(Full((1,), 0, I32))
    ends = of(Concat(0), zero, of(CumSum(0, False, False), counts))
    longest = of(ReduceMax((0,), True), counts)
    return [kept, reshaped(offsets, batch, length), ends, longest]


def _padded(x: Value, offsets: Value) -> Value:
    """Tokens [n, …] scattered to [batch, length, …], zeros elsewhere."""
    batch, length = offsets.type.shape
    count, *rest = x.type.shape
    room = batch * length
    nothing = Value(x.build, x.build.emit(Full((room, *rest), 0.0, x.type.dtype)))
    places = reshaped(part(reshaped(offsets, room), 0, 0, count), count, 1)
    return reshaped(of(ScatterND("none"), nothing, places, x), batch, length, *rest)


def _compact(x: Value, offsets: Value, count: Index) -> Value:
    """The first ``count`` tokens of [batch, length, d] selected by ``offsets``."""
    batch, length, width = x.type.shape
    places = part(reshaped(offsets, batch * length), 0, 0, count)
    return of(Gather(0), reshaped(x, batch * length, width), places)


def with_padding(call: Call, x: Value, offsets: Value) -> Value:
    return _padded(x, offsets)


def packed_attention(
    call: Call, x: Value, weights: Value, bias: Value, *rest: Value | None
) -> Value:
    """Attention of tokens without padding, with the projection."""
    return _attended(call, projected(call, of(MatMul(), x, weights) + bias), *rest)


def packed_heads(
    call: Call, q: Value, k: Value | None, v: Value | None, bias: Value | None, *rest: Value | None
) -> Value:
    """Attention of projected tokens without padding."""
    if k is None or v is None:
        count, heads, _, size = q.type.shape
        parts = [reshaped(part(q, 2, i, 1), count, heads * size) for i in range(3)]
    else:
        parts = [q, k, v]
    return _attended(call, biased(parts, bias), *rest)


def _attended(call: Call, parts: list[Value], *rest: Value | None) -> Value:
    """Attention of tokens [n, h * d], given offsets, cumulative lengths, and optionally a bias."""
    heads, (offsets, ends, bias) = call.attrs.integer("num_heads"), rest
    assert offsets is not None and ends is not None
    batch, length = offsets.type.shape
    q, k, v = (split_heads(_padded(x, offsets), heads) for x in parts)
    counts = part(ends, 0, 1, batch) - part(ends, 0, 0, batch)
    steps = reshaped(iota(call, length), 1, 1, 1, length)
    seen = of(ew.Less(), steps, reshaped(counts, batch, 1, 1, 1))
    scores = plus(products(call, q, k), bias)
    scores = where(seen, scores, hidden(call, scores, True))
    return _compact(weighted(scores, v), offsets, parts[0].type.shape[0])


def position_bias(call: Call, table: Value, *_: Value) -> Value:
    """A bias per head and relative position, by buckets of distances (T5).

    The table is [buckets, heads] in column-major order (Raffel et al., 2020).
    """
    buckets, heads = (number_of(e, "table") for e in table.type.shape)
    both = call.attrs.flag("is_bidirectional")
    queries, keys = (call.index(i, "length", Range(0, None)) for i in (1, 2))
    rows = reshaped(iota(call, queries), queries, 1)
    bucket = _buckets(call, iota(call, keys) - rows, buckets, both)
    found = of(Gather(1), reshaped(table, heads, buckets), bucket)
    return reshaped(found, 1, heads, queries, keys)


def _buckets(call: Call, distance: Value, count: int, both: bool) -> Value:
    """Small distances have their own buckets, larger ones logarithmic buckets."""
    zero = distance.lift(0)
    if both:
        count //= 2
        base = cast(of(ew.Greater(), distance, zero), I32) * count
        away = of(ew.Abs(), distance)
    else:
        base = None
        away = of(ew.Max(), -distance, zero)
    exact = count // 2
    farthest = call.attrs.integer("max_distance", 128)
    ratio = of(ew.Log(), cast(of(ew.Max(), away, away.lift(1)), F32) * (1 / exact))
    scaled = cast(ratio * ((count - exact) / math.log(farthest / exact)), I32)
    far = of(ew.Min(), scaled + exact, away.lift(count - 1))
    near = of(ew.Less(), away, away.lift(exact))
    bucket = where(near, away, far)
    return bucket if base is None else base + bucket


def gated_position_bias(
    call: Call, x: Value, bias: Value, relative: Value, weights: Value, of_gates: Value,
    eco: Value, offsets: Value | None,
) -> Value:  # fmt: skip
    """Relative position bias, weighted per query by two gates (WavLM; Chen et al., 2022)."""
    padded = x if offsets is None else _padded(x, offsets)
    q = split_heads(padded + bias, call.attrs.integer("num_heads"))
    projected = of(MatMul(), q, weights) + of_gates
    *lead, width = projected.type.shape
    halves = reshaped(projected, *lead, 2, floordiv(width, 2))
    gates = of(ew.Sigmoid(), of(ReduceSum((4,), False), halves))
    u, r = part(gates, 3, 0, 1), part(gates, 3, 1, 1)
    return (u * (r * eco - 1.0) + 2.0) * relative


CONTRIB_PADDING = operators(
    RemovePadding=("input[b,s,w] sequence_token_count[b]:int", without_padding),
    RestorePadding=("input[n,w] token_offset[b,s]:int", with_padding),
    PackedAttention=(
        "input[n,w] weights[w,qkv] bias[qkv] token_offset[b,s]:int "
        "cumulative_sequence_length:int attention_bias?",
        packed_attention,
    ),
    PackedMultiHeadAttention=(
        "query key[n,k]? value[n,v]? bias[qkv]? token_offset[b,s]:int "
        "cumulative_sequence_length:int attention_bias?",
        packed_heads,
    ),
    RelativePositionBias=("bias_table[n,h] query_length:int key_length:int", position_bias),
    GatedRelativePositionBias=(
        "query_layer query_bias rel_pos weight bias eco_a token_offset[b,s]:int?",
        gated_position_bias,
    ),
)
