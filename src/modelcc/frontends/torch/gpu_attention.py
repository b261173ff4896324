"""Handlers of the attention operators that PyTorch traces on GPUs: FlashAttention's, its own
memory-efficient ones, and cuDNN's.

All return the result and the log-sum-exps, then state for dropout, which is not supported.
"""

from __future__ import annotations

import numpy as np

from modelcc.frontends.torch.aten import Aten, table
from modelcc.frontends.torch.attention import (
    attention,
    attention_gradients,
    attention_op,
    flash,
    flash_backward,
)
from modelcc.ir.index import Index
from modelcc.ir.types import F32, TensorType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.shape import Concat
from modelcc.ops.slicing import Slice
from modelcc.ops.views import cast, reshaped

Results = tuple[Value | None, ...]


def flash_attention(
    call: Aten, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False,
    debug: bool = False, scale: float | None = None,
) -> Results:  # fmt: skip
    """For 16-bit floats, without a mask; log-sum-exps are [batch, heads, queries]."""
    del debug  # a result for debugging
    return _with_rest(call, *flash(call, q, k, v, dropout, causal, None, scale))


def flash_attention_backward(
    call: Aten, dy: Value, q: Value, k: Value, v: Value, y: Value, sums: Value,
    starts_q: Value | None, starts_k: Value | None, most_q: Index, most_k: Index,
    dropout: float, causal: bool, seed: Value | None, offset: Value | None,
    scale: float | None = None,
) -> list[Value]:  # fmt: skip
    """Gradients of queries, keys and values."""
    del starts_q, starts_k, most_q, most_k, seed, offset  # of packed sequences, and for dropout
    return flash_backward(call, dy, q, k, v, y, sums, dropout, causal, None, scale)


def efficient_attention(
    call: Aten, q: Value, k: Value, v: Value, mask: Value | None, wants_sums: bool,
    dropout: float = 0.0, causal: bool = False, scale: float | None = None,
) -> Results:  # fmt: skip
    """For any floats; the number of log-sum-exps is rounded up to a multiple of 32 queries, padded
    with infinity."""
    if not wants_sums:
        y = attention(call, q, k, v, mask, dropout, causal, scale)
        return _with_rest(call, y, None)
    y, sums = flash(call, q, k, v, dropout, causal, mask, scale)
    return _with_rest(call, y, _padded(call, sums))


def efficient_attention_backward(
    call: Aten, dy: Value, q: Value, k: Value, v: Value, mask: Value | None, y: Value, sums: Value,
    seed: Value | None, offset: Value | None, dropout: float, wanted: tuple[bool, ...],
    causal: bool = False, scale: float | None = None,
) -> Results:  # fmt: skip
    """Gradients of queries, keys, values and, if ``wanted``, the mask."""
    del seed, offset
    op = attention_op(call, q, dropout, causal, scale)
    known = dy, y, _of_queries(sums, q)
    found = attention_gradients(call, known, (q, k, v, mask), op)
    of_mask = cast(found[3], mask.type.dtype) if mask is not None and wanted[3] else None
    return (*found[:3], of_mask)


def cudnn_attention(
    call: Aten, q: Value, k: Value, v: Value, mask: Value | None, wants_sums: bool,
    dropout: float = 0.0, causal: bool = False, debug: bool = False, scale: float | None = None,
) -> Results:  # fmt: skip
    """For 16-bit floats; log-sum-exps are [batch, heads, queries, 1]."""
    del wants_sums, debug
    y, sums = flash(call, q, k, v, dropout, causal, mask, scale)
    return _with_rest(call, y, reshaped(sums, *sums.type.shape, 1))


def cudnn_attention_backward(
    call: Aten, dy: Value, q: Value, k: Value, v: Value, y: Value, sums: Value,
    seed: Value | None, offset: Value | None, mask: Value | None, starts_q: Value | None,
    starts_k: Value | None, most_q: Index, most_k: Index, dropout: float, causal: bool,
    scale: float | None = None,
) -> list[Value]:  # fmt: skip
    """Gradients of queries, keys and values."""
    del starts_q, starts_k, most_q, most_k, seed, offset
    return flash_backward(call, dy, q, k, v, y, sums, dropout, causal, mask, scale)


def _padded(call: Aten, sums: Value) -> Value:
    """Log-sum-exps padded to the extent of the operator's result with infinity, so that their
    exponentials of less are 0."""
    *lead, rows = call.extents(1)
    beyond = rows - sums.type.shape[2]
    if beyond == 0:
        return sums
    return of(Concat(2), sums, of(Expand((*lead, beyond)), call.literal(np.inf, F32)))


def _of_queries(sums: Value, q: Value) -> Value:
    """Log-sum-exps of the actual queries."""
    extents = q.type.shape[:3]
    return sums if sums.type.shape == extents else of(Slice((0,) * 3, extents, (1,) * 3), sums)


def _with_rest(call: Aten, y: Value, sums: Value | None) -> Results:
    """The results, of which the first are these; unused tensors are zeros."""
    rest = [None if kind is None else _zeros(call, kind) for kind in call.results[2:]]
    return (y, _zeros(call, call.results[1]) if sums is None and call.results[1] else sums, *rest)


def _zeros(call: Aten, kind: TensorType) -> Value:
    return of(Expand(kind.shape), call.literal(0, kind.dtype))


GPU_ATTENTION = table(
    _scaled_dot_product_flash_attention=flash_attention,
    _scaled_dot_product_flash_attention_backward=flash_attention_backward,
    _scaled_dot_product_efficient_attention=efficient_attention,
    _scaled_dot_product_efficient_attention_backward=efficient_attention_backward,
    _scaled_dot_product_cudnn_attention=cudnn_attention,
    _scaled_dot_product_cudnn_attention_backward=cudnn_attention_backward,
)
