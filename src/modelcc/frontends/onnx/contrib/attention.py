"""Handlers of onnxruntime's attention operators (com.microsoft)."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
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
from modelcc.frontends.onnx.contrib.rotary import (
    both_rotated,
    rotary_embedding,
    rotary_embedding_of_images,
    rotary_of_gemma,
)
from modelcc.ir.index import Index
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.comparison import above, where
from modelcc.ops.gather import GatherND
from modelcc.ops.matmul import MatMul
from modelcc.ops.padding import Pad
from modelcc.ops.shape import Concat, Expand
from modelcc.ops.views import part, permuted, reshaped


def _mask(call: Call, operand: int, q: Value, keys: Index) -> Value | None:
    """What an attention mask adds to the scores [b, h, m, n]: 0 or ``mask_filter_value``."""
    if not call.has(operand):
        return None
    mask, batch, queries = call.value(operand), q.type.shape[0], q.type.shape[2]
    shape = mask.type.shape
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


def _sum(*masks: Value | None) -> Value | None:
    given = [m for m in masks if m is not None]
    if not given:
        return None
    total = given[0]
    for mask in given[1:]:
        total = total + mask
    return total


def _attended(call: Call, q: Value, k: Value, v: Value, mask: Value | None, causal: bool) -> Value:
    """Results [b, m, h * e]; the last query sees all keys if ``causal``."""
    offset = k.type.shape[2] - q.type.shape[2] if causal else 0
    op = Attention(scale_of(call, q.type.shape[3]), causal, offset)
    return joined_heads(of(op, q, k, v, *(() if mask is None else (mask,))))


def attention(call: Call) -> tuple[str, ...]:
    """Self attention with the projection of queries, keys and values, which are side by side."""
    attrs, heads = call.attrs, call.attrs.integer("num_heads")
    if attrs.flag("do_rotary") or attrs.flag("past_present_share_buffer"):
        unsupported("rotary embeddings, or a shared buffer of keys and values")
    joint = of(MatMul(), call.value(0), call.value(1))
    if call.has(2):
        joint = joint + call.value(2)
    q, k, v = (split_heads(x, heads) for x in projected(call, joint))
    present = ""
    if call.has(4):
        past = [reshaped(part(call.value(4), 0, i, 1), *call.shape(4)[1:]) for i in (0, 1)]
        k, v = of(Concat(2), past[0], k), of(Concat(2), past[1], v)
    if call.want(1):
        pair = (reshaped(x, 1, *x.type.shape) for x in (k, v))
        present = of(Concat(0), *pair).name
    bias = call.given(5)
    mask = _sum(_mask(call, 3, q, k.type.shape[2]), bias)
    result = _attended(call, q, k, v, mask, attrs.flag("unidirectional")).name
    return (result, present) if present else (result,)


def multi_head(call: Call) -> tuple[str, ...]:
    """Attention on projected queries, keys and values; keys may be there as heads already."""
    heads = call.attrs.integer("num_heads")
    q, k, v = _operands(call, heads)
    if call.has(6):
        k, v = of(Concat(2), call.value(6), k), of(Concat(2), call.value(7), v)
    bias = call.given(5)
    mask = _sum(_mask(call, 4, q, k.type.shape[2]), bias)
    result = _attended(call, q, k, v, mask, call.attrs.flag("unidirectional")).name
    return (result, k.name, v.name)


def _operands(call: Call, heads: int) -> Three:
    """Queries, keys and values as heads, with their biases."""
    if call.rank() == 5:  # [b, s, heads, 3, d]
        return _packed(call, call.value(0), 3)
    if call.rank(1) in (4, 5):
        (q,) = biased([call.value(0)], call.given(3))
        if call.rank(1) == 5:
            k, v, _ = _packed(call, call.value(1), 2)
        elif call.has(3):
            unsupported("a bias of keys that are given as heads")
        else:
            k, v = call.value(1), call.value(2)
        return split_heads(q, heads), k, v
    parts = biased([call.value(i) for i in range(3)], call.given(3))
    q, k, v = (split_heads(x, heads) for x in parts)
    return q, k, v


def _packed(call: Call, x: Value, count: int) -> Three:
    """The parts of [b, s, heads, count, d] as heads, the last one repeated."""
    if call.has(3):
        unsupported("a bias of packed queries, keys and values")
    batch, length, heads, _, size = x.type.shape
    flat = (reshaped(part(x, 3, i, 1), batch, length, heads, size) for i in range(count))
    moved = [permuted(f, 0, 2, 1, 3) for f in flat]
    return moved[0], moved[1], moved[-1]


def grouped(call: Call) -> tuple[str, ...]:
    """Causal attention where groups of query heads share keys; present keys follow past ones.

    ``seqlens_k`` (operand 5) tells for each row how many keys there are in the end, less one.
    """
    attrs, heads = call.attrs, call.attrs.integer("num_heads")
    few = attrs.integer("kv_num_heads")
    if call.has(12):
        unsupported("scales of quantised keys")
    q, k, v = grouped_heads(call, heads, few)
    batch, _, length, _ = q.type.shape
    ends = reshaped(call.value(5), batch) + call.value(5).lift(1)
    past = before_last(call, ends, length)
    if attrs.flag("do_rotary"):
        positions = call.given(9) or following(call, past, length)
        q, k = both_rotated(call, q, k, positions, 7)
    if call.has(3):
        k, v = (_appended(call, call.value(i), x, past) for i, x in ((3, k), (4, v)))
    mask = _sum(_seen(call, q, k, past), call.given(10))
    wide = [repeated(x, heads // few) for x in (k, v)]
    result = _capped(call, q, wide[0], wide[1], mask)
    return (result.name, k.name, v.name)


def _appended(call: Call, old: Value, new: Value, past: Value) -> Value:
    """``new`` after the first ``past`` elements of ``old``, along axis 2."""
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
    """Minus infinity where a query does not see a key, [b, 1, m, n]."""
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


def _capped(call: Call, q: Value, k: Value, v: Value, mask: Value | None) -> Value:
    """Attention whose scores stay within ``softcap``, if that is not 0, and with sinks.

    A sink is one more score, of nothing: each head's own, or 0 with ``smooth_softmax``.
    """
    cap, smooth = call.attrs.number("softcap", 0.0), call.attrs.flag("smooth_softmax")
    if not cap and not smooth and not call.has(11):
        return _attended(call, q, k, v, mask, False)
    scores = products(call, q, k)
    if cap:
        scores = of(ew.Tanh(), scores * (1 / cap)) * cap
    total = _sum(scores, mask)
    assert total is not None
    if smooth or call.has(11):
        return joined_heads(of(MatMul(), _with_sink(call, total), v))
    return weighted(total, v)


def _with_sink(call: Call, scores: Value) -> Value:
    """Softmax over the scores [b, h, m, n] and a sink, whose own share is left out."""
    batch, heads, queries, keys = scores.type.shape
    sink = call.literal(np.zeros((1,), scores.type.dtype.numpy))
    if call.has(11):
        sink = reshaped(call.value(11), 1, heads, 1, 1)
    column = of(Expand((batch, heads, queries, 1)), sink)
    weights = of(Softmax(3), of(Concat(3), scores, column))
    return part(weights, 3, 0, keys)


CONTRIB_ATTENTION = table(
    Attention=attention,
    MultiHeadAttention=multi_head,
    GroupQueryAttention=grouped,
    RotaryEmbedding=rotary_embedding,
    MRotaryEmbedding=rotary_embedding_of_images,
    GemmaRotaryEmbedding=rotary_of_gemma,
)
