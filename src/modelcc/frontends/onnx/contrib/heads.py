"""Common parts of onnxruntime's attention operators (com.microsoft): heads, scores, packed
operands.

Heads are [batch, heads, positions, size].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.onnx.call import Call
from modelcc.ir.index import Index, floordiv
from modelcc.ir.types import I32, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Softmax
from modelcc.ops.generate import Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Expand
from modelcc.ops.views import part, permuted, reshaped

Three = tuple[Value, Value, Value]
"""Queries, keys and values."""


def split_heads(x: Value, heads: int) -> Value:
    """[b, s, heads * d] split into heads."""
    batch, length, size = x.type.shape
    return permuted(reshaped(x, batch, length, heads, floordiv(size, heads)), 0, 2, 1, 3)


def joined_heads(x: Value) -> Value:
    """Heads merged to [b, s, heads * d]."""
    batch, heads, length, size = x.type.shape
    return reshaped(permuted(x, 0, 2, 1, 3), batch, length, heads * size)


def repeated(x: Value, times: int, axis: int = 1) -> Value:
    """``x`` with each index of ``axis`` repeated ``times`` times."""
    if times == 1:
        return x
    lead, (count, *rest) = x.type.shape[:axis], x.type.shape[axis:]
    copies = of(Expand((*lead, count, times, *rest)), reshaped(x, *lead, count, 1, *rest))
    return reshaped(copies, *lead, count * times, *rest)


def iota(call: Call, extent: Index) -> Value:
    """0, 1, … as i32."""
    return call.made(Iota((extent,), 0, 0, 1, I32))


def along(call: Call, extent: Index, axis: int, rank: int, dtype: DType) -> Value:
    """0, 1, … along ``axis`` of a tensor of ``rank`` axes."""
    shape = tuple(extent if a == axis else 1 for a in range(rank))
    return call.made(Iota(shape, axis, 0, 1, dtype))


def scale_of(call: Call, size: Index) -> float:
    """Attribute ``scale``, by default 1 / sqrt(head size)."""
    number = number_of(size, "size of heads")
    return call.attrs.number("scale", 0.0) or 1 / math.sqrt(number)


def hidden(call: Call, like: Value, least: bool = False) -> Value:
    """The additive value of masked scores: the filter, or minus infinity if ``least``."""
    number = -np.inf if least else call.attrs.number("mask_filter_value", -10000.0)
    return call.literal(number, like.type.dtype)


def products(call: Call, q: Value, k: Value) -> Value:
    """Scaled products of queries and keys."""
    return of(MatMul(), q, permuted(k, 0, 1, 3, 2)) * scale_of(call, q.type.shape[3])


def weighted(scores: Value, v: Value) -> Value:
    """Values [b, h, n, e] weighted by the softmax of scores [b, h, m, n], with heads merged."""
    return joined_heads(of(MatMul(), of(Softmax(3), scores), v))


def projected(call: Call, joint: Value) -> list[Value]:
    """Queries, keys and values from a packed projection."""
    width = number_of(call.shape(1)[1], "size of weights")
    sizes = call.attrs.integers("qkv_hidden_sizes", ()) or (width // 3,) * 3
    starts = (0, sizes[0], sizes[0] + sizes[1])
    return [part(joint, -1, start, size) for start, size in zip(starts, sizes, strict=True)]


def biased(parts: Sequence[Value], bias: Value | None) -> list[Value]:
    """``parts`` plus their slices of a packed bias, along the last axis."""
    if bias is None:
        return list(parts)
    results: list[Value] = []
    start: Index = 0
    for x in parts:
        results.append(x + part(bias, 0, start, x.type.shape[-1]))
        start = start + x.type.shape[-1]
    return results


def grouped_heads(q: Value, k: Value | None, v: Value | None, heads: int, few: int) -> Three:
    """Operands split into heads, ``few`` of keys and values; or a packed ``q``."""
    if k is not None and v is not None:
        return split_heads(q, heads), split_heads(k, few), split_heads(v, few)
    size = floordiv(q.type.shape[2], heads + 2 * few)
    cuts = ((0, heads), (heads, few), (heads + few, few))
    q, k, v = (split_heads(part(q, 2, at * size, n * size), n) for at, n in cuts)
    return q, k, v


def before_last(call: Call, ends: Value, length: Index) -> Value:
    """The start of the last ``length`` positions before ``ends``, at least 0."""
    count = Value(call, call.note((length,), ends.type.dtype))
    return of(ew.Max(), ends - count, ends.lift(0))


def following(call: Call, start: Value, length: Index) -> Value:
    """The ``length`` positions from ``start`` [batch] on, [batch, length]."""
    return reshaped(start, *start.type.shape, 1) + along(call, length, 1, 2, start.type.dtype)
