"""Attention from matrix products around a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.op import broadcast_shapes
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite
from modelcc.ir.types import TensorType
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.comparison import Equal
from modelcc.ops.elementwise import Add, IsNaN, Where
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.shape import Transpose
from modelcc.passes.graph.causal_masks import SWALLOWS_SCORES, causal_offset
from modelcc.passes.graph.permutations import swap_last, transposed
from modelcc.passes.graph.products import keeps_shape, made_by, scalar, scalings, swapped
from modelcc.passes.graph.split_masks import attention_of_split, split_mask


@dataclass(frozen=True)
class RecogniseAttention:
    """``softmax(s * q @ kᵀ + mask) @ v`` is Attention (Vaswani et al., 2017).

    The scale may be on q, on k, on both or on the scores; the mask additive or by Where.  A guard
    against NaN weights (fully masked rows) is moved to the result, and so is a selection of rows
    whose weights are 0.  A mask that hides later keys, as a constant or computed from positions,
    makes it causal; the rest of the mask is added.

    before::

        "mcc.graph"() ({
        ^bb0(%q: tensor<1x2x3x4xf32>, %k: tensor<1x5x2x4xf32>, %v: tensor<1x2x5x4xf32>,
             %mask: tensor<1x1x3x5xf32>):
          %two = "mcc.constant"() {value = dense<2.0> : tensor<f32>}
          %t = "mcc.Transpose"(%k) {perm = [0, 2, 3, 1]}
          %p = "mcc.MatMul"(%q, %t)
          %s = "mcc.Div"(%p, %two)
          %a = "mcc.Add"(%s, %mask)
          %w = "mcc.Softmax"(%a) {axis = 3}
          %y = "mcc.MatMul"(%w, %v)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%q: tensor<1x2x3x4xf32>, %k: tensor<1x5x2x4xf32>, %v: tensor<1x2x5x4xf32>,
             %mask: tensor<1x1x3x5xf32>):
          %h = "mcc.Transpose"(%k) {perm = [0, 2, 1, 3]}
          %y = "mcc.Attention"(%q, %h, %v, %mask) {scale = 0.5, causal = false, offset = 0}
          "mcc.return"(%y)
        })
    """

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        return rewrite(graph, (attention, scaled_operands, known_mask), self.limit)


@dataclass(frozen=True)
class Scores:
    """``scale * q @ k_transposed`` plus the masks."""

    q: str
    k_transposed: str
    scale: float
    masks: tuple[str, ...]


def attention(node: Node, at: Rewriter) -> Replacement:
    """A matrix product of a softmax of scores with the values."""
    if not isinstance(node.op, MatMul):
        return None
    weights, v = node.inputs
    hidden, shown = _hidden_rows(at, weights)
    unguarded = _without_nan_guard(at, shown)
    softmax = made_by(at, unguarded, Softmax)
    result = at.type_of(node.outputs[0])
    if softmax is None or softmax.op != Softmax(result.rank - 1) or at.uses(weights) > 1:
        return None
    for scores in _scores(at, softmax.inputs[0]):
        if _shapes_fit(at, scores, v, result.rank):
            mixed = _emit(at, scores, v, result)
            guarded = mixed if unguarded == shown else _with_nan_guard(at, mixed)
            return guarded if hidden is None else _without_rows(at, hidden, guarded)
    return None


def _hidden_rows(at: Rewriter, name: str) -> tuple[str | None, str]:
    """``(rows, p)`` of ``where(rows, 0, p)``, where the condition is per row."""
    choice = made_by(at, name, Where)
    if choice is None or scalar(at, choice.inputs[1]) != 0.0:
        return None, name
    rows, _, weights = choice.inputs
    is_whole = at.type_of(rows).shape[-1:] in ((), (1,))
    if not is_whole or not keeps_shape(at, choice, weights):
        return None, name
    return (None if _never(at, rows) else rows), weights


def _never(at: Rewriter, rows: str) -> bool:
    """Whether the maximum of a causal mask's rows, which is 0, is compared to be less."""
    comparison = made_by(at, rows, Equal)
    for greatest, number in swapped(comparison) if comparison else ():
        value, reduced = scalar(at, number), made_by(at, greatest, ReduceMax)
        if value is None or value >= 0 or reduced is None:
            continue
        mask = at.type_of(reduced.inputs[0])
        if mask.rank >= 2 and reduced.op == ReduceMax((mask.rank - 1,)):
            return causal_offset(at, reduced.inputs[0], mask.shape[-2], mask.shape[-1]) is not None
    return False


def _without_rows(at: Rewriter, rows: str, name: str) -> str:
    """0 in these rows: sums with weights of 0."""
    zero = at.constant(0.0, at.type_of(name).dtype)
    return at.emit(Where(), rows, zero, name)


def _without_nan_guard(at: Rewriter, name: str) -> str:
    """``p`` of ``where(isnan(p), 0, p)``, which torch emits for fully masked rows."""
    guard = made_by(at, name, Where)
    if guard is None or scalar(at, guard.inputs[1]) != 0.0:
        return name
    condition = made_by(at, guard.inputs[0], IsNaN)
    guarded = guard.inputs[2]
    return guarded if condition is not None and condition.inputs == (guarded,) else name


def _with_nan_guard(at: Rewriter, name: str) -> str:
    """0 for fully masked rows, as with weights of 0."""
    zero = at.constant(0.0, at.type_of(name).dtype)
    return at.emit(Where(), at.emit(IsNaN(), name), zero, name)


def _scores(at: Rewriter, name: str) -> Iterator[Scores]:
    """Every interpretation of ``name`` as masked scores."""
    for scale, inner in scalings(at, name):
        node = made_by(at, inner, MatMul)
        if node is not None:
            q, k_transposed = node.inputs
            yield Scores(q, k_transposed, scale, ())
    masked = made_by(at, name, Add, Where)
    if masked is None:
        return
    pairs = swapped(masked) if isinstance(masked.op, Add) else _chosen(at, masked)
    for inner, mask in pairs:
        if at.type_of(inner) == at.type_of(name):
            for scores in _scores(at, inner):
                yield Scores(scores.q, scores.k_transposed, scores.scale, (*scores.masks, mask))


def _chosen(at: Rewriter, node: Node) -> Iterator[tuple[str, str]]:
    """Scores and additive mask of ``where(seen, scores, -inf)`` or ``where(hidden, -inf, s)``."""
    condition, yes, no = node.inputs
    dtype = at.type_of(node.outputs[0]).dtype
    zero = np.zeros((), dtype.numpy)
    for scores, number, kept in ((yes, no, True), (no, yes, False)):
        value = scalar(at, number)
        if value is None or value > SWALLOWS_SCORES:
            continue
        if at.type_of(condition).rank > at.type_of(scores).rank:
            continue
        hidden = at.constant(np.asarray(value, dtype.numpy))
        seen = at.constant(zero)
        arms = (seen, hidden) if kept else (hidden, seen)
        yield scores, at.emit(Where(), condition, *arms)


def _shapes_fit(at: Rewriter, scores: Scores, v: str, rank: int) -> bool:
    q, k, values = at.type_of(scores.q), at.type_of(scores.k_transposed), at.type_of(v)
    if not (q.rank == k.rank == values.rank == rank and rank in (3, 4) and q.dtype.is_float):
        return False
    whole = (*q.shape[:-1], k.shape[-1])
    masks = [at.type_of(m).shape for m in scores.masks]
    same_batch = q.shape[:-2] == k.shape[:-2] == values.shape[:-2]
    return same_batch and all(broadcast_shapes(m, whole) == whole for m in masks)


def _emit(at: Rewriter, scores: Scores, v: str, result: TensorType) -> str:
    k = transposed(at, scores.k_transposed, swap_last(result.rank))
    operands = [_with_heads(at, name) for name in (scores.q, k, v)]
    if scores.masks:
        mask = scores.masks[0]
        for other in scores.masks[1:]:
            mask = at.emit(Add(), mask, other)
        batched = at.type_of(mask).rank == result.rank == 3
        operands.append(_with_heads(at, mask) if batched else mask)
    mixed = at.emit(Attention(scores.scale), *operands)
    return mixed if result.rank == 4 else at.emit(Reshape(result.shape), mixed)


def _with_heads(at: Rewriter, name: str) -> str:
    """The value with an added axis of one head if it has none."""
    shape = at.type_of(name).shape
    return name if len(shape) == 4 else at.emit(Reshape((shape[0], 1, *shape[1:])), name)


def scaled_operands(node: Node, at: Rewriter) -> Replacement:
    """Scalar factors of queries or keys become factors of the scores."""
    op = node.op
    if not isinstance(op, Attention):
        return None
    q, k, *others = node.inputs
    (q_scale, queries), (k_scale, keys) = _unscaled(at, q), _unscaled(at, k)
    if (queries, keys) == (q, k):
        return None
    scaled = replace(op, scale=op.scale * q_scale * k_scale)
    return at.emit(scaled, queries, keys, *others)


def _unscaled(at: Rewriter, name: str) -> tuple[float, str]:
    """``(c, x)`` with ``name == c * x``, with data movement moved from the product to x."""
    *_, (scale, inner) = scalings(at, name)
    moved = made_by(at, inner, Transpose, Reshape, Expand)
    if moved is None:
        return scale, inner
    more, operand = _unscaled(at, moved.inputs[0])
    if operand == moved.inputs[0]:
        return scale, inner
    if isinstance(moved.op, Transpose):
        return scale * more, transposed(at, operand, moved.op.perm)
    return scale * more, at.emit(moved.op, operand)


def known_mask(node: Node, at: Rewriter) -> Replacement:
    """The causal part of a mask becomes an attribute; a mask of zeros is dropped."""
    op = node.op
    if not isinstance(op, Attention) or op.causal or len(node.inputs) < 4:
        return None
    mask = at.constant_value(node.inputs[3])
    if mask is not None and not mask.any():
        return at.emit(op, *node.inputs[:3])
    queries, keys = (at.type_of(name).shape[2] for name in node.inputs[:2])
    offset = causal_offset(at, node.inputs[3], queries, keys)
    if offset is None:
        split = split_mask(at, node.inputs[3], queries, keys)
        return None if split is None else attention_of_split(at, node, split)
    return at.emit(replace(op, causal=True, offset=offset), *node.inputs[:3])
