"""Leaf weights of decision trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.frontends.onnx.ml.forest_order import ForestError, Nodes
from modelcc.frontends.onnx.ml.forest_places import Places
from modelcc.ir.types import Array, DType
from modelcc.ops.feature_keys import key_type
from modelcc.ops.forest import NEUTRAL, Aggregate
from modelcc.ops.forest_walk import EIGHT


@dataclass(frozen=True)
class LeafWeights:
    """Weights that leaves add to targets, in the order of the model."""

    node: Array
    target: Array
    weight: Array


@dataclass(frozen=True)
class Leaves:
    """``key`` of each slot, and operands of :class:`~modelcc.ops.forest.Forest`."""

    key: Array
    target: Array
    first: Array | None = None
    weights: Array | None = None


@dataclass(frozen=True)
class _Items:
    """Weights of the leaves that have slots: at most one per target of a slot."""

    place: Array
    target: Array
    weight: Array


def leaves(
    places: Places,
    nodes: Nodes,
    weights: LeafWeights,
    roots: Array,
    targets: int,
    dtype: DType,
    aggregate: Aggregate,
) -> Leaves:
    """Weights stored in the leaves' slots if trees have a single target each; otherwise lists."""
    items = _items(places, nodes, weights, targets, dtype)
    trees = len(roots) + -len(roots) % EIGHT
    target = _targets_of_trees(places, items, targets)
    if target is None:
        return _listed(places, nodes, items)
    found = np.full(len(places.node), NEUTRAL[aggregate], dtype.numpy)
    found[items.place] = items.weight
    of_roots = np.zeros(trees, np.int32)
    of_roots[: len(roots)] = target[places.tree(places.place[roots])]
    return Leaves(found.view(key_type(dtype).numpy), of_roots)


def _items(
    places: Places, nodes: Nodes, weights: LeafWeights, targets: int, dtype: DType
) -> _Items:
    place = np.where(weights.node >= 0, places.place[weights.node], -1)
    known = (place >= 0) & nodes.leaf[weights.node]
    target, weight = weights.target, weights.weight.astype(dtype.numpy, copy=False)
    if not known.all():
        place, target, weight = place[known], target[known], weight[known]
    wrong = target[(target < 0) | (target >= targets)]
    if wrong.size:
        raise ForestError(f"a leaf has a weight for target {wrong[0]} of {targets}")
    seen = np.zeros(len(places.node), bool)
    seen[place] = True
    if np.count_nonzero(seen) == len(place):
        return _Items(place, target, weight)
    key = place.astype(np.int64) * targets + target
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(key)), bool), key[1:] != key[:-1]]))
    total = np.add.reduceat(weight[order], starts) if len(key) else weight
    place, target = np.divmod(key[starts], targets)
    return _Items(place.astype(np.int32), target, total)


def _targets_of_trees(places: Places, items: _Items, targets: int) -> Array | None:
    """The only target of each tree; None if one has several, or shares nodes with another."""
    target = np.zeros(len(places.heads), np.int32)
    if targets == 1:
        return target
    at = places.place[places.inner]
    if (places.tree(at) != places.tree(at + places.distance[at])).any():
        return None
    tree = places.tree(items.place)
    target[tree] = items.target
    return target if (target[tree] == items.target).all() else None


def _listed(places: Places, nodes: Nodes, items: _Items) -> Leaves:
    """Keys are leaf numbers; the last one, without weights, is for slots without a node."""
    own = np.flatnonzero((places.node >= 0) & nodes.leaf[places.node])
    own = own[places.distance[own] == 0]
    number = np.full(len(places.node), len(own), np.int32)
    number[own] = np.arange(len(own), dtype=np.int32)
    order = np.argsort(items.place, kind="stable")
    first = np.searchsorted(items.place[order], own)
    ends = np.array([len(order)] * 2)
    return Leaves(
        number,
        items.target[order].astype(np.int32),
        np.concatenate([first, ends]).astype(np.int32),
        items.weight[order],
    )
