"""Handlers of onnxruntime's attention operators (com.microsoft)."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.fused import plus
from modelcc.frontends.onnx.contrib.heads import (
    Three,
    along,
    before_last,
    biased,
    following,
    grouped_heads,
    hidden,
    joined_heads,
    products,
    projected,
    repeated,
    scale_of,
    split_heads,
    weighted,
)
from modelcc.frontends.onnx.contrib.operands import operators
from modelcc.frontends.onnx.contrib.rotary import (
    both_rotated,
    rotary_embedding,
    rotary_embedding_of_images,
    rotary_of_gemma,
)
from modelcc.ir.index import Index
from modelcc.ir.types import I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.comparison import above, where
from modelcc.ops.gather import GatherND
from modelcc.ops.matmul import MatMul
from modelcc.ops.padding import Pad
from modelcc.ops.shape import Concat, Expand
from modelcc.ops.views import part, permuted, reshaped


def _mask(call: Call, mask: Value | None, q: Value, keys: Index) -> Value | None:
    """The additive form of an attention mask, broadcastable to the scores [b, h, m, n]: 0 or
    ``mask_filter_value``."""
    if mask is None:
        return None
    shape, batch, queries = mask.type.shape, q.type.shape[0], q.type.shape[2]
    match len(shape):
        case 1 if shape == (batch,):
            seen = _before(call, reshaped(mask, batch, 1, 1, 1), keys)
        case 1 if shape == (2 * batch,):
            ends, starts = (reshaped(part(mask, 0, at, batch), batch, 1, 1, 1) for at in (0, batch))
            late = of(ew.Not(), _before(call, starts, keys))
            seen = of(ew.And(), _before(call, ends, keys), late)
        case 2 | 3:
            seen = above(reshaped(mask, shape[0], 1, *(1,) * (3 - len(shape)), *shape[1:]), 0)
        case 4:
            seen = above(part(part(mask, 2, keys - queries, queries), 3, 0, keys), 0)
        case _:
            unsupported(f"a mask of type {mask.type}")
    filler = hidden(call, q)
    return where(seen, filler.lift(0.0), filler)


def _before(call: Call, bound: Value, keys: Index) -> Value:
    """Which key positions are before ``bound``, [b, 1, 1, keys]."""
    return of(ew.Less(), along(call, keys, 3, 4, bound.type.dtype), bound)


def _sum(first: Value | None, second: Value | None) -> Value | None:
    return second if first is None else plus(first, second)


def _attended(call: Call, q: Value, k: Value, v: Value, mask: Value | None) -> Value:
    """Results [b, m, h * e]."""
    op = Attention(scale_of(call, q.type.shape[3]))
    return joined_heads(of(op, q, k, v, *(() if mask is None else (mask,))))


def _ordered(call: Call, q: Value, k: Value, v: Value, mask: Value | None, past: Index) -> Value:
    """Results [b, m, h * e]; with ``unidirectional`` a query attends to the ``past`` keys, and of
    the others to those up to its own position.

    The last query attends to all keys, as in onnxruntime's ``PrepareMask``, whose loop ends before
    it; this matters if there are more keys than queries.
    """
    if not call.attrs.flag("unidirectional"):
        return _attended(call, q, k, v, mask)
    queries, keys = q.type.shape[2], k.type.shape[2]
    if keys == queries + past:
        op = Attention(scale_of(call, q.type.shape[3]), True, past)
        return joined_heads(of(op, q, k, v, *(() if mask is None else (mask,))))
    rows, columns = along(call, queries, 2, 4, I64), along(call, keys, 3, 4, I64)
    first, last = (Value(call, call.note((n,), I64)) for n in (past, queries - 1))
    before = of(ew.LessOrEqual(), columns, rows + first)
    seen = of(ew.Or(), before, of(ew.GreaterOrEqual(), rows, last))
    filler = hidden(call, q, least=True)
    return _attended(call, q, k, v, _sum(where(seen, filler.lift(0.0), filler), mask))


def attention(
    call: Call, x: Value, weights: Value, bias: Value | None, mask: Value | None,
    past: Value | None, added: Value | None, _: None = None,
) -> list[Value]:  # fmt: skip
    """Self attention with a packed projection of queries, keys and values."""
    attrs, heads = call.attrs, call.attrs.integer("num_heads")
    if attrs.flag("do_rotary") or attrs.flag("past_present_share_buffer"):
        unsupported("rotary embeddings, or a shared buffer of keys and values")
    joint = plus(of(MatMul(), x, weights), bias)
    q, k, v = (split_heads(p, heads) for p in projected(call, joint))
    if past is not None:
        old = (reshaped(part(past, 0, i, 1), *past.type.shape[1:]) for i in (0, 1))
        k, v = (of(Concat(2), before, new) for before, new in zip(old, (k, v), strict=True))
    masks = _sum(_mask(call, mask, q, k.type.shape[2]), added)
    before = 0 if past is None else past.type.shape[3]
    result = _ordered(call, q, k, v, masks, before)
    if not call.want(1):
        return [result]
    return [result, of(Concat(0), *(reshaped(y, 1, *y.type.shape) for y in (k, v)))]


def multi_head(
    call: Call, q: Value, k: Value | None, v: Value | None, bias: Value | None,
    mask: Value | None, added: Value | None, past_k: Value | None, past_v: Value | None,
    *_: None,
) -> Three:  # fmt: skip
    """Attention on projected queries, keys and values; keys may already be split into heads."""
    q, k, v = _heads(call, q, k, v, bias)
    past = 0 if past_k is None else past_k.type.shape[2]
    if past_k is not None and past_v is not None:
        k, v = of(Concat(2), past_k, k), of(Concat(2), past_v, v)
    masks = _sum(_mask(call, mask, q, k.type.shape[2]), added)
    return _ordered(call, q, k, v, masks, past), k, v


def _heads(call: Call, q: Value, k: Value | None, v: Value | None, bias: Value | None) -> Three:
    """Queries, keys and values as heads, with their biases."""
    heads = call.attrs.integer("num_heads")
    if k is None:  # [b, s, heads, 3, d]
        return _packed(q, bias, 3)
    if k.type.rank == 5:
        k, v, _ = _packed(k, bias, 2)
        return split_heads(q, heads), k, v
    if v is None:
        call.fail("its operand value is left out")
    if k.type.rank == 4:
        if bias is not None:
            unsupported("a bias of keys that are given as heads")
        return split_heads(q, heads), k, v
    q, k, v = (split_heads(x, heads) for x in biased([q, k, v], bias))
    return q, k, v


def _packed(x: Value, bias: Value | None, count: int) -> Three:
    """The components of [b, s, heads, count, d] as heads, the last one repeated."""
    if bias is not None:
        unsupported("a bias of packed queries, keys and values")
    batch, length, heads, _, size = x.type.shape
    flat = (reshaped(part(x, 3, i, 1), batch, length, heads, size) for i in range(count))
    moved = [permuted(f, 0, 2, 1, 3) for f in flat]
    return moved[0], moved[1], moved[-1]


def grouped(
    call: Call, query: Value, key: Value | None, value: Value | None, past_k: Value | None,
    past_v: Value | None, last: Value, total_length: Value, cos: Value | None, sin: Value | None,
    positions: Value | None, added: Value | None, sink: Value | None, *__: None,
) -> Three:  # fmt: skip
    """Causal attention with grouped query heads (GQA); present keys are appended to past ones.

    ``last`` is the total number of keys of each row, less one.
    """
    attrs, heads = call.attrs, call.attrs.integer("num_heads")
    few = attrs.integer("kv_num_heads")
    q, k, v = grouped_heads(query, key, value, heads, few)
    batch, _, length, _ = q.type.shape
    ends = reshaped(last, batch) + last.lift(1)
    past = before_last(call, ends, length)
    if attrs.flag("do_rotary"):
        q, k = both_rotated(call, q, k, positions or following(call, past, length), cos, sin)
    if past_k is not None and past_v is not None:
        k, v = _appended(call, past_k, k, past), _appended(call, past_v, v, past)
    mask = _sum(_seen(call, q, k, past), added)
    wide = [repeated(x, heads // few) for x in (k, v)]
    return _capped(call, q, wide[0], wide[1], mask, sink), k, v


def _appended(call: Call, old: Value, new: Value, past: Value) -> Value:
    """``new`` inserted after the first ``past`` elements of ``old``, along axis 2."""
    batch, _, length, _ = new.type.shape
    total = old.type.shape[2] + length
    room = of(Pad((0,) * 4, (0, 0, length, 0), "constant", 0.0), old)
    places = along(call, total, 1, 2, past.type.dtype)
    since = places - reshaped(past, batch, 1)
    zero = since.lift(0)
    last = Value(call, call.note((length - 1,), since.type.dtype))
    index = of(ew.Min(), of(ew.Max(), since, zero), last)
    moved = of(GatherND(1), permuted(new, 0, 2, 1, 3), reshaped(index, batch, total, 1))
    fresh = reshaped(of(ew.GreaterOrEqual(), since, zero), batch, 1, total, 1)
    return where(fresh, permuted(moved, 0, 2, 1, 3), room)


def _seen(call: Call, q: Value, k: Value, past: Value) -> Value | None:
    """The causal mask, minus infinity where a key is masked, [b, 1, m, n]."""
    batch, queries, keys = q.type.shape[0], q.type.shape[2], k.type.shape[2]
    dtype = past.type.dtype
    rows, columns = along(call, queries, 2, 4, dtype), along(call, keys, 3, 4, dtype)
    own = rows + reshaped(past, batch, 1, 1, 1)
    seen = of(ew.LessOrEqual(), columns, own)
    window = call.attrs.integer("local_window_size", -1)
    if window >= 0:
        seen = of(ew.And(), seen, of(ew.Greater(), columns, own - own.lift(window)))
    filler = hidden(call, q, least=True)
    return where(seen, filler.lift(0.0), filler)


def _capped(
    call: Call, q: Value, k: Value, v: Value, mask: Value | None, sink: Value | None
) -> Value:
    """Attention with scores limited to ``softcap``, if nonzero, and with sinks.

    A sink is an additional score without a value: each head's own, or 0 with ``smooth_softmax``.
    """
    cap, smooth = call.attrs.number("softcap", 0.0), call.attrs.flag("smooth_softmax")
    if not cap and not smooth and sink is None:
        return _attended(call, q, k, v, mask)
    scores = products(call, q, k)
    if cap:
        scores = of(ew.Tanh(), scores * (1 / cap)) * cap
    total = plus(scores, mask)
    if smooth or sink is not None:
        return joined_heads(of(MatMul(), _with_sink(call, total, sink), v))
    return weighted(total, v)


def _with_sink(call: Call, scores: Value, sink: Value | None) -> Value:
    """Softmax over the scores [b, h, m, n] and a sink, whose own weight is dropped."""
    batch, heads, queries, keys = scores.type.shape
    zero = call.literal(np.zeros((1,), scores.type.dtype.numpy))
    own = zero if sink is None else reshaped(sink, 1, heads, 1, 1)
    column = of(Expand((batch, heads, queries, 1)), own)
    weights = of(Softmax(3), of(Concat(3), scores, column))
    return part(weights, 3, 0, keys)


CONTRIB_ATTENTION = operators(
    Attention=(
        "input[b,s,w] weights[w,qkv] bias[qkv]? mask_index:int? past[2,b,h,p,d]? attention_bias? "
        "past_sequence_length!",
        attention,
    ),
    MultiHeadAttention=(
        "query key? value? bias? key_padding_mask:int? attention_bias? past_key[b,h,p,d]? "
        "past_value[b,h,p,e]? past_sequence_length! cache_indirection!",
        multi_head,
    ),
    GroupQueryAttention=(
        "query[b,s,w] key[b,s,k]? value[b,s,v]? past_key[b,h,p,d]? past_value[b,h,p,d]? "
        "seqlens_k:int total_sequence_length:int cos_cache[n,r]? sin_cache[n,r]? "
        "position_ids:int? attention_bias? head_sink? k_scale! v_scale! q_norm_weight! "
        "k_norm_weight! query_seqlens!",
        grouped,
    ),
    RotaryEmbedding=(
        "input position_ids:int cos_cache[n,r] sin_cache[n,r]",
        rotary_embedding,
    ),
    MRotaryEmbedding=(
        "input position_ids[3,b,s]:int cos_cache[n,r] sin_cache[n,r]",
        rotary_embedding_of_images,
    ),
    GemmaRotaryEmbedding=(
        "emb[b,s,d] q[b,h,s,d] q_rot[b,h,s,d] k[b,g,s,d] k_rot[b,g,s,d]",
        rotary_of_gemma,
    ),
)
