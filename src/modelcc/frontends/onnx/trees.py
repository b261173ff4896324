"""Handlers of tree ensembles of ai.onnx.ml."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.forest import Branch, ForestError, Leaf, NodeId, branch, tables
from modelcc.frontends.onnx.ml_scores import (
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
from modelcc.ops.forest import Aggregate, Forest
from modelcc.ops.shape import Concat, Full
from modelcc.ops.slicing import Slice

Nodes: TypeAlias = dict[NodeId, Branch | Leaf]
Weights: TypeAlias = dict[NodeId, list[tuple[int, float]]]

_NAMES = ("AVERAGE", "SUM", "MIN", "MAX")
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_AGGREGATES: MappingProxyType[str, Aggregate] = MappingProxyType(
    {"AVERAGE": "sum", "SUM": "sum", "MIN": "min", "MAX": "max"}
)
_INNER, _LEAVES = -1, -2
"""Trees of the names of nodes and leaves, where these are numbered apart."""

_EMPTY = MappingProxyType({"sum": 0.0, "min": np.inf, "max": -np.inf})


def _numbers(call: Call, name: str) -> tuple[float, ...]:
    """Attribute ``name`` or, of more precision, ``<name>_as_tensor``."""
    if call.attrs.has(f"{name}_as_tensor"):
        return tuple(call.attrs.tensor(f"{name}_as_tensor").reshape(-1).tolist())
    return call.attrs.numbers(name, ())


def _flat_nodes(call: Call, prefix: str, dtype: DType) -> tuple[Nodes, list[NodeId]]:
    """Nodes and roots in the form of operator sets 1 to 3; ``prefix`` is that of leaf weights."""
    attrs = call.attrs
    trees, ids = attrs.integers("nodes_treeids"), attrs.integers("nodes_nodeids")
    names = list(zip(trees, ids, strict=True))
    leaves: Weights = defaultdict(list)
    owners = zip(attrs.integers(f"{prefix}_treeids"), attrs.integers(f"{prefix}_nodeids"),
                 strict=True)  # fmt: skip
    targets = attrs.integers(f"{prefix}_ids")
    for name, target, weight in zip(owners, targets, _numbers(call, f"{prefix}_weights"),
                                    strict=True):  # fmt: skip
        leaves[name].append((target, weight))
    tracks = attrs.integers("nodes_missing_value_tracks_true", ()) or (0,) * len(names)
    nodes: Nodes = {}
    children: set[NodeId] = set()
    columns = (
        *(names, attrs.texts("nodes_modes"), attrs.integers("nodes_featureids")),
        *(_numbers(call, "nodes_values"), attrs.integers("nodes_truenodeids")),
        *(attrs.integers("nodes_falsenodeids"), tracks),
    )
    for name, mode, feature, value, true, false, track in zip(*columns, strict=True):
        if mode == "LEAF":
            nodes[name] = Leaf(tuple(leaves[name]))
            continue
        below = ((name[0], true), (name[0], false))
        children.update(below)
        nodes[name] = branch(mode, feature, value, *below, bool(track), dtype)
    return nodes, _roots(names, children)


def _roots(names: Sequence[NodeId], children: Collection[NodeId]) -> list[NodeId]:
    """The first node of each tree that is nobody's child; node -1 where there is none."""
    roots: dict[int, NodeId] = {}
    for name in names:
        if name not in children:
            roots.setdefault(name[0], name)
    return [roots.get(tree, (tree, -1)) for tree in dict.fromkeys(tree for tree, _ in names)]


def _forest(call: Call, nodes: Nodes, roots: list[NodeId], targets: int, aggregate: str) -> str:
    """Scores [n, targets], before base values."""
    x = features(call, (F32, F64))
    how = _AGGREGATES[aggregate]
    try:
        found = tables(nodes, roots, targets, call.type_of(x).dtype, _EMPTY[how])
    except ForestError as error:
        call.fail(str(error))
    op = Forest(found.groups, found.missing_left, how)
    parts = (found.roots, found.feature, found.threshold, found.child, found.weights)
    flags = "" if found.flags is None else call.constant(found.flags)
    scores = call.emit(op, x, *(call.constant(p) for p in parts), flags)
    if how != "sum":  # targets of which no leaf has a weight
        missing = call.emit(ew.IsInf(), scores)
        scores = call.emit(ew.Where(), missing, number(call, scores, 0.0), scores)
    if aggregate == "AVERAGE":
        scores = call.emit(ew.Div(), scores, number(call, scores, float(len(roots))))
    return scores


def _based(call: Call, scores: str) -> str:
    """With attribute ``base_values`` added."""
    base = np.array(_numbers(call, "base_values"), call.type_of(scores).dtype.numpy)
    return call.emit(ew.Add(), scores, call.constant(base)) if base.size else scores


def _result(call: Call, scores: str, dtype: DType) -> str:
    return scores if call.type_of(scores).dtype == dtype else call.emit(ew.Cast(dtype), scores)


def regressor(call: Call) -> str:
    dtype = F64 if call.dtype() == F64 else F32
    nodes, roots = _flat_nodes(call, "target", dtype)
    aggregate = call.choice(call.attrs.text("aggregate_function", "SUM"), _NAMES, "aggregate")
    targets = call.attrs.integer("n_targets", 1)
    scores = _based(call, _forest(call, nodes, roots, targets, aggregate))
    return _result(call, transformed(call, scores, transform_of(call)), F32)


def classifier(call: Call) -> tuple[str, str]:
    """Labels and scores.  With two classes and weights for one, the other is its complement."""
    dtype = F64 if call.dtype() == F64 else F32
    nodes, roots = _flat_nodes(call, "class", dtype)
    labels = labels_of(call, "classlabels_int64s", "classlabels_strings")
    transform = transform_of(call)
    used = set(call.attrs.integers("class_ids"))
    if len(labels) == 2 and used == {0}:
        return _one_sided(call, nodes, roots, transform)
    if len(labels) == 2 and used == {1} and _numbers(call, "base_values"):
        unsupported("base values of two classes of which one has weights")
    scores = _based(call, _forest(call, nodes, roots, len(labels), "SUM"))
    index = best(call, scores)
    if len(labels) == 2 and used == {1}:
        index = _second_above(call, scores)
    results = transformed(call, scores, transform)
    return chosen(call, labels, index), _result(call, results, F32)


def _positive(call: Call) -> bool:
    return all(weight >= 0 for weight in _numbers(call, "class_weights"))


def _one_sided(call: Call, nodes: Nodes, roots: list[NodeId], transform: str) -> tuple[str, str]:
    if len(_numbers(call, "base_values")) > 1:
        unsupported("base values of two classes of which one has weights")
    score = _based(call, _forest(call, nodes, roots, 1, "SUM"))
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
    """The form of operator set 5: inner nodes and leaves apart, sets of values."""
    attrs, dtype = call.attrs, call.dtype()
    nodes: Nodes = {}
    for i, pair in enumerate(zip(attrs.integers("leaf_targetids"),
                                 attrs.tensor("leaf_weights").reshape(-1).tolist(),
                                 strict=True)):  # fmt: skip
        nodes[_LEAVES, i] = Leaf((pair,))
    members = _members(call)
    tracks = attrs.integers("nodes_missing_value_tracks_true", ())
    columns = (
        *(attrs.tensor("nodes_modes").reshape(-1).tolist(), attrs.integers("nodes_featureids")),
        *(attrs.tensor("nodes_splits").reshape(-1).tolist(),),
        *(attrs.integers("nodes_truenodeids"), attrs.integers("nodes_trueleafs")),
        *(attrs.integers("nodes_falsenodeids"), attrs.integers("nodes_falseleafs")),
    )
    for i, row in enumerate(zip(*columns, strict=True)):
        mode, feature, value, true, true_leaf, false, false_leaf = row
        left = (_LEAVES if true_leaf else _INNER, true)
        right = (_LEAVES if false_leaf else _INNER, false)
        track = bool(tracks[i]) if tracks else False
        name = call.choice(dict(enumerate(_MODES)).get(mode, str(mode)), _MODES, "node mode")
        values = next(members, ()) if name == "MEMBER" else (value,)
        kind = "BRANCH_EQ" if name == "MEMBER" else f"BRANCH_{name}"
        for k, one in enumerate(values):  # a set is a chain of comparisons
            last = k + 1 == len(values)
            here = (_INNER, i) if k == 0 else (-3 - i, k)
            otherwise = right if last else (-3 - i, k + 1)
            nodes[here] = branch(kind, feature, one, left, otherwise, track, dtype)
    roots = [(_INNER, root) for root in attrs.integers("tree_roots")]
    aggregate = call.choice(
        dict(enumerate(_NAMES)).get(attrs.integer("aggregate_function", 1), "?"), _NAMES,
        "aggregate_function",
    )  # fmt: skip
    scores = _forest(call, nodes, roots, attrs.integer("n_targets", 1), aggregate)
    return transformed(call, scores, transform_of(call))


def _members(call: Call) -> Iterator[tuple[float, ...]]:
    """The sets of values: of each node in turn, each ended by NaN."""
    if not call.attrs.has("membership_values"):
        return
    current: list[float] = []
    for value in call.attrs.tensor("membership_values").reshape(-1).tolist():
        if math.isnan(value):
            yield tuple(current) or (value,)
            current = []
        else:
            current.append(value)
    if current:
        yield tuple(current)


TREES: Handlers = MappingProxyType(
    {
        "TreeEnsemble": ensemble,
        "TreeEnsembleClassifier": classifier,
        "TreeEnsembleRegressor": regressor,
    }
)
