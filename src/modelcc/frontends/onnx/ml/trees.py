"""Handlers of tree ensembles of ai.onnx.ml."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.ml.ensembles import Ensemble, flat_nodes, numbers, separate_nodes
from modelcc.frontends.onnx.ml.forest import Tables, tables
from modelcc.frontends.onnx.ml.forest_leaves import Leaves
from modelcc.frontends.onnx.ml.forest_order import ForestError
from modelcc.frontends.onnx.ml.scores import (
    above,
    best,
    chosen,
    features,
    labels_of,
    number,
    transform_of,
    transformed,
    two_scores,
)
from modelcc.ir.types import F32, F64, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.feature_keys import FeatureKeys
from modelcc.ops.forest import Aggregate, Forest
from modelcc.ops.shape import Concat, Full
from modelcc.ops.slicing import Slice

_NAMES = ("AVERAGE", "SUM", "MIN", "MAX")
_AGGREGATES: MappingProxyType[str, Aggregate] = MappingProxyType(
    {"AVERAGE": "sum", "SUM": "sum", "MIN": "min", "MAX": "max"}
)


def _forest(call: Call, forest: Ensemble, targets: int, aggregate: str) -> str:
    """Scores [n, targets], before base values."""
    x = features(call, (F32, F64))
    how = _AGGREGATES[aggregate]
    try:
        found = tables(*forest, targets, call.type_of(x).dtype, how)
    except ForestError as error:
        call.fail(str(error))
    op = Forest(targets, how, found.bits, found.equals, call.type_of(x).dtype)
    scores = call.emit(op, _keys(call, x, found), *map(call.constant, (found.roots, found.nodes)),
                       *_leaves(call, found.leaves))  # fmt: skip
    if how != "sum":  # targets without leaf weights
        missing = call.emit(ew.IsInf(), scores)
        scores = call.emit(ew.Where(), missing, number(call, scores, 0.0), scores)
    if aggregate == "AVERAGE":
        scores = call.emit(ew.Div(), scores, number(call, scores, float(len(forest.roots))))
    return scores


def _keys(call: Call, x: str, found: Tables) -> str:
    """The keys of features; empty if all trees are single leaves."""
    if len(found.features) == 1:
        least = -(1 << (found.key.bits - 1))
        return call.emit(Full((call.type_of(x).shape[0], 1), least, found.key))
    columns = map(call.constant, (found.features, found.missing))
    return call.emit(FeatureKeys(found.key), x, *columns)


def _leaves(call: Call, found: Leaves) -> tuple[str, str, str]:
    parts = (found.target, found.first, found.weights)
    first, second, third = ("" if part is None else call.constant(part) for part in parts)
    return first, second, third


def _based(call: Call, scores: str) -> str:
    """Plus attribute ``base_values``."""
    base = numbers(call, "base_values").astype(call.type_of(scores).dtype.numpy)
    return call.emit(ew.Add(), scores, call.constant(base)) if base.size else scores


def _result(call: Call, scores: str, dtype: DType) -> str:
    return scores if call.type_of(scores).dtype == dtype else call.emit(ew.Cast(dtype), scores)


def regressor(call: Call) -> str:
    dtype = F64 if call.dtype() == F64 else F32
    forest = flat_nodes(call, "target", dtype)
    aggregate = call.choice(call.attrs.text("aggregate_function", "SUM"), _NAMES, "aggregate")
    targets = call.attrs.integer("n_targets", 1)
    scores = _based(call, _forest(call, forest, targets, aggregate))
    return _result(call, transformed(call, scores, transform_of(call)), F32)


def classifier(call: Call) -> tuple[str, str]:
    """Labels and scores.  With two classes and weights for one, the other score is its
    complement."""
    dtype = F64 if call.dtype() == F64 else F32
    forest = flat_nodes(call, "class", dtype)
    labels = labels_of(call, "classlabels_int64s", "classlabels_strings")
    transform = transform_of(call)
    used = set(np.unique(forest.weights.target).tolist())
    if len(labels) == 2 and used == {0}:
        return _one_sided(call, forest, transform)
    if len(labels) == 2 and used == {1} and len(numbers(call, "base_values")):
        unsupported("base values of two classes of which one has weights")
    scores = _based(call, _forest(call, forest, len(labels), "SUM"))
    index = best(call, scores)
    if len(labels) == 2 and used == {1}:
        index = _second_above(call, scores)
    results = transformed(call, scores, transform)
    return chosen(call, labels, index), _result(call, results, F32)


def _positive(call: Call) -> bool:
    return bool((numbers(call, "class_weights") >= 0).all())


def _one_sided(call: Call, forest: Ensemble, transform: str) -> tuple[str, str]:
    if len(numbers(call, "base_values")) > 1:
        unsupported("base values of two classes of which one has weights")
    score = _based(call, _forest(call, forest, 1, "SUM"))
    labels = labels_of(call, "classlabels_int64s", "classlabels_strings")
    index = above(call, score, 0.5 if _positive(call) else 0.0)
    if transform == "PROBIT":
        zero = call.emit(Full(call.type_of(score).shape, 0.0, call.type_of(score).dtype))
        both = call.emit(Concat(1), transformed(call, score, transform), zero)
    else:
        both = two_scores(call, score, transform, _positive(call))
    return chosen(call, labels, index), _result(call, both, F32)


def _second_above(call: Call, scores: str) -> str:
    rows = call.type_of(scores).shape[0]
    second = call.emit(Slice((0, 1), (rows, 1), (1, 1)), scores)
    return above(call, second, 0.5 if _positive(call) else 0.0)


def ensemble(call: Call) -> str:
    """The form of operator set 5: separate inner nodes and leaves, set membership."""
    attrs = call.attrs
    count = attrs.integer("aggregate_function", 1)
    aggregate = call.choice(dict(enumerate(_NAMES)).get(count, "?"), _NAMES, "aggregate_function")
    targets = attrs.integer("n_targets", 1)
    scores = _forest(
        call, separate_nodes(call, F64 if call.dtype() == F64 else F32), targets, aggregate
    )
    return transformed(call, scores, transform_of(call))


TREES = table(
    TreeEnsemble=ensemble, TreeEnsembleClassifier=classifier, TreeEnsembleRegressor=regressor
)
