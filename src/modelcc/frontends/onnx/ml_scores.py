"""What classifiers and regressors of ai.onnx.ml do with their scores.

Where the standard is silent (two classes and one score), this follows onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from modelcc.frontends.onnx.call import Call
from modelcc.ir.types import F32, I64, DType
from modelcc.ops import elementwise as ew
from modelcc.ops import reduce as rd
from modelcc.ops.attention import Softmax
from modelcc.ops.gather import Gather
from modelcc.ops.shape import Concat, Reshape

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def features(call: Call, kept: Sequence[DType]) -> str:
    """Operand 0 as rows, in f32 unless its dtype is one of ``kept``."""
    x = call.input(0)
    if call.dtype() not in kept:
        x = call.emit(ew.Cast(F32), x)
    return x if call.rank() == 2 else call.emit(Reshape((1, *call.shape())), x)


def transform_of(call: Call) -> str:
    """Attribute ``post_transform``: a name, or its number in later operator sets."""
    if call.op_type == "TreeEnsemble":
        number = call.attrs.integer("post_transform", 0)
        return call.choice(dict(enumerate(TRANSFORMS)).get(number, str(number)), TRANSFORMS,
                           "post_transform")  # fmt: skip
    return call.option("post_transform", TRANSFORMS, "NONE")


def number(call: Call, like: str, value: float) -> str:
    """A scalar of the dtype of ``like``."""
    return call.constant(value, call.type_of(like).dtype)


def transformed(call: Call, scores: str, transform: str) -> str:
    """Scores of shape [n, k] after ``transform``; a single score only knows PROBIT."""
    single = call.type_of(scores).shape[1] == 1
    match transform:
        case "PROBIT":
            return probit(call, scores)
        case "LOGISTIC" if not single:
            return call.emit(ew.Sigmoid(), scores)
        case "SOFTMAX" if not single:
            return call.emit(Softmax(1), scores)
        case "SOFTMAX_ZERO" if not single:
            return _softmax_of_others(call, scores)
        case _:
            return scores


def _softmax_of_others(call: Call, scores: str) -> str:
    """Softmax of the scores that are not 0; those stay 0."""
    zero = number(call, scores, 0.0)
    peak = call.emit(rd.ReduceMax((1,), True), scores)
    powers = call.emit(ew.Exp(), call.emit(ew.Sub(), scores, peak))
    kept = call.emit(ew.Where(), call.emit(ew.Equal(), scores, zero), zero, powers)
    total = call.emit(rd.ReduceSum((1,), True), kept)
    some = call.emit(ew.Where(), call.emit(ew.Equal(), total, zero), number(call, scores, 1.0),
                     total)  # fmt: skip
    return call.emit(ew.Div(), kept, some)


def probit(call: Call, x: str) -> str:
    """``sqrt(2) erfinv(2 x - 1)`` by Winitzki's approximation, as onnxruntime has it.

    Winitzki, "A handy approximation for the error function and its inverse", 2008.
    """

    def value(v: float) -> str:
        return number(call, x, v)

    y = call.emit(ew.Sub(), call.emit(ew.Mul(), x, value(2.0)), value(1.0))
    one = value(1.0)
    inside = call.emit(ew.Mul(), call.emit(ew.Sub(), one, y), call.emit(ew.Add(), one, y))
    log = call.emit(ew.Log(), inside)
    half = call.emit(ew.Mul(), log, value(0.5))
    v = call.emit(ew.Add(), half, value(2 / (3.14159 * 0.147)))
    square = call.emit(ew.Sub(), call.emit(ew.Mul(), v, v), call.emit(ew.Div(), log, value(0.147)))
    root = call.emit(ew.Sqrt(), call.emit(ew.Sub(), call.emit(ew.Sqrt(), square), v))
    sign = call.emit(ew.Where(), call.emit(ew.Less(), y, value(0.0)), value(-1.0), one)
    return call.emit(ew.Mul(), call.emit(ew.Mul(), root, sign), value(math.sqrt(2)))


def labels_of(call: Call, ints: str, strings: str) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """The class labels: integers or texts."""
    if call.attrs.has(strings) and call.attrs.texts(strings):
        return np.array(call.attrs.texts(strings), object)
    return np.array(call.attrs.integers(ints, ()), np.int64)


def chosen(call: Call, labels: Sequence[object] | np.ndarray[tuple[int], np.dtype[np.generic]],
           index: str) -> str:  # fmt: skip
    """The label of each class ``index``."""
    return call.emit(Gather(0), call.constant(np.asarray(labels)), index)


def best(call: Call, scores: str) -> str:
    """The class with the highest score, the first of several."""
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
    match transform:
        case "PROBIT":
            first = call.emit(ew.Neg(), probit(call, score))
            return call.emit(Concat(1), first, probit(call, score))
        case "LOGISTIC":
            both = call.emit(Concat(1), call.emit(ew.Neg(), score), score)
            return call.emit(ew.Sigmoid(), both)
        case _:
            one = number(call, score, 1.0)
            negative = call.emit(ew.Neg(), score)
            first = call.emit(ew.Sub(), one, score) if complement else negative
            return call.emit(Concat(1), first, score)
