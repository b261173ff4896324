"""Rotary position embeddings (Su et al., "RoFormer", 2021) of onnxruntime."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.onnx.call import Call
from modelcc.ir.index import Index
from modelcc.ir.types import I64, Array
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.elementwise import Cast, Cos, Sin
from modelcc.ops.gather import Gather
from modelcc.ops.shape import Concat, Iota, Reshape
from modelcc.ops.views import cast, part, reshaped


def rotated(x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [b, h, s, d] with its first elements rotated by cos and sin [b, 1, s, r], or [b, s, h, d]
    by those of [b, s, 1, r].

    The coordinates of a pair are r apart, or adjacent if ``interleaved``.
    """
    size, half = x.type.shape[-1], cos.type.shape[-1]
    assert isinstance(size, int) and isinstance(half, int)
    start, step = (1, 2) if interleaved else (half, 1)
    first, second = (part(x, 3, at, half, step) for at in (0, start))
    turned = [first * cos - second * sin, second * cos + first * sin]
    if interleaved:
        lead = x.type.shape[:-1]
        pairs = of(Concat(4), *(reshaped(t, *lead, half, 1) for t in turned))
        turned = [reshaped(pairs, *lead, 2 * half)]
    if size > 2 * half:
        turned.append(part(x, 3, 2 * half, size - 2 * half))
    return turned[0] if len(turned) == 1 else of(Concat(3), *turned)


def angles(cache: Value, positions: Value) -> Value:
    """Rows of ``cache`` [n, r] at ``positions`` [b, s], as [b, 1, s, r]."""
    found = of(Gather(0), cache, positions)
    batch, length, half = found.type.shape
    return reshaped(found, batch, 1, length, half)


def both_rotated(
    call: Call, q: Value, k: Value, positions: Value, *caches: Value | None
) -> tuple[Value, Value]:
    """Queries and keys rotated by both ``caches``, which are required."""
    if None in caches:
        call.fail("do_rotary needs cos_cache and sin_cache")
    cos, sin = (angles(cache, positions) for cache in caches if cache is not None)
    near = call.attrs.flag("rotary_interleaved")
    return rotated(q, cos, sin, near), rotated(k, cos, sin, near)


def rotary_embedding(call: Call, x: Value, positions: Value, cos: Value, sin: Value) -> Value:
    """Of queries or keys, [b, s, h * d] or [b, h, s, d]; positions are given or an offset."""
    places = _positions(call, positions, x)
    return _turned(call, x, angles(cos, places), angles(sin, places))


def _heads(call: Call, x: Value, half: Index) -> Value:
    """``x`` [b, s, h * d] as [b, s, h, d]; [b, h, s, d] unchanged."""
    if call.attrs.flag("is_packed_batching"):
        unsupported("packed batches")
    if x.type.rank == 4:
        return x
    angles = number_of(half, "size of angles")
    batch, length, row = x.type.shape
    size = number_of(row, "size of rows")
    heads = call.attrs.integer("num_heads", 0) or size // (2 * angles)
    return reshaped(x, batch, length, heads, size // heads)


def _turned(call: Call, x: Value, cos: Value, sin: Value) -> Value:
    """The heads of ``x`` rotated by angles [b, 1, s, r] and scaled, in the form of ``x``."""
    batch, _, length, half = cos.type.shape
    heads = _heads(call, x, half)
    if x.type.rank == 3:
        cos, sin = (reshaped(a, batch, length, 1, half) for a in (cos, sin))
    result = rotated(heads, cos, sin, call.attrs.flag("interleaved"))
    scale = call.attrs.number("scale", 1.0)
    if scale != 1.0:
        result = result * scale
    return reshaped(result, *x.type.shape)


def rotary_embedding_of_images(
    call: Call, x: Value, positions: Value, cos: Value, sin: Value
) -> Value:
    """As above; each angle depends on one of three positions: time, height and width.

    Wang et al., "Qwen2-VL", 2024.
    """
    found = [_of_three(call, cache, positions) for cache in (cos, sin)]
    return _turned(call, x, found[0], found[1])


def _of_three(call: Call, cache: Value, positions: Value) -> Value:
    """Angles [b, 1, s, r], each element from the position that it belongs to."""
    half = number_of(cache.type.shape[1], "size of angles")
    stream = _streams(call.attrs.integers("mrope_section"), half,
                      call.attrs.integer("mrope_layout", 0) == 1)  # fmt: skip
    whole = of(Gather(0), cache, positions)
    _, batch, length, _ = whole.type.shape
    parts = [reshaped(part(whole, 0, i, 1), batch, 1, length, half) for i in range(3)]
    result = parts[0]
    for number in (1, 2):
        chosen = call.literal(stream == number)
        result = where(chosen, parts[number], result)
    return result


def _streams(sections: tuple[int, ...], half: int, mixed: bool) -> Array:
    """Which of the three positions each angle belongs to."""
    if not mixed:
        return np.repeat(np.arange(3), sections)
    places = np.arange(half)
    number = places % 3
    return np.where(places < 3 * np.asarray(sections)[number], number, 0)


def rotary_of_gemma(
    call: Call, emb: Value, q: Value, q_turned: Value, k: Value, k_turned: Value
) -> tuple[Value, Value]:
    """``x cos + rotated x sin`` for queries and keys, with given angles [b, s, d]."""
    batch, length, size = emb.type.shape
    one = reshaped(emb, batch, 1, length, size)
    cos, sin = (of(Cast(q.type.dtype), of(op, one)) for op in (Cos(), Sin()))
    return q * cos + q_turned * sin, k * cos + k_turned * sin


def _positions(call: Call, given: Value, x: Value) -> Value:
    if given.type.rank == 2:
        return given
    batch, length = x.type.shape[0], x.type.shape[-2]
    offset = cast(of(Reshape((1, 1)), given), I64)
    return offset + call.made(Iota((batch, length), 1, 0, 1, I64))
