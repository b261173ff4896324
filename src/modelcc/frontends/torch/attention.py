"""Handlers of scaled dot-product attention."""

from __future__ import annotations

from math import sqrt

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.torch.aten import Aten, table
from modelcc.ir.index import Index, product
from modelcc.ir.op import broadcast_shapes
from modelcc.ir.types import BOOL, DType
from modelcc.ops.accumulate import accumulator
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Attention
from modelcc.ops.attention_gradients import AttentionSums, gradients, row_products
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import Greater, where
from modelcc.ops.reduce import ReduceMax, ReduceSum
from modelcc.ops.views import cast, reshaped


def attention(
    call: Aten, q: Value, k: Value, v: Value, mask: Value | None = None, dropout: float = 0.0,
    causal: bool = False, scale: float | None = None, grouped: bool = False,
) -> Value:  # fmt: skip
    """With any leading axes, which broadcast; a query that attends to no key gets zeros."""
    op = attention_op(call, q, dropout, causal, scale)
    if grouped:
        k, v = (_repeated(x, q) for x in (k, v))
    lead = broadcast_shapes(*(x.type.shape[:-2] for x in (q, k, v)))
    heads = [_of_four_axes(x, lead) for x in (q, k, v)]
    masks = [] if mask is None else [_mask_of_four_axes(_added(call, mask, q.type.dtype), lead)]
    y = of(op, *heads, *masks)
    if masks and _may_hide_all(call, mask, masks[0]):
        y = where(_sees_any(masks[0]), y, 0.0)
    return reshaped(y, *lead, *y.type.shape[2:])


def attention_op(
    call: Aten, q: Value, dropout: float, causal: bool, scale: float | None
) -> Attention:
    if dropout:
        unsupported(f"dropout of {dropout}")
    size = number_of(q.type.shape[-1], "head size")
    return Attention(1 / sqrt(size) if scale is None and size else float(scale or 1), causal)


def _repeated(x: Value, q: Value) -> Value:
    """Heads of keys or values, repeated for each group of query heads."""
    *lead, heads, length, size = x.type.shape
    times = number_of(q.type.shape[-3], "heads") // number_of(heads, "heads")
    if times == 1:
        return x
    wide = of(
        Expand((*lead, heads, times, length, size)), reshaped(x, *lead, heads, 1, length, size)
    )
    return reshaped(wide, *lead, heads * times, length, size)


def _of_four_axes(x: Value, lead: tuple[Index, ...]) -> Value:
    """``x`` as [batch, heads, length, size], where ``lead`` are batch and heads."""
    pair = x.type.shape[-2:]
    if x.type.shape[:-2] != lead:
        x = of(
            Expand((*lead, *pair)),
            reshaped(x, *(1,) * (len(lead) + 2 - x.type.rank), *x.type.shape),
        )
    return x if len(lead) == 2 else reshaped(x, *_batch_and_heads(lead), *pair)


def _batch_and_heads(lead: tuple[Index, ...]) -> tuple[Index, ...]:
    return (product(lead[:-1]), lead[-1]) if lead else (1, 1)


def _mask_of_four_axes(mask: Value, lead: tuple[Index, ...]) -> Value:
    """A mask reshaped to broadcast to the scores."""
    if mask.type.rank <= 2 or len(lead) == 2:
        return mask
    return _of_four_axes(mask, lead)


def _added(call: Aten, mask: Value, dtype: DType) -> Value:
    """The additive form of a mask; a bool one says which keys are attended to."""
    if mask.type.dtype != BOOL:
        return cast(mask, dtype)
    zero = call.literal(0.0, dtype)
    return where(mask, zero, -np.inf)


def _may_hide_all(call: Aten, mask: Value | None, added: Value) -> bool:
    """Whether a query may attend to no key; decided statically for a constant mask."""
    assert mask is not None
    known = call.emitter.contents(mask.name)
    if known is None or is_symbolic(known) or mask.type.rank == 0 or known.shape[-1] == 1:
        return True
    hidden = ~known if mask.type.dtype == BOOL else known == -np.inf
    return bool(hidden.all(axis=-1).any())


def _sees_any(added: Value) -> Value:
    """For each query, whether the mask leaves any key: [..., m, 1]."""
    greatest = of(ReduceMax((added.type.rank - 1,), True), added) if added.type.rank else added
    return of(Greater(), greatest, greatest.lift(-np.inf))


def flash(
    call: Aten, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False,
    mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    """The result, and for each query the log-sum-exp of its scores.

    There may be fewer heads of keys and values, each shared by a group of query heads.
    """
    op = attention_op(call, q, dropout, causal, scale)
    whole = AttentionSums(op.scale, op.causal)
    heads = [q, *(_repeated(x, q) for x in (k, v))]
    masks = [] if mask is None else [_added(call, mask, q.type.dtype)]
    names = call.add(whole, *(x.name for x in (*heads, *masks)))
    y, sums = (Value(call, name) for name in names)
    if masks and _may_hide_all(call, mask, masks[0]):
        seen = _sees_any(masks[0])
        y = where(seen, y, 0.0)
        sums = where(_of_queries(seen, sums), sums, np.inf)
    return y, cast(sums, call.results[1].dtype if call.results[1] else sums.type.dtype)


def _of_queries(seen: Value, sums: Value) -> Value:
    """``seen``, of any axes with one key, reshaped to broadcast to [batch, heads, queries]."""
    return reshaped(seen, *seen.type.shape[:-1]) if seen.type.rank else seen


def flash_backward(
    call: Aten, dy: Value, q: Value, k: Value, v: Value, y: Value, sums: Value, dropout: float,
    causal: bool, mask: Value | None = None, scale: float | None = None,
) -> list[Value]:  # fmt: skip
    """Gradients of queries, keys and values; the weights are recomputed."""
    op = attention_op(call, q, dropout, causal, scale)
    return attention_gradients(call, (dy, y, sums), (q, k, v, mask), op)[:3]


def attention_gradients(
    call: Aten,
    known: tuple[Value, Value, Value],
    operands: tuple[Value, Value, Value, Value | None],
    op: Attention,
) -> list[Value]:
    """Gradients of queries, keys, values and the mask, if there is one; ``known`` are the gradient
    of the result, the result, and its log-sum-exps."""
    (dy, y, sums), (q, k, v, mask) = known, operands
    masks = [] if mask is None else [_added(call, mask, q.type.dtype).name]
    heads = [q, *(_repeated(x, q) for x in (k, v))]
    sums = cast(reshaped(sums, *q.type.shape[:3]), accumulator(q.type.dtype))
    names = [*(x.name for x in heads), *masks]
    found = gradients(op, call, dy, names, sums, row_products(dy, y))
    grads = [Value(call, name) for name in found if name is not None]
    return [*(_of_groups(dx, x) for dx, x in zip(grads, (q, k, v), strict=False)), *grads[3:]]


def _of_groups(dx: Value, x: Value) -> Value:
    """Gradients of repeated heads, summed over each group to those of ``x``."""
    if dx.type.shape == x.type.shape:
        return dx
    batch, heads, length, size = x.type.shape
    times = number_of(dx.type.shape[1], "heads") // number_of(heads, "heads")
    return of(ReduceSum((2,), False), reshaped(dx, batch, heads, times, length, size))


ATTENTION = table(
    scaled_dot_product_attention=attention,
    _scaled_dot_product_flash_attention_for_cpu=flash,
    _scaled_dot_product_flash_attention_for_cpu_backward=flash_backward,
)
