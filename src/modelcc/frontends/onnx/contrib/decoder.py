"""Handlers of onnxruntime's decoder attention, with key-value caches (com.microsoft).

Heads are [batch, heads, positions, size].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.fused import plus
from modelcc.frontends.onnx.contrib.heads import (
    Three,
    before_last,
    biased,
    following,
    grouped_heads,
    hidden,
    iota,
    products,
    repeated,
    split_heads,
    weighted,
)
from modelcc.frontends.onnx.contrib.operands import operators
from modelcc.frontends.onnx.contrib.rotary import both_rotated
from modelcc.ir.index import Index, Range, floordiv
from modelcc.ir.types import I32, I64, Array
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.gather import Gather
from modelcc.ops.gather_nd import GatherND
from modelcc.ops.generate import Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Concat, Expand
from modelcc.ops.time_axis import CacheUpdate
from modelcc.ops.views import cast, part, permuted, reshaped


@dataclass(frozen=True)
class DecoderStep:
    """Operands of single-token attention besides keys: ``length`` is the index of an operand."""

    mask: Value | None
    bias: Value | None
    length: int
    origins: Value | None

    def masked(self, call: Call, scores: Value) -> Value:
        """Scores plus the mask of keys [batch, keys] and a bias."""
        scores = plus(scores, self.bias)
        if self.mask is None:
            return scores
        batch, keys = self.mask.type.shape
        seen = of(ew.Greater(), reshaped(self.mask, batch, 1, 1, keys), self.mask.lift(0))
        filler = hidden(call, scores)
        return scores + where(seen, filler.lift(0.0), filler)


def decoder_attention_step(
    call: Call, q: Value, k: Value | None, v: Value | None, mask: Value | None,
    added: Value | None, past_k: Value | None, past_v: Value | None, _: Value | None,
    __: Value | None, origins: Value | None, bias: Value | None,
) -> list[Value | None]:  # fmt: skip
    """Attention of one token to given keys and values, or to a cache that it is appended to."""
    heads, step = call.attrs.integer("num_heads"), DecoderStep(mask, added, 7, origins)
    if k is not None and v is not None and k.type.rank == 4:
        own = q if bias is None else q + part(bias, 0, 0, q.type.shape[2])
        scores = step.masked(call, products(call, split_heads(own, heads), k))
        return [weighted(scores, v), None, None, scores]
    if past_k is None or past_v is None:
        unsupported("attention of a token on itself, without a cache")
    if k is None or v is None:
        size = floordiv(q.type.shape[2], 3)
        given = [part(q, 2, i * size, size) for i in range(3)]
    else:
        given = [q, k, v]
    new = (split_heads(x, heads) for x in biased(given, bias))
    return [*_on_cache(call, new, (past_k, past_v), step)]


def _on_cache(
    call: Call, new: Iterable[Value], past: tuple[Value, Value], step: DecoderStep
) -> list[Value]:
    """Results, the caches with the new key and value, and the scores."""
    q, *added = new
    if call.attrs.flag("past_present_share_buffer"):
        room = past[0].type.shape[2]
        length = call.index(step.length, "length of the cache", Range(0, room))
        present = [_put(call, old, x, length) for old, x in zip(past, added, strict=True)]
        total = length + 1
        k, v = (part(x, 2, 0, total) for x in present)
    else:
        present = [of(Concat(2), old, x) for old, x in zip(past, added, strict=True)]
        k, v = present
    if step.origins is not None:
        k, v = (_of_beams(call, x, step.origins) for x in (k, v))
    scores = step.masked(call, products(call, q, k))
    return [weighted(scores, v), *present, scores]


def _put(call: Call, cache: Value, x: Value, length: Index) -> Value:
    """``cache`` with ``x`` written at position ``length`` of each row."""
    batch = cache.type.shape[0]
    start = Value(call, call.note((length,), I64))
    return of(CacheUpdate(2), cache, x, of(Expand((batch,)), start))


def _of_beams(call: Call, x: Value, origins: Value) -> Value:
    """Keys or values of the beams that each position originates from."""
    rows, width, _ = origins.type.shape
    batch, heads, length, size = x.type.shape
    moved = reshaped(permuted(x, 0, 2, 1, 3), rows, width, length, heads, size)
    shape = (rows, width, length, 1)
    beams = reshaped(cast(part(origins, 2, 0, length), I32), *shape)
    steps = of(Expand(shape), reshaped(iota(call, length), 1, 1, length, 1))
    found = of(GatherND(1), moved, of(Concat(3), beams, steps))
    return permuted(reshaped(found, batch, length, heads, size), 0, 2, 1, 3)


def self_attention_step(
    call: Call, x: Value, weights: Value, bias: Value, mask: Value | None, past: Value,
    added: Value | None, _: Value, __: Value | None, origins: Value | None,
) -> list[Value]:  # fmt: skip
    """As above, with the projection; past and present keys and values are packed in one tensor.

    In a shared cache keys are interleaved: groups of 16 bytes form an axis in front of positions.
    """
    attrs = call.attrs
    if attrs.flag("do_rotary"):
        unsupported("rotary embeddings, whose angles it has no operand for")
    heads = attrs.integer("num_heads")
    joint, shape = of(MatMul(), x, weights) + bias, past.type.shape
    size = number_of(shape[4], "size of heads")
    new = [split_heads(part(joint, 2, i * heads * size, heads * size), heads) for i in range(3)]
    k, v = (reshaped(part(past, 0, i, 1), *shape[1:]) for i in (0, 1))
    group = 128 // x.type.dtype.bits if attrs.flag("past_present_share_buffer") else 0
    k = _ungrouped(k, group) if group else k
    result, keys, values, _ = _on_cache(call, new, (k, v), DecoderStep(mask, added, 6, origins))
    keys = _regrouped(keys, group) if group else keys
    return [result, of(Concat(0), *(reshaped(y, 1, *y.type.shape) for y in (keys, values)))]


def _ungrouped(x: Value, group: int) -> Value:
    batch, heads, room, size = x.type.shape
    parted = reshaped(x, batch, heads, floordiv(size, group), room, group)
    return reshaped(permuted(parted, 0, 1, 3, 2, 4), batch, heads, room, size)


def _regrouped(x: Value, group: int) -> Value:
    batch, heads, room, size = x.type.shape
    parted = reshaped(x, batch, heads, room, floordiv(size, group), group)
    return reshaped(permuted(parted, 0, 1, 3, 2, 4), batch, heads, room, size)


def decoder_attention(
    call: Call, query: Value, key: Value, q_weight: Value, kv_weight: Value, bias: Value,
    padding: Value | None, past_k: Value | None, past_v: Value | None, *_: Value,
) -> Three:  # fmt: skip
    """Positions are the first axis; four bools select the source of keys and values."""
    static, use_past, has_state, has_mask = (
        bool(call.array(i, "switches").reshape(-1)[0]) for i in (8, 9, 10, 11)
    )
    heads, width = call.attrs.integer("num_heads"), query.type.shape[2]
    q = _led(of(MatMul(), query, q_weight) + part(bias, 0, 0, width), heads)
    past = (past_k, past_v) if use_past and has_state else (None, None)
    if use_past and has_state and None in past:
        call.fail("without key_cache and value_cache it has no past to use")
    if static and past[0] is not None and past[1] is not None:
        k, v = past[0], past[1]
    else:
        joint = of(MatMul(), key if static else query, kv_weight)
        joint = joint + part(bias, 0, width, 2 * width)
        new = (_led(part(joint, 2, i * width, width), heads) for i in (0, 1))
        k, v = (x if old is None else of(Concat(2), old, x)
                for old, x in zip(past, new, strict=True))  # fmt: skip
    scores = products(call, q, k)
    if has_mask and padding is not None:
        batch, keys = padding.type.shape
        scores = where(reshaped(padding, batch, 1, 1, keys), hidden(call, scores), scores)
    return permuted(weighted(scores, v), 1, 0, 2), k, v


def _led(x: Value, heads: int) -> Value:
    """[s, b, h * d] split into heads."""
    return split_heads(permuted(x, 1, 0, 2), heads)


def sparse_attention(
    call: Call, query: Value, key: Value | None, value: Value | None, past_k: Value,
    past_v: Value, rows: Value, columns: Value, whole: Value, counts: Value, cos: Value | None,
    sin: Value | None,
) -> list[Value]:  # fmt: skip
    """Causal attention on a cache; each query attends to the blocks of keys in its sparse
    layout."""
    attrs = call.attrs
    heads, few = attrs.integer("num_heads"), attrs.integer("kv_num_heads")
    q, k, v = grouped_heads(query, key, value, heads, few)
    batch, _, length, _ = q.type.shape
    ends = cast(reshaped(counts, batch), I64)
    start = before_last(call, ends, length)
    positions = following(call, start, length)
    if attrs.flag("do_rotary"):
        q, k = both_rotated(call, q, k, positions, cos, sin)
    present = [of(CacheUpdate(2), old, x, start) for old, x in ((past_k, k), (past_v, v))]
    room = present[0].type.shape[2]
    total = call.index(7, "length of all keys", Range(0, room))
    seen = _layout(call, positions, total, heads)
    k, v = (repeated(part(x, 2, 0, total), heads // few) for x in present)
    scores = products(call, q, k)
    result = weighted(where(seen, scores, hidden(call, scores, True)), v)
    return [result, *present]


def _layout(call: Call, positions: Value, keys: Index, heads: int) -> Value:
    """The mask of keys that queries at ``positions`` [b, s] attend to, [b, heads, s, keys]."""
    block = call.attrs.integer("sparse_block_size")
    blocks = _blocks(call.array(5, "rows of blocks"), call.array(6, "columns of blocks"))
    layouts = len(blocks)
    batch, length = positions.type.shape
    size = positions.lift(block)
    dense = call.literal(blocks)
    rows = of(Gather(1), dense, positions / size)
    columns = call.made(Iota((keys,), 0, 0, 1, I64))
    found = permuted(of(Gather(3), rows, columns / size), 1, 0, 2, 3)
    before = of(
        ew.LessOrEqual(), reshaped(columns, 1, 1, 1, keys), reshaped(positions, batch, 1, length, 1)
    )
    seen = reshaped(of(ew.And(), found, before), batch, 1, layouts, length, keys)
    whole = of(Expand((batch, heads // layouts, layouts, length, keys)), seen)
    return reshaped(whole, batch, heads, length, keys)


def _blocks(rows: Array, columns: Array) -> Array:
    """The dense mask [layouts, blocks, blocks] of compressed (CSR) rows."""
    count = rows.shape[1] - 1
    dense = np.zeros((len(rows), count, count), bool)
    for layout, (ends, places) in enumerate(zip(rows, columns, strict=True)):
        for row in range(count):
            dense[layout, row, places[ends[row] : ends[row + 1]]] = True
    return dense


CONTRIB_DECODER = operators(
    DecoderMaskedMultiHeadAttention=(
        "query[b,1,w] key? value? mask_index[b,t]:int? attention_bias? past_key[b,h,p,d]? "
        "past_value[b,h,p,e]? past_sequence_length:int? beam_width:int? "
        "cache_indirection[r,beams,most]:int? bias?",
        decoder_attention_step,
    ),
    DecoderMaskedSelfAttention=(
        "input[b,1,w] weights[w,qkv] bias[qkv] mask_index[b,t]:int? past[2,b,h,p,d] "
        "attention_bias? past_sequence_length:int beam_width:int? "
        "cache_indirection[r,beams,most]:int?",
        self_attention_step,
    ),
    DecoderAttention=(
        "query[s,b,w] key[t,b,w] q_weight[w,w] kv_weight[w,kv] bias key_padding_mask[b,n]? "
        "key_cache[b,h,p,d]? value_cache[b,h,p,d]? static_kv use_past has_layer_state "
        "has_key_padding_mask",
        decoder_attention,
    ),
    SparseAttention=(
        "query[b,s,w] key[b,s,k]? value[b,s,v]? past_key[b,h,p,d] past_value[b,h,p,d] "
        "block_row_indices[l,n]:int block_col_indices[l,c]:int total_sequence_length:int "
        "key_total_sequence_lengths:int cos_cache[m,r]? sin_cache[m,r]?",
        sparse_attention,
    ),
)
