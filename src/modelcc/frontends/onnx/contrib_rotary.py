"""Rotary position embeddings (Su et al., "RoFormer", 2021) as onnxruntime has them."""

from __future__ import annotations

from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib import value
from modelcc.frontends.onnx.errors import unsupported
from modelcc.ir.index import Index, floordiv
from modelcc.ir.types import I64
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.elementwise import Cast
from modelcc.ops.gather import Gather
from modelcc.ops.shape import Concat, Iota, Reshape, Transpose
from modelcc.ops.slicing import Slice


def number_of(call: Call, extent: Index, what: str) -> int:
    """``extent`` as a number; not supported if it depends on a named dimension."""
    if not isinstance(extent, int):
        unsupported(f"its {what} depends on dimension {extent}")
    return extent


def split_heads(x: Value, heads: int) -> Value:
    """[b, s, heads * d] as [b, heads, s, d]."""
    batch, length, size = x.type.shape
    parted = of(Reshape((batch, length, heads, floordiv(size, heads))), x)
    return of(Transpose((0, 2, 1, 3)), parted)


def joined_heads(x: Value) -> Value:
    """[b, heads, s, d] as [b, s, heads * d]."""
    batch, heads, length, size = x.type.shape
    return of(Reshape((batch, length, heads * size)), of(Transpose((0, 2, 1, 3)), x))


def sliced_last(x: Value, start: int, count: int, step: int = 1) -> Value:
    """``count`` elements of the last axis from ``start`` on."""
    *lead, _ = x.type.shape
    zeros, ones = (0,) * len(lead), (1,) * len(lead)
    return of(Slice((*zeros, start), (*lead, count), (*ones, step)), x)


def rotated(x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [b, h, s, d] with its first elements turned by the angles of cos and sin [b, 1, s, r].

    The two coordinates of a point are r apart, or neighbours if ``interleaved``.
    """
    size, half = x.type.shape[-1], cos.type.shape[-1]
    assert isinstance(size, int) and isinstance(half, int)
    if interleaved:
        first, second = sliced_last(x, 0, half, 2), sliced_last(x, 1, half, 2)
    else:
        first, second = sliced_last(x, 0, half), sliced_last(x, half, half)
    turned = [first * cos - second * sin, second * cos + first * sin]
    if interleaved:
        lead = x.type.shape[:-1]
        pairs = of(Concat(4), *(of(Reshape((*lead, half, 1)), t) for t in turned))
        turned = [of(Reshape((*lead, 2 * half)), pairs)]
    if size > 2 * half:
        turned.append(sliced_last(x, 2 * half, size - 2 * half))
    return turned[0] if len(turned) == 1 else of(Concat(3), *turned)


def angles(cache: Value, positions: Value) -> Value:
    """Rows of ``cache`` [n, r] at ``positions`` [b, s], as [b, 1, s, r]."""
    found = of(Gather(0), cache, positions)
    batch, length, half = found.type.shape
    return of(Reshape((batch, 1, length, half)), found)


def rotary_embedding(call: Call) -> str:
    """Of queries or keys, [b, s, h * d] or [b, h, s, d]; positions are given or an offset."""
    attrs, x, flat = call.attrs, value(call, 0), call.rank() == 3
    if attrs.flag("is_packed_batching"):
        unsupported("packed batches")
    scale = attrs.number("scale", 1.0)
    if flat:
        half = number_of(call, call.shape(2)[1], "size of angles")
        size = number_of(call, call.shape()[2], "size of rows")
        heads = attrs.integer("num_heads", 0) or size // (2 * half)
        x = split_heads(x, heads)
    cos, sin = (angles(value(call, i), _positions(call, x)) for i in (2, 3))
    result = rotated(x, cos, sin, attrs.flag("interleaved"))
    if scale != 1.0:
        result = result * scale
    return (joined_heads(result) if flat else result).name


def _positions(call: Call, x: Value) -> Value:
    given = value(call, 1)
    if given.type.rank == 2:
        return given
    batch, _, length, _ = x.type.shape
    offset = of(Reshape((1, 1)), given)
    offset = offset if offset.type.dtype == I64 else of(Cast(I64), offset)
    return offset + Value(call, call.emit(Iota((batch, length), 1, 0, 1, I64)))
