"""Rotary position embeddings (Su et al., "RoFormer", 2021) as onnxruntime has them."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.heads import joined_heads, split_heads
from modelcc.ir.types import I64, Array
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import where
from modelcc.ops.elementwise import Cast, Cos, Sin
from modelcc.ops.gather import Gather
from modelcc.ops.shape import Concat, Iota, Reshape
from modelcc.ops.views import cast, part, reshaped


def rotated(x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [b, h, s, d] with its first elements turned by the angles of cos and sin [b, 1, s, r].

    The two coordinates of a point are r apart, or neighbours if ``interleaved``.
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
    call: Call, q: Value, k: Value, positions: Value, caches: int
) -> tuple[Value, Value]:
    """Queries and keys turned by the angles of operands ``caches`` and the one after it."""
    cos, sin = (angles(call.value(i), positions) for i in (caches, caches + 1))
    near = call.attrs.flag("rotary_interleaved")
    return rotated(q, cos, sin, near), rotated(k, cos, sin, near)


def rotary_embedding(call: Call) -> str:
    """Of queries or keys, [b, s, h * d] or [b, h, s, d]; positions are given or an offset."""
    x = _heads(call)
    cos, sin = (angles(call.value(i), _positions(call, x)) for i in (2, 3))
    return _turned(call, x, cos, sin)


def _heads(call: Call) -> Value:
    """Operand 0 as [b, h, s, d]."""
    x = call.value(0)
    if call.attrs.flag("is_packed_batching"):
        unsupported("packed batches")
    if call.rank() == 4:
        return x
    half = number_of(call.shape(2)[1], "size of angles")
    size = number_of(call.shape()[2], "size of rows")
    return split_heads(x, call.attrs.integer("num_heads", 0) or size // (2 * half))


def _turned(call: Call, x: Value, cos: Value, sin: Value) -> str:
    """``x`` turned by angles and scaled, in the form of operand 0."""
    result = rotated(x, cos, sin, call.attrs.flag("interleaved"))
    scale = call.attrs.number("scale", 1.0)
    if scale != 1.0:
        result = result * scale
    return (joined_heads(result) if call.rank() == 3 else result).name


def rotary_embedding_of_images(call: Call) -> str:
    """As above; each angle is that of one of three positions: of time, height and width.

    Wang et al., "Qwen2-VL", 2024.
    """
    x = _heads(call)
    found = [_of_three(call, call.value(i)) for i in (2, 3)]
    return _turned(call, x, found[0], found[1])


def _of_three(call: Call, cache: Value) -> Value:
    """Angles [b, 1, s, r], element by element of the position that it belongs to."""
    half = number_of(cache.type.shape[1], "size of angles")
    stream = _streams(call.attrs.integers("mrope_section"), half,
                      call.attrs.integer("mrope_layout", 0) == 1)  # fmt: skip
    whole = of(Gather(0), cache, call.value(1))
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


def rotary_of_gemma(call: Call) -> tuple[str, str]:
    """``x cos + turned x sin`` of queries and keys, with given angles [b, s, d]."""
    batch, length, size = call.shape()
    emb = reshaped(call.value(0), batch, 1, length, size)
    dtype = call.dtype(1)
    cos, sin = (of(Cast(dtype), of(op, emb)) for op in (Cos(), Sin()))
    q, k = (call.value(i) * cos + call.value(i + 1) * sin for i in (1, 3))
    return q.name, k.name


def _positions(call: Call, x: Value) -> Value:
    given = call.value(1)
    if given.type.rank == 2:
        return given
    batch, _, length, _ = x.type.shape
    offset = cast(of(Reshape((1, 1)), given), I64)
    return offset + call.made(Iota((batch, length), 1, 0, 1, I64))
