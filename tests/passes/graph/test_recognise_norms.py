"""Every way exporters spell LayerNorm, RMSNorm and Softmax; and what is none of them."""

from __future__ import annotations

import pytest

from modelcc.ops.arithmetic import Value
from modelcc.ops.attention import LogSoftmax, Softmax
from modelcc.ops.elementwise import Exp, Log, Pow, Reciprocal, Rsqrt, Sqrt
from modelcc.ops.norm import LayerNorm, RMSNorm
from modelcc.ops.reduce import ReduceLogSumExp, ReduceMax, ReduceMean, ReduceSum
from modelcc.passes.graph.canonicalise import Canonicalise
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.recognise_layer_norm import RecogniseLayerNorm
from modelcc.passes.graph.recognise_rms_norm import RecogniseRmsNorm
from modelcc.passes.graph.recognise_softmax import RecogniseSoftmax
from modelcc.passes.graph.simplify_algebra import SimplifyAlgebra
from tests.passes.graph.examples import assert_same_meaning
from tests.passes.graph.formulas import (
    Formula,
    Unary,
    call,
    constant,
    f32,
    formulas,
    graph_of,
    op_names,
    weights,
)

X = f32(2, "n", 8)
EPSILON = 1e-5


def mean(x: Value) -> Value:
    return call(ReduceMean((2,), True), x)


def root(x: Value) -> Value:
    return call(Sqrt(), x + EPSILON)


def square(x: Value) -> Value:
    return call(Pow(), x, constant(x, 2.0))


def inverse_root(x: Value) -> Value:
    return call(Pow(), x + EPSILON, constant(x, -0.5))


def deviation(x: Value) -> Value:
    return x - mean(x)


NORMALISED: list[Unary] = [
    lambda d: d / root(mean(square(d))),
    lambda d: d / root(mean(d * d)),
    lambda d: d * call(Reciprocal(), root(mean(square(d)))),
    lambda d: call(Rsqrt(), mean(square(d)) + EPSILON) * d,
    lambda d: d * inverse_root(mean(square(d))),
    lambda d: d / call(Pow(), mean(d * d) + EPSILON, constant(d, 0.5)),
    lambda d: d * (1.0 / root(mean(square(d)))),
]


@pytest.mark.parametrize("normalised", NORMALISED)
def test_layer_norm(normalised: Unary) -> None:
    before = graph_of(lambda x: normalised(deviation(x)), X)
    after = RecogniseLayerNorm()(before)
    assert [n.op for n in after.nodes] == [LayerNorm(2, EPSILON)]
    assert_same_meaning(before, after)


def test_layer_norm_with_parameters_in_any_order() -> None:
    def formula(x: Value) -> Value:
        y = NORMALISED[0](deviation(x))
        return weights(x, 1, 1, 8, seed=1) + weights(x, 8) * y

    before = graph_of(formula, X)
    after = RecogniseLayerNorm()(before)
    assert op_names(after) == ["LayerNorm"]
    assert [c.type.shape for c in after.constants.values()] == [(8,), (8,)]
    assert_same_meaning(before, after)


def test_layer_norm_with_two_deviations_after_cse() -> None:
    before = graph_of(lambda x: deviation(x) / root(mean(square(deviation(x)))), X)
    assert op_names(RecogniseLayerNorm()(CommonSubexpressions()(before))) == ["LayerNorm"]


def test_layer_norm_with_means_as_sums() -> None:
    def average(x: Value) -> Value:
        return call(ReduceSum((2,), True), x) * 0.125

    def formula(x: Value) -> Value:
        d = x - average(x)
        return d / root(average(d * d))

    before = graph_of(formula, X)
    after = RecogniseLayerNorm()(Canonicalise()(before))
    assert op_names(after) == ["LayerNorm"]
    assert_same_meaning(before, after)


@pytest.mark.parametrize(
    "formula",
    formulas(
        lambda x: deviation(x) / root(mean(square(x))),
        lambda x: deviation(x) / root(call(ReduceMean((1,), True), square(deviation(x)))),
        lambda x: (x - call(ReduceMean((1,), True), x)) / root(mean(x)),
    ),
)
def test_not_layer_norm(formula: Formula) -> None:
    before = graph_of(formula, f32(2, 4, 8))
    assert "LayerNorm" not in op_names(RecogniseLayerNorm()(before))


def test_scale_of_another_shape_stays() -> None:
    before = graph_of(lambda x: NORMALISED[0](deviation(x)) * weights(x, 4, 1), f32(2, 4, 8))
    after = RecogniseLayerNorm()(before)
    assert op_names(after) == ["LayerNorm", "Mul"]
    assert_same_meaning(before, after)


@pytest.mark.parametrize("normalised", NORMALISED)
@pytest.mark.parametrize("simplified", [False, True])
def test_rms_norm(normalised: Unary, simplified: bool) -> None:
    before = graph_of(lambda x: weights(x, 8) * normalised(x), X)
    graph = SimplifyAlgebra()(Canonicalise()(before)) if simplified else before
    after = RecogniseRmsNorm()(graph)
    assert [n.op for n in after.nodes] == [RMSNorm(2, EPSILON)]
    assert_same_meaning(before, after)


def test_rms_norm_of_a_sum_is_no_layer_norm() -> None:
    before = graph_of(lambda x, y: NORMALISED[3](x + y), X, X)
    after = RecogniseRmsNorm()(RecogniseLayerNorm()(before))
    assert op_names(after) == ["Add", "RMSNorm"]
    assert_same_meaning(before, after)


def highest(x: Value) -> Value:
    return call(ReduceMax((2,), True), x)


def total(x: Value) -> Value:
    return call(ReduceSum((2,), True), x)


def exp(x: Value) -> Value:
    return call(Exp(), x)


@pytest.mark.parametrize(
    "formula",
    formulas(
        lambda x: exp(x) / total(exp(x)),
        lambda x: exp(x - highest(x)) / total(exp(x - highest(x))),
        lambda x: call(Reciprocal(), total(exp(x))) * exp(x),
    ),
)
def test_softmax(formula: Formula) -> None:
    before = graph_of(formula, X)
    after = RecogniseSoftmax()(CommonSubexpressions()(before))
    assert [n.op for n in after.nodes] == [Softmax(2)]
    assert_same_meaning(before, after)


@pytest.mark.parametrize(
    "formula",
    formulas(
        lambda x: call(Log(), exp(x) / total(exp(x))),
        lambda x: x - call(ReduceLogSumExp((2,), True), x),
    ),
)
def test_log_softmax(formula: Formula) -> None:
    before = graph_of(formula, X)
    after = RecogniseSoftmax()(CommonSubexpressions()(before))
    assert [n.op for n in after.nodes] == [LogSoftmax(2)]
    assert_same_meaning(before, after)


def test_not_softmax() -> None:
    before = graph_of(lambda x, y: exp(x) / total(exp(y)), X, X)
    assert RecogniseSoftmax()(before) is before
