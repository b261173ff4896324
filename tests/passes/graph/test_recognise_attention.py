"""Attention with scales, masks and transposes wherever exporters put them."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import BOOL, F16, F64, DType, TensorType
from modelcc.ops.arithmetic import Value
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.comparison import Equal
from modelcc.ops.elementwise import IsNaN, Where
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.shape import Transpose
from modelcc.passes.graph.eliminate_reshapes import EliminateReshapes
from modelcc.passes.graph.recognise_attention import RecogniseAttention
from tests.passes.graph.examples import assert_same_meaning, feeds_of
from tests.passes.graph.formulas import Formula, call, constant, f32, graph_of, op_names, rows

MASK = f32(3, 5)
Q, K, V = f32("b", 2, 3, 4), f32("b", 2, 5, 4), f32("b", 2, 5, 6)


def turned(k: Value) -> Value:
    rank = k.type.rank
    return call(Transpose((*range(rank - 2), rank - 1, rank - 2)), k)


def matmul(a: Value, b: Value) -> Value:
    return call(MatMul(), a, b)


def softmax(x: Value) -> Value:
    return call(Softmax(x.type.rank - 1), x)


PLAIN: list[Formula] = [
    lambda q, k, v: matmul(softmax(matmul(q, turned(k)) * 0.5), v),
    lambda q, k, v: matmul(softmax(matmul(q, turned(k)) / 2.0), v),
    lambda q, k, v: matmul(softmax(matmul(q * 0.5, turned(k))), v),
    lambda q, k, v: matmul(softmax(matmul(q, turned(k * 0.5))), v),
    lambda q, k, v: matmul(softmax(matmul(q, turned(k) * 0.5)), v),
    lambda q, k, v: matmul(softmax(matmul(q * 0.25, turned(k)) * 2.0), v),
    lambda q, k, v: matmul(softmax(matmul(turned(turned(q) * 0.5), turned(k * 2.0) * 0.5)), v),
]


@pytest.mark.parametrize("formula", PLAIN)
def test_scale_anywhere(formula: Formula) -> None:
    before = graph_of(formula, Q, K, V)
    after = RecogniseAttention()(before)
    assert "Softmax" not in op_names(after) and "Mul" not in op_names(after)
    assert [n.op for n in after.nodes if not isinstance(n.op, Transpose)] == [Attention(0.5)]
    assert_same_meaning(before, after)


def test_batches_that_are_joined_for_each_product() -> None:
    """As PyTorch traces products of four axes: ``bmm`` between views."""
    q, k, v = f32(2, 4, 3, 8), f32(2, 4, 5, 8), f32(2, 4, 5, 6)

    def joined(x: Value) -> Value:
        return call(Reshape((8, *x.type.shape[-2:])), x)

    def formula(q: Value, k: Value, v: Value) -> Value:
        scores = call(Reshape((2, 4, 3, 5)), matmul(joined(q), joined(turned(k))))
        return call(Reshape((2, 4, 3, 6)), matmul(joined(softmax(scores * 0.5)), joined(v)))

    before = graph_of(formula, q, k, v)
    after = RecogniseAttention()(EliminateReshapes()(before))
    assert [n.op for n in after.nodes if not isinstance(n.op, Transpose)] == [Attention(0.5)]
    assert_same_meaning(before, after)


def test_keys_for_several_heads_are_scaled_before() -> None:
    """As ONNX's function of attention has it: one key for two queries, repeated, then scaled."""

    def formula(q: Value, k: Value, v: Value) -> Value:
        repeated = call(Reshape((1, 4, 5, 4)), call(Expand((1, 2, 2, 5, 4)), k))
        return matmul(softmax(matmul(q * 0.5, turned(repeated) * 0.5)), v)

    before = graph_of(formula, f32(1, 4, 3, 4), f32(1, 2, 1, 5, 4), f32(1, 4, 5, 6))
    after = RecogniseAttention()(before)
    assert op_names(after) == ["Expand", "Reshape", "Attention"]
    assert_same_meaning(before, after)


def test_scores_alone_are_enough() -> None:
    after = RecogniseAttention()(graph_of(PLAIN[0], Q, K, V))
    assert [n.op for n in after.nodes] == [Attention(0.5)]


@pytest.mark.parametrize(
    "mask",
    [f32("b", 1, 3, 5), f32(5), f32(1, 1, 1, 5), f32(3, 5)],
    ids=str,
)
def test_added_masks(mask: TensorType) -> None:
    def formula(q: Value, k: Value, v: Value, m: Value, bias: Value) -> Value:
        return matmul(softmax(bias + (matmul(q, turned(k)) / 2.0 + m)), v)

    before = graph_of(formula, Q, K, V, mask, f32(2, 3, 5))
    after = RecogniseAttention()(before)
    assert op_names(after) == ["Add", "Attention"]
    assert_same_meaning(before, after)


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("number", [-np.inf, np.finfo(np.float32).min])
def test_chosen_masks(seen: bool, number: float) -> None:
    def formula(q: Value, k: Value, v: Value, m: Value) -> Value:
        scores, low = matmul(q * 0.5, turned(k)), constant(q, number)
        return matmul(softmax(call(Where(), m, *((scores, low) if seen else (low, scores)))), v)

    types = (f32(1, 2, 3, 4), f32(1, 2, 5, 4), f32(1, 2, 5, 6), TensorType((1, 1, 3, 5), BOOL))
    before = graph_of(formula, *types)
    after = RecogniseAttention()(before)
    assert op_names(after) == ["Where", "Attention"]
    assert_same_meaning(before, after)


def test_guard_against_nan() -> None:
    def formula(q: Value, k: Value, v: Value, m: Value) -> Value:
        p = softmax(matmul(q, turned(k)) + m)
        return matmul(call(Where(), call(IsNaN(), p), constant(q, 0.0), p), v)

    before = graph_of(formula, Q, K, V, MASK)
    after = RecogniseAttention()(before)
    assert op_names(after) == ["Attention", "IsNaN", "Where"]
    assert_same_meaning(before, after)
    feeds = feeds_of(before) | {"x3": np.full((3, 5), -np.inf, np.float32)}
    for name, value in interpret(after, feeds).items():
        np.testing.assert_array_equal(value, interpret(before, feeds)[name])


def test_rows_that_see_nothing() -> None:
    """As ONNX's function of attention has it: told by the greatest number of the mask's row."""

    def formula(q: Value, k: Value, v: Value, m: Value) -> Value:
        p = softmax(matmul(q, turned(k)) + m)
        rows = call(Equal(), call(ReduceMax((1,)), m), constant(m, -np.inf))
        return matmul(call(Where(), rows, constant(q, 0.0), p), v)

    before = graph_of(formula, Q, K, V, MASK)
    after = RecogniseAttention()(before)
    assert op_names(after) == ["ReduceMax", "Equal", "Attention", "Where"]
    mask = np.zeros((3, 5), np.float32)
    mask[1] = -np.inf
    feeds = feeds_of(before) | {"x3": mask}
    for name, value in interpret(after, feeds).items():
        assert np.isfinite(value).all() and not value[..., 1, :].any()
        np.testing.assert_allclose(value, interpret(before, feeds)[name], rtol=1e-6)


def test_single_weights_that_are_hidden_afterwards_stay() -> None:
    def formula(q: Value, k: Value, v: Value, m: Value) -> Value:
        p = softmax(matmul(q, turned(k)))
        return matmul(call(Where(), m, constant(q, 0.0), p), v)

    before = graph_of(formula, Q, K, V, TensorType((3, 5), BOOL))
    assert RecogniseAttention()(before) == before


def test_without_heads() -> None:
    before = graph_of(PLAIN[0], f32("b", 3, 4), f32("b", 5, 4), f32("b", 5, 6))
    after = RecogniseAttention()(before)
    assert op_names(after) == ["Reshape"] * 3 + ["Attention", "Reshape"]
    assert_same_meaning(before, after)


@pytest.mark.parametrize(
    ("formula", "types"),
    rows(
        (lambda q, k, v: matmul(call(Softmax(2), matmul(q, turned(k))), v), (Q, K, V)),
        (PLAIN[0], (Q, f32("b", 1, 5, 4), V)),
        (PLAIN[0], (f32(3, 4), f32(5, 4), f32(5, 6))),
    ),
    ids=["softmax over queries", "broadcast keys", "rank 2"],
)
def test_not_attention(formula: Formula, types: tuple[TensorType, ...]) -> None:
    before = graph_of(formula, *types)
    assert RecogniseAttention()(before) == before


def test_weights_that_are_read_elsewhere_stay() -> None:
    def formula(q: Value, k: Value, v: Value) -> Value:
        p = softmax(matmul(q, turned(k)))
        return matmul(p, v) + matmul(p, v * 2.0)

    before = graph_of(formula, Q, K, V)
    assert RecogniseAttention()(before) == before


@pytest.mark.parametrize(("offset", "number"), [(0, -np.inf), (2, -np.inf), (2, -3.4e38)])
def test_causal_masks(offset: int, number: float) -> None:
    def formula(q: Value, k: Value, v: Value) -> Value:
        mask = np.triu(np.full((1, 1, 3, 5), number), offset + 1)
        return matmul(softmax(matmul(q, turned(k)) * 0.5 + constant(q, mask)), v)

    before = graph_of(formula, Q, K, V)
    after = RecogniseAttention()(before)
    assert [n.op for n in after.nodes] == [Attention(0.5, causal=True, offset=offset)]
    assert_same_meaning(before, after)


@pytest.mark.parametrize(("dtype", "number"), [(F16, -np.inf), (F64, -1e300)])
def test_causal_masks_of_any_range(dtype: DType, number: float) -> None:
    """Without a warning of a number that a type does not have."""

    def formula(q: Value, k: Value, v: Value) -> Value:
        mask = np.triu(np.full((1, 1, 3, 5), number), 1)
        return matmul(softmax(matmul(q, turned(k)) + constant(q, mask)), v)

    types = (TensorType(t.shape, dtype) for t in (Q, K, V))
    after = RecogniseAttention()(graph_of(formula, *types))
    assert [n.op for n in after.nodes] == [Attention(1.0, causal=True, offset=0)]


def test_masks_that_are_not_causal() -> None:
    hidden = np.full((3, 5), -np.inf)
    for mask in (
        np.tril(hidden),
        np.triu(np.ones((3, 5)), 1),
        np.triu(hidden, 0),
        np.zeros((3, 5)),
    ):

        def formula(q: Value, k: Value, v: Value, mask: np.ndarray = mask) -> Value:
            return matmul(softmax(matmul(q, turned(k)) + constant(q, mask)), v)

        (node,) = RecogniseAttention()(graph_of(formula, Q, K, V)).nodes
        assert node.op == Attention(1.0)
        assert len(node.inputs) == (4 if mask.any() else 3)
