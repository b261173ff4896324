"""Handlers of linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.ml.pairwise_coupling import coupled
from modelcc.frontends.onnx.ml.scores import (
    above,
    best,
    chosen,
    features,
    labels_of,
    transform_of,
    transformed,
    two_scores,
)
from modelcc.ir.types import F32, Array
from modelcc.ops import elementwise as ew
from modelcc.ops import reduce as rd
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above as greater
from modelcc.ops.comparison import where
from modelcc.ops.matmul import MatMul
from modelcc.ops.views import reshaped


def _numbers(call: Call, name: str) -> Array:
    return np.array(call.attrs.numbers(name, ()), np.float32)


def _linear(call: Call, targets: int) -> str:
    x = features(call, (F32,))
    coefficients = _numbers(call, "coefficients")
    if targets < 1 or coefficients.size % targets:
        call.fail(f"{coefficients.size} coefficients do not make {targets} targets")
    weights = np.ascontiguousarray(coefficients.reshape(targets, -1).T)
    scores = call.emit(MatMul(), x, call.constant(weights))
    intercepts = _numbers(call, "intercepts")
    return call.emit(ew.Add(), scores, call.constant(intercepts)) if intercepts.size else scores


def linear_regressor(call: Call) -> str:
    scores = _linear(call, call.attrs.integer("targets", 1))
    return transformed(call, scores, transform_of(call))


def linear_classifier(call: Call) -> tuple[str, str]:
    labels = labels_of(call, "classlabels_ints", "classlabels_strings")
    count = max(len(_numbers(call, "intercepts")), 1)
    scores = _linear(call, count)
    transform = transform_of(call)
    if count == 1 and len(labels) == 2:
        index = above(call, scores, 0.0)
        return chosen(call, labels, index), two_scores(call, scores, transform, True)
    label = chosen(call, labels, best(call, scores))
    return label, transformed(call, scores, transform)


def _kernel(call: Call, x: str, vectors: Array) -> str:
    """The kernel function of every row and every support vector, [n, vectors]."""
    gamma, coef0, degree = (*call.attrs.numbers("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    kind = call.attrs.text("kernel_type", "LINEAR")
    if kind == "RBF":
        return _radial(call, x, vectors, gamma)
    product = of(MatMul(), Value(call, x), call.literal(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product.name
    scaled = product * gamma + coef0
    if kind == "POLY":
        return of(ew.Pow(), scaled, scaled.lift(degree)).name
    call.choice(kind, ("SIGMOID",), "kernel_type")
    return of(ew.Tanh(), scaled).name


def _radial(call: Call, x: str, vectors: Array, gamma: float) -> str:
    """``exp(-gamma |x - v|^2)``; expanded, it would suffer cancellation for close vectors far from
    zero."""
    rows = reshaped(Value(call, x), call.type_of(x).shape[0], 1, vectors.shape[1])
    away = rows - call.literal(vectors[np.newaxis])
    distance = of(rd.ReduceSumSquare((2,), False), away)
    return of(ew.Exp(), distance * -gamma).name


def svm_regressor(call: Call) -> str:
    x, coefficients = features(call, (F32,)), _numbers(call, "coefficients")
    count = call.attrs.integer("n_supports", 0)
    if count:
        vectors = _numbers(call, "support_vectors").reshape(count, -1)
        scores = call.emit(MatMul(), _kernel(call, x, vectors),
                           call.constant(coefficients.reshape(-1, 1)))  # fmt: skip
    else:
        scores = _kernel(call, x, coefficients.reshape(1, -1))
    scores = call.emit(ew.Add(), scores, call.constant(_numbers(call, "rho")))
    if call.attrs.flag("one_class"):
        x = Value(call, scores)
        return where(greater(x, 0.0), x.lift(1.0), -1.0).name
    return transformed(call, scores, transform_of(call))


def svm_classifier(call: Call) -> tuple[str, str]:
    """One machine per pair of classes, or one set of coefficients per class."""
    labels = labels_of(call, "classlabels_ints", "classlabels_strings")
    counts = call.attrs.integers("vectors_per_class", ())
    x, transform = features(call, (F32,)), transform_of(call)
    if not sum(counts):
        return _by_coefficients(call, x, labels, transform)
    votes = _decisions(call, x, counts, len(labels))
    if call.attrs.has("prob_a") and call.attrs.numbers("prob_a"):
        return _with_probabilities(call, votes, labels)
    if len(labels) == 2:
        index = above(call, votes, 0.0)
        # The first class wins if the decision is positive.
        other = (1 - Value(call, index)).name
        return chosen(call, labels, other), two_scores(call, votes, transform, False)
    counted = _counted_votes(call, votes, len(labels))
    label = chosen(call, labels, best(call, counted))
    return label, transformed(call, votes, transform)


def _by_coefficients(call: Call, x: str, labels: Array, transform: str) -> tuple[str, str]:
    coefficients = _numbers(call, "coefficients").reshape(len(labels), -1)
    scores = _kernel(call, x, coefficients)
    scores = call.emit(ew.Add(), scores, call.constant(_numbers(call, "rho")[:1]))
    return chosen(call, labels, best(call, scores)), transformed(call, scores, transform)


def _decisions(call: Call, x: str, counts: tuple[int, ...], classes: int) -> str:
    """Decision values of all pairs of classes, [n, pairs]."""
    total = sum(counts)
    vectors = _numbers(call, "support_vectors").reshape(total, -1)
    coefficients = _numbers(call, "coefficients").reshape(classes - 1, total)
    starts = np.cumsum((0, *counts))
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((total, len(pairs)), np.float32)
    for k, (i, j) in enumerate(pairs):
        first, second = (slice(starts[c], starts[c + 1]) for c in (i, j))
        weights[first, k] = coefficients[j - 1, first]
        weights[second, k] = coefficients[i, second]
    values = call.emit(MatMul(), _kernel(call, x, vectors), call.constant(weights))
    return call.emit(ew.Add(), values, call.constant(_numbers(call, "rho")))


def _counted_votes(call: Call, votes: str, classes: int) -> str:
    """The number of pairs each class wins, [n, classes]."""
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    won, lost = (np.zeros((len(pairs), classes), np.float32) for _ in range(2))
    for k, (i, j) in enumerate(pairs):
        won[k, i] = lost[k, j] = 1
    first = of(ew.Cast(F32), greater(Value(call, votes), 0.0))
    ahead = of(MatMul(), first, call.literal(won))
    return (ahead + of(MatMul(), 1.0 - first, call.literal(lost))).name


def _with_probabilities(call: Call, votes: str, labels: Array) -> tuple[str, str]:
    """Platt's probabilities of pairs, ``1 / (1 + exp(a f + b))`` for the first, coupled.

    The label is the class that wins most pairs, which need not be the most likely one.
    """
    a, b = (call.literal(_numbers(call, name)) for name in ("prob_a", "prob_b"))
    exponent = Value(call, votes) * a + b
    first = of(ew.Sigmoid(), of(ew.Neg(), exponent))
    least = 1e-7  # libsvm's bound
    likely = of(ew.Min(), of(ew.Max(), first, first.lift(least)), first.lift(1 - least))
    winner = best(call, _counted_votes(call, votes, len(labels)))
    return chosen(call, labels, winner), coupled(call, likely, len(labels)).name


LINEAR_MODELS = table(
    LinearRegressor=linear_regressor,
    LinearClassifier=linear_classifier,
    SVMRegressor=svm_regressor,
    SVMClassifier=svm_classifier,
)
