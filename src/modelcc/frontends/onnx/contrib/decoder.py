"""Handlers of onnxruntime's attention of decoders, with caches of keys and values (com.microsoft).

Heads are [batch, heads, positions, size].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.contrib.heads import (
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
class DecoderOperands:
    """Where operands of attention of one new token are."""

    mask: int
    bias: int
    length: int
    beams: int
    origins: int


def _masked(call: Call, scores: Value, places: DecoderOperands) -> Value:
    """Scores with the mask of keys [batch, keys] and a bias added."""
    if call.has(places.bias):
        scores = scores + call.value(places.bias)
    if call.has(places.mask):
        mask = call.value(places.mask)
        batch, keys = mask.type.shape
        seen = of(ew.Greater(), reshaped(mask, batch, 1, 1, keys), mask.lift(0))
        filler = hidden(call, scores)
        scores = scores + where(seen, filler.lift(0.0), filler)
    return scores


DECODER = DecoderOperands(mask=3, bias=4, length=7, beams=8, origins=9)
SELF = DecoderOperands(mask=3, bias=5, length=6, beams=7, origins=8)


def decoder_attention_step(call: Call) -> tuple[str, ...]:
    """Attention of one token on what is given, or on a cache that it is added to."""
    heads = call.attrs.integer("num_heads")
    if call.has(2) and call.rank(1) == 4:
        return _across(call, heads)
    given = _projected(call)
    q, k, v = (split_heads(x, heads) for x in given)
    if not call.has(5):
        unsupported("attention of a token on itself, without a cache")
    return _on_cache(call, (q, k, v), (call.value(5), call.value(6)), DECODER)


def _across(call: Call, heads: int) -> tuple[str, ...]:
    """On keys and values that are there as heads."""
    q = call.value(0)
    if call.has(10):
        q = q + part(call.value(10), 0, 0, q.type.shape[2])
    scores = _masked(call, products(call, split_heads(q, heads), call.value(1)), DECODER)
    result = weighted(scores, call.value(2)).name
    return (result, "", "", scores.name) if call.want(3) else (result,)


def _projected(call: Call) -> list[Value]:
    """Queries, keys and values [b, 1, h * d], with their biases."""
    given = [call.value(0)]
    if call.has(1):
        given += [call.value(1), call.value(2)]
    else:
        size = floordiv(call.shape()[2], 3)
        given = [part(given[0], 2, i * size, size) for i in range(3)]
    return biased(given, call.given(10))


def _on_cache(
    call: Call, new: tuple[Value, Value, Value], past: tuple[Value, Value], places: DecoderOperands
) -> tuple[str, ...]:
    """Results, the caches with the new key and value, and the scores if they are wanted."""
    q, *added = new
    if call.attrs.flag("past_present_share_buffer"):
        room = past[0].type.shape[2]
        length = call.index(places.length, "length of the cache", Range(0, room))
        present = [_put(call, old, x, length) for old, x in zip(past, added, strict=True)]
        total = length + 1
        k, v = (part(x, 2, 0, total) for x in present)
    else:
        present = [of(Concat(2), old, x) for old, x in zip(past, added, strict=True)]
        k, v = present
    if call.has(places.origins):
        k, v = (_of_beams(call, x, places) for x in (k, v))
    scores = _masked(call, products(call, q, k), places)
    results = (weighted(scores, v).name, *(x.name for x in present))
    return (*results, scores.name) if call.want(3) else results


def _put(call: Call, cache: Value, x: Value, length: Index) -> Value:
    """``cache`` with ``x`` at position ``length`` of each row."""
    batch = cache.type.shape[0]
    start = Value(call, call.note((length,), I64))
    return of(CacheUpdate(2), cache, x, of(Expand((batch,)), start))


def _of_beams(call: Call, x: Value, places: DecoderOperands) -> Value:
    """Keys or values of the beams that each position came from."""
    origins = call.value(places.origins)
    rows, width, _ = origins.type.shape
    batch, heads, length, size = x.type.shape
    moved = reshaped(permuted(x, 0, 2, 1, 3), rows, width, length, heads, size)
    shape = (rows, width, length, 1)
    beams = reshaped(cast(part(origins, 2, 0, length), I32), *shape)
    steps = of(Expand(shape), reshaped(iota(call, length), 1, 1, length, 1))
    found = of(GatherND(1), moved, of(Concat(3), beams, steps))
    return permuted(reshaped(found, batch, length, heads, size), 0, 2, 1, 3)


def self_attention_step(call: Call) -> tuple[str, ...]:
    """As above, with the projection; past and present keys and values are one tensor.

    In a shared cache groups of numbers of a key, of 16 bytes, are in an axis of their own in front
    of positions.
    """
    attrs = call.attrs
    if attrs.flag("do_rotary"):
        unsupported("rotary embeddings, whose angles it has no operand for")
    heads = attrs.integer("num_heads")
    joint = of(MatMul(), call.value(0), call.value(1)) + call.value(2)
    shape = call.shape(4)
    size = number_of(shape[4], "size of heads")
    new = [split_heads(part(joint, 2, i * heads * size, heads * size), heads) for i in range(3)]
    k, v = (reshaped(part(call.value(4), 0, i, 1), *shape[1:]) for i in (0, 1))
    group = 128 // call.dtype().bits if attrs.flag("past_present_share_buffer") else 0
    k = _ungrouped(k, group) if group else k
    result, keys, values = _on_cache(call, (new[0], new[1], new[2]), (k, v), SELF)[:3]
    present = Value(call, keys)
    present = _regrouped(present, group) if group else present
    whole = (reshaped(x, 1, *x.type.shape) for x in (present, Value(call, values)))
    return result, of(Concat(0), *whole).name


def _ungrouped(x: Value, group: int) -> Value:
    batch, heads, room, size = x.type.shape
    parted = reshaped(x, batch, heads, floordiv(size, group), room, group)
    return reshaped(permuted(parted, 0, 1, 3, 2, 4), batch, heads, room, size)


def _regrouped(x: Value, group: int) -> Value:
    batch, heads, room, size = x.type.shape
    parted = reshaped(x, batch, heads, room, floordiv(size, group), group)
    return reshaped(permuted(parted, 0, 1, 3, 2, 4), batch, heads, room, size)


def decoder_attention(call: Call) -> tuple[str, ...]:
    """Positions are the first axis; four bools tell where keys and values come from."""
    static, use_past, has_state, has_mask = (
        bool(call.array(i, "switches").reshape(-1)[0]) for i in (8, 9, 10, 11)
    )
    heads, width = call.attrs.integer("num_heads"), call.shape()[2]
    bias = call.value(4)
    q = _led(of(MatMul(), call.value(0), call.value(2)) + part(bias, 0, 0, width), heads)
    cached = use_past and has_state
    if cached and static:
        k, v = call.value(6), call.value(7)
    else:
        source = call.value(1) if static else call.value(0)
        joint = of(MatMul(), source, call.value(3)) + part(bias, 0, width, 2 * width)
        k, v = (_led(part(joint, 2, i * width, width), heads) for i in (0, 1))
        if cached:
            k, v = of(Concat(2), call.value(6), k), of(Concat(2), call.value(7), v)
    scores = products(call, q, k)
    if has_mask and call.has(5):
        batch, keys = call.shape(5)
        padding = reshaped(call.value(5), batch, 1, 1, keys)
        scores = where(padding, hidden(call, scores), scores)
    result = permuted(weighted(scores, v), 1, 0, 2)
    return result.name, k.name, v.name


def _led(x: Value, heads: int) -> Value:
    """[s, b, h * d] as heads."""
    return split_heads(permuted(x, 1, 0, 2), heads)


def sparse_attention(call: Call) -> tuple[str, ...]:
    """Causal attention on a cache; each query sees the blocks of keys that its layout has."""
    attrs = call.attrs
    heads, few = attrs.integer("num_heads"), attrs.integer("kv_num_heads")
    q, k, v = grouped_heads(call, heads, few)
    batch, _, length, _ = q.type.shape
    ends = cast(reshaped(call.value(8), batch), I64)
    start = before_last(call, ends, length)
    positions = following(call, start, length)
    if attrs.flag("do_rotary"):
        q, k = both_rotated(call, q, k, positions, 9)
    present = [of(CacheUpdate(2), call.value(i), x, start) for i, x in ((3, k), (4, v))]
    room = present[0].type.shape[2]
    total = call.index(7, "length of all keys", Range(0, room))
    seen = _layout(call, positions, total, heads)
    k, v = (repeated(part(x, 2, 0, total), heads // few) for x in present)
    scores = products(call, q, k)
    result = weighted(where(seen, scores, hidden(call, scores, True)), v)
    return (result.name, *(x.name for x in present))


def _layout(call: Call, positions: Value, keys: Index, heads: int) -> Value:
    """Which keys queries at ``positions`` [b, s] see, [b, heads, s, keys]."""
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
    """The blocks [layouts, blocks, blocks] that compressed rows tell to be there."""
    count = rows.shape[1] - 1
    dense = np.zeros((len(rows), count, count), bool)
    for layout, (ends, places) in enumerate(zip(rows, columns, strict=True)):
        for row in range(count):
            dense[layout, row, places[ends[row] : ends[row + 1]]] = True
    return dense


CONTRIB_DECODER = table(
    DecoderMaskedMultiHeadAttention=decoder_attention_step,
    DecoderMaskedSelfAttention=self_attention_step,
    DecoderAttention=decoder_attention,
    SparseAttention=sparse_attention,
)
