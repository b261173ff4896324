"""Handlers of onnxruntime's attention operators (com.microsoft)."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.contrib_rotary import (
    angles,
    joined_heads,
    number_of,
    rotary_embedding,
    rotary_embedding_of_images,
    rotary_of_gemma,
    rotated,
    split_heads,
)
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.views import part
from modelcc.ir.index import Index, floordiv
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.comparison import where
from modelcc.ops.gather import GatherND
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Concat, Expand, Iota, Pad, Reshape, Transpose


def _mask(call: Call, operand: int, q: Value, keys: Index) -> Value | None:
    """What an attention mask adds to the scores [b, h, m, n]: 0 or ``mask_filter_value``."""
    if not call.has(operand):
        return None
    mask, batch, queries = call.value(operand), q.type.shape[0], q.type.shape[2]
    shape = mask.type.shape
    seen: Value
    match len(shape):
        case 1 if shape == (batch,):
            seen = _before(call, of(Reshape((batch, 1, 1, 1)), mask), keys)
        case 1 if shape == (2 * batch,):
            ends, starts = (
                of(Reshape((batch, 1, 1, 1)), part(mask, 0, at, batch)) for at in (0, batch)
            )
            late = of(ew.Not(), _before(call, starts, keys))
            seen = of(ew.And(), _before(call, ends, keys), late)
        case 2:
            seen = of(ew.Greater(), of(Reshape((shape[0], 1, 1, shape[1])), mask), mask.lift(0))
        case 3:
            seen = of(ew.Greater(), of(Reshape((shape[0], 1, *shape[1:])), mask), mask.lift(0))
        case 4:
            window = part(part(mask, 2, keys - queries, queries), 3, 0, keys)
            seen = of(ew.Greater(), window, mask.lift(0))
        case _:
            unsupported(f"a mask of type {mask.type}")
    hidden = call.literal(call.attrs.number("mask_filter_value", -10000.0),
                                       q.type.dtype)  # fmt: skip
    return where(seen, hidden.lift(0.0), hidden)


def _before(call: Call, bound: Value, keys: Index) -> Value:
    """Which key positions are before ``bound``, [b, 1, 1, keys]."""
    places = call.made(Iota((1, 1, 1, keys), 3, 0, 1, bound.type.dtype))
    return of(ew.Less(), places, bound)


def _scale(call: Call, q: Value) -> float:
    size = number_of(call, q.type.shape[3], "size of heads")
    return call.attrs.number("scale", 0.0) or 1 / math.sqrt(size)


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
    op = Attention(_scale(call, q), causal, offset)
    return joined_heads(of(op, q, k, v, *(() if mask is None else (mask,))))


def attention(call: Call) -> tuple[str, ...]:
    """Self attention with the projection of queries, keys and values, which are side by side."""
    attrs, heads = call.attrs, call.attrs.integer("num_heads")
    if attrs.flag("do_rotary") or attrs.flag("past_present_share_buffer"):
        unsupported("rotary embeddings, or a shared buffer of keys and values")
    joint = of(MatMul(), call.value(0), call.value(1))
    if call.has(2):
        joint = joint + call.value(2)
    width = number_of(call, call.shape(1)[1], "size of weights")
    sizes = attrs.integers("qkv_hidden_sizes", ()) or (width // 3,) * 3
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (split_heads(part(joint, 2, s, n), heads) for s, n in zip(starts, sizes, strict=True))
    present = ""
    if call.has(4):
        past = [_without_first(part(call.value(4), 0, i, 1)) for i in (0, 1)]
        k, v = of(Concat(2), past[0], k), of(Concat(2), past[1], v)
    if call.want(1):
        pair = (of(Reshape((1, *x.type.shape)), x) for x in (k, v))
        present = of(Concat(0), *pair).name
    bias = call.given(5)
    mask = _sum(_mask(call, 3, q, k.type.shape[2]), bias)
    result = _attended(call, q, k, v, mask, attrs.flag("unidirectional")).name
    return (result, present) if present else (result,)


def _without_first(x: Value) -> Value:
    return of(Reshape(x.type.shape[1:]), x)


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


def _operands(call: Call, heads: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values as heads, with their biases."""
    if call.rank() == 5:  # [b, s, heads, 3, d]
        return _packed(call, call.value(0), 3, 0)
    q = call.value(0)
    if call.has(3):
        q = q + part(call.value(3), 0, 0, q.type.shape[2])
    own, width = split_heads(q, heads), q.type.shape[2]
    if call.rank(1) == 5:
        k, v, _ = _packed(call, call.value(1), 2, 1)
        return own, k, v
    k, v = call.value(1), call.value(2)
    if k.type.rank == 4:
        if call.has(3):
            unsupported("a bias of keys that are given as heads")
        return own, k, v
    if call.has(3):
        bias = call.value(3)
        k = k + part(bias, 0, width, k.type.shape[2])
        v = v + part(bias, 0, width + k.type.shape[2], v.type.shape[2])
    return own, split_heads(k, heads), split_heads(v, heads)


def _packed(call: Call, x: Value, count: int, first: int) -> tuple[Value, Value, Value]:
    """The parts of [b, s, heads, count, d] as heads; ``first`` is what the first one is of qkv."""
    if call.has(3):
        unsupported("a bias of packed queries, keys and values")
    batch, length, heads, _, size = x.type.shape
    parts = [part(x, 3, i, 1) for i in range(count)]
    flat = [of(Reshape((batch, length, heads, size)), p) for p in parts]
    moved = [of(Transpose((0, 2, 1, 3)), f) for f in flat]
    return moved[0], moved[1], moved[-1]


def grouped(call: Call) -> tuple[str, ...]:
    """Causal attention where groups of query heads share keys; present keys follow past ones.

    ``seqlens_k`` (operand 5) tells for each row how many keys there are in the end, less one.
    """
    attrs, heads = call.attrs, call.attrs.integer("num_heads")
    few = attrs.integer("kv_num_heads")
    q, k, v = _grouped_operands(call, heads, few)
    batch, _, length, _ = q.type.shape
    ends = of(Reshape((batch,)), call.value(5)) + call.value(5).lift(1)
    past = of(ew.Max(), ends - _count(call, length, ends), ends.lift(0))
    if attrs.flag("do_rotary"):
        positions = _positions(call, past, length)
        cos, sin = (angles(call.value(i), positions) for i in (7, 8))
        near = attrs.flag("rotary_interleaved")
        q, k = rotated(q, cos, sin, near), rotated(k, cos, sin, near)
    if call.has(3):
        k, v = (_appended(call, call.value(i), x, past) for i, x in ((3, k), (4, v)))
    mask = _sum(_seen(call, q, k, past), call.given(10))
    wide = [_repeated(x, heads // few) for x in (k, v)]
    result = _capped(call, q, wide[0], wide[1], mask)
    return (result.name, k.name, v.name)


def _count(call: Call, extent: Index, like: Value) -> Value:
    return Value(call, call.note((extent,), like.type.dtype))


def _grouped_operands(call: Call, heads: int, few: int) -> tuple[Value, Value, Value]:
    if call.has(12):
        unsupported("scales of quantised keys")
    q = call.value(0)
    if call.has(1):
        return split_heads(q, heads), split_heads(call.value(1), few), split_heads(
            call.value(2), few)  # fmt: skip
    size = floordiv(q.type.shape[2], heads + 2 * few)
    cuts = ((0, heads), (heads, few), (heads + few, few))
    parts = [split_heads(part(q, 2, at * size, n * size), n) for at, n in cuts]
    return parts[0], parts[1], parts[2]


def _positions(call: Call, past: Value, length: Index) -> Value:
    """Positions of the new keys, [b, s]."""
    if call.has(9):
        return call.value(9)
    (batch,) = past.type.shape
    steps = call.made(Iota((1, length), 1, 0, 1, past.type.dtype))
    return of(Reshape((batch, 1)), past) + steps


def _appended(call: Call, old: Value, new: Value, past: Value) -> Value:
    """``new`` after the first ``past`` elements of ``old``, along axis 2."""
    batch, _, length, _ = new.type.shape
    total = old.type.shape[2] + length
    room = of(Pad((0,) * 4, (0, 0, length, 0), "constant", 0.0), old)
    places = call.made(Iota((1, total), 1, 0, 1, past.type.dtype))
    since = places - of(Reshape((batch, 1)), past)
    zero = since.lift(0)
    last = _count(call, length - 1, since)
    index = of(ew.Min(), of(ew.Max(), since, zero), last)
    rows = of(Transpose((0, 2, 1, 3)), new)
    moved = of(GatherND(1), rows, of(Reshape((batch, total, 1)), index))
    added = of(Transpose((0, 2, 1, 3)), moved)
    fresh = of(Reshape((batch, 1, total, 1)), of(ew.GreaterOrEqual(), since, zero))
    return where(fresh, added, room)


def _seen(call: Call, q: Value, k: Value, past: Value) -> Value | None:
    """Minus infinity where a query does not see a key, [b, 1, m, n]."""
    batch, queries, keys = q.type.shape[0], q.type.shape[2], k.type.shape[2]
    dtype = past.type.dtype
    rows = call.made(Iota((1, 1, queries, 1), 2, 0, 1, dtype))
    columns = call.made(Iota((1, 1, 1, keys), 3, 0, 1, dtype))
    own = rows + of(Reshape((batch, 1, 1, 1)), past)
    seen = of(ew.LessOrEqual(), columns, own)
    window = call.attrs.integer("local_window_size", -1)
    if window >= 0:
        seen = of(ew.And(), seen, of(ew.Greater(), columns, own - own.lift(window)))
    hidden = call.literal(np.array(-np.inf, q.type.dtype.numpy))
    return where(seen, hidden.lift(0.0), hidden)


def _repeated(x: Value, times: int) -> Value:
    """Each head ``times`` times."""
    if times == 1:
        return x
    batch, heads, length, size = x.type.shape
    spread = of(Reshape((batch, heads, 1, length, size)), x)
    copies = of(Expand((batch, heads, times, length, size)), spread)
    return of(Reshape((batch, heads * times, length, size)), copies)


def _capped(call: Call, q: Value, k: Value, v: Value, mask: Value | None) -> Value:
    """Attention whose scores stay within ``softcap``, if that is not 0, and with sinks.

    A sink is one more score, of nothing: each head's own, or 0 with ``smooth_softmax``.
    """
    cap, smooth = call.attrs.number("softcap", 0.0), call.attrs.flag("smooth_softmax")
    if not cap and not smooth and not call.has(11):
        return _attended(call, q, k, v, mask, False)
    scores = of(MatMul(), q, of(Transpose((0, 1, 3, 2)), k)) * _scale(call, q)
    if cap:
        scores = of(ew.Tanh(), scores * (1 / cap)) * cap
    total = _sum(scores, mask)
    assert total is not None
    weights = _with_sink(call, total) if smooth or call.has(11) else of(Softmax(3), total)
    return joined_heads(of(MatMul(), weights, v))


def _with_sink(call: Call, scores: Value) -> Value:
    """Softmax over the scores [b, h, m, n] and a sink, whose own share is left out."""
    batch, heads, queries, keys = scores.type.shape
    sink = call.literal(np.zeros((1,), scores.type.dtype.numpy))
    if call.has(11):
        sink = of(Reshape((1, heads, 1, 1)), call.value(11))
    column = of(Expand((batch, heads, queries, 1)), sink)
    weights = of(Softmax(3), of(Concat(3), scores, column))
    return part(weights, 3, 0, keys)


CONTRIB_ATTENTION: Handlers = MappingProxyType(
    {
        "Attention": attention,
        "MultiHeadAttention": multi_head,
        "GroupQueryAttention": grouped,
        "RotaryEmbedding": rotary_embedding,
        "MRotaryEmbedding": rotary_embedding_of_images,
        "GemmaRotaryEmbedding": rotary_of_gemma,
    }
)
