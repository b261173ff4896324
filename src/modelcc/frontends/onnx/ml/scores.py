"""Postprocessing of scores by classifiers and regressors of ai.onnx.ml.

Where the standard is silent (two classes and one score), this follows onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from modelcc.frontends.onnx.call import Call
from modelcc.ir.types import F32, I64, Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops import reduce as rd
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Softmax
from modelcc.ops.comparison import where
from modelcc.ops.gather import Gather
from modelcc.ops.shape import Concat, Reshape

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def features(call: Call, kept: Sequence[DType]) -> str:
    """Operand 0 as rows, converted to f32 unless its dtype is in ``kept``."""
    x = call.input(0)
    if call.dtype() not in kept:
        x = call.emit(ew.Cast(F32), x)
    return x if call.rank() == 2 else call.emit(Reshape((1, *call.shape())), x)


def transform_of(call: Call) -> str:
    """Attribute ``post_transform``: a name, or its code in later operator sets."""
    if call.op_type == "TreeEnsemble":
        number = call.attrs.integer("post_transform", 0)
        return call.choice(dict(enumerate(TRANSFORMS)).get(number, str(number)), TRANSFORMS,
                           "post_transform")  # fmt: skip
    return call.option("post_transform", TRANSFORMS, "NONE")


def number(call: Call, like: str, value: float) -> str:
    """A scalar of the dtype of ``like``."""
    return call.constant(value, call.type_of(like).dtype)


def transformed(call: Call, scores: str, transform: str) -> str:
    """Scores of shape [n, k] after ``transform``; for a single score only PROBIT has an effect."""
    single = call.type_of(scores).shape[1] == 1
    match transform:
        case "PROBIT":
            return probit(call, scores)
        case "LOGISTIC" if not single:
            return call.emit(ew.Sigmoid(), scores)
        case "SOFTMAX" if not single:
            return call.emit(Softmax(1), scores)
        case "SOFTMAX_ZERO" if not single:
            return _softmax_of_others(Value(call, scores)).name
        case _:
            return scores


def _softmax_of_others(scores: Value) -> Value:
    """Softmax of the nonzero scores; zeros stay 0."""
    powers = of(ew.Exp(), scores - of(rd.ReduceMax((1,), True), scores))
    kept = where(of(ew.Equal(), scores, scores.lift(0.0)), 0.0, powers)
    total = of(rd.ReduceSum((1,), True), kept)
    return kept / where(of(ew.Equal(), total, total.lift(0.0)), 1.0, total)


def probit(call: Call, name: str) -> str:
    """``sqrt(2) erfinv(2 x - 1)`` by Winitzki's approximation, as in onnxruntime.

    Winitzki, "A handy approximation for the error function and its inverse", 2008.
    """
    y = Value(call, name) * 2.0 - 1.0
    log = of(ew.Log(), (1.0 - y) * (1.0 + y))
    v = log * 0.5 + 2 / (3.14159 * 0.147)
    root = of(ew.Sqrt(), of(ew.Sqrt(), v * v - log / 0.147) - v)
    sign = where(of(ew.Less(), y, y.lift(0.0)), y.lift(-1.0), 1.0)
    return (root * sign * math.sqrt(2)).name


def labels_of(call: Call, ints: str, strings: str) -> Array:
    """The class labels: integers or strings."""
    if call.attrs.has(strings) and call.attrs.texts(strings):
        return np.array(call.attrs.texts(strings), object)
    return np.array(call.attrs.integers(ints, ()), np.int64)


def chosen(call: Call, labels: Array, index: str) -> str:
    """The label of each class ``index``."""
    return call.emit(Gather(0), call.constant(labels), index)


def best(call: Call, scores: str) -> str:
    """The class with the highest score, the first of ties."""
    return call.emit(rd.ArgMax(1, False, False), scores)


def above(call: Call, score: str, bound: float) -> str:
    """0 or 1: whether the only score, [n, 1], is above ``bound``."""
    rows = call.type_of(score).shape[0]
    flat = call.emit(Reshape((rows,)), score)
    return call.emit(ew.Cast(I64), call.emit(ew.Greater(), flat, number(call, score, bound)))


def two_scores(call: Call, score: str, transform: str, complement: bool) -> str:
    """Scores of both classes from that of the second one, [n, 1].

    The first one's is the ``complement`` to 1 or the negative.
    """
    x = Value(call, score)
    match transform:
        case "PROBIT":
            x = Value(call, probit(call, score))
            return of(Concat(1), -x, x).name
        case "LOGISTIC":
            return of(ew.Sigmoid(), of(Concat(1), -x, x)).name
        case _:
            return of(Concat(1), 1.0 - x if complement else -x, x).name
