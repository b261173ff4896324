"""Tree ensembles from ONNX attributes, in the form of operator sets 1 to 3 and of 5."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.ml.forest import LEAF, MODES, Comparisons, comparisons
from modelcc.frontends.onnx.ml.forest_leaves import LeafWeights
from modelcc.frontends.onnx.ml.forest_order import ForestError, Nodes, missing
from modelcc.frontends.onnx.ml.node_names import NodeNames
from modelcc.frontends.onnx.number_lists import Codes
from modelcc.ir.types import Array, DType

_MODES = (*MODES, "MEMBER")
_MEMBER = len(MODES)


class Ensemble(NamedTuple):
    """All trees: their nodes, the leaf weights, and the roots."""

    nodes: Nodes
    weights: LeafWeights
    roots: Array


def numbers(call: Call, name: str) -> Array:
    """Attribute ``name`` or, of higher precision, ``<name>_as_tensor``."""
    if call.attrs.has(f"{name}_as_tensor"):
        return call.attrs.tensor(f"{name}_as_tensor").reshape(-1)
    return call.attrs.float_array(name)


def _modes(found: Codes) -> Array:
    known = {f"BRANCH_{mode}": code for code, mode in enumerate(MODES)} | {"LEAF": LEAF}
    unknown = [text for text in found.texts if text not in known]
    if unknown:
        raise ForestError(f"there is no node mode {unknown[0]!r}")
    return np.array([known[text] for text in found.texts], np.uint8)[found.codes]


def flat_nodes(call: Call, prefix: str, dtype: DType) -> Ensemble:
    """Nodes and roots in the form of operator sets 1 to 3; ``prefix`` is that of leaf-weight
    attributes."""
    attrs = call.attrs
    trees, ids = attrs.integer_array("nodes_treeids"), attrs.integer_array("nodes_nodeids")
    if not len(trees):
        raise ForestError("there are no nodes")
    modes = _modes(attrs.codes("nodes_modes"))
    tracks = attrs.integer_array("nodes_missing_value_tracks_true", len(trees))
    true, false = (attrs.integer_array(f"nodes_{side}nodeids") for side in ("true", "false"))
    feature, value = attrs.integer_array("nodes_featureids"), numbers(call, "nodes_values")
    _require_equal_lengths(trees, ids, modes, tracks, true, false, feature, value)
    names = NodeNames(trees, ids)
    found = comparisons(modes, value, tracks, dtype)
    left, right = _sides(found, true, false)
    leaf = modes == LEAF
    nodes = Nodes(leaf, feature, found.key, found.equals, found.missing, names.of_own_trees(left),
                  names.of_own_trees(right), trees, left, right)  # fmt: skip
    owners = [attrs.integer_array(f"{prefix}_{part}") for part in ("treeids", "nodeids", "ids")]
    weight = numbers(call, f"{prefix}_weights")
    _require_equal_lengths(*owners, weight)
    weights = LeafWeights(names.find(*owners[:2]), owners[2], weight)
    child = np.zeros(len(leaf), bool)
    for side in (nodes.left, nodes.right):
        child[side[~leaf & (side >= 0)]] = True
    return Ensemble(nodes, weights, names.roots(child))


def _sides(found: Comparisons, true: Array, false: Array) -> tuple[Array, Array]:
    """Left and right children from those for true and for false."""
    if not found.swaps.any():
        return true, false
    return np.where(found.swaps, false, true), np.where(found.swaps, true, false)


def _require_equal_lengths(*columns: Array) -> None:
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        raise ForestError(f"attributes have {lengths[0]} and {lengths[1]} items")


def separate_nodes(call: Call, dtype: DType) -> Ensemble:
    """Nodes in the form of operator set 5: inner ones, then those expanded from sets, then
    leaves."""
    attrs = call.attrs
    modes = attrs.tensor("nodes_modes").reshape(-1)
    for code in np.unique(modes).tolist():
        call.choice(dict(enumerate(_MODES)).get(code, str(code)), _MODES, "node mode")
    tracks = attrs.integer_array("nodes_missing_value_tracks_true", len(modes))
    feature, value = attrs.integer_array("nodes_featureids"), attrs.tensor("nodes_splits")
    names = [attrs.integer_array(f"nodes_{side}nodeids") for side in ("true", "false")]
    leaves = [attrs.integer_array(f"nodes_{side}leafs") for side in ("true", "false")]
    _require_equal_lengths(modes, tracks, feature, value.reshape(-1), *names, *leaves)
    row, value, following = _chains(call, modes, value.reshape(-1))
    targets, weight = attrs.integer_array("leaf_targetids"), attrs.tensor("leaf_weights")
    _require_equal_lengths(targets, weight.reshape(-1))
    first_leaf, count = len(value), len(targets)
    true, false = (
        _children(name, leaf, len(modes), first_leaf, count)[row]
        for name, leaf in zip(names, leaves, strict=True)
    )
    false = np.where(following, following, false)
    kinds = np.where(modes == _MEMBER, modes.dtype.type(MODES.index("EQ")), modes)[row]
    compared = comparisons(kinds, value, tracks[row], dtype)
    left, right = _sides(compared, true, false)
    left_names, right_names = _sides(compared, *(side[row] for side in names))
    columns = (feature[row], compared.key, compared.equals, compared.missing,
               left, right, np.zeros(first_leaf, np.int8), left_names, right_names)  # fmt: skip
    longer = (np.concatenate([column, np.zeros(count, column.dtype)]) for column in columns)
    nodes = Nodes(np.arange(first_leaf + count) >= first_leaf, *longer)
    owners = np.arange(first_leaf, first_leaf + count, dtype=np.int32)
    weights = LeafWeights(owners, targets, weight.reshape(-1))
    roots = attrs.integer_array("tree_roots")
    for root in roots[(roots < 0) | (roots >= len(modes))]:
        missing(0, root)
    return Ensemble(nodes, weights, roots)


def _children(names: Array, leaf: Array, inner: int, first_leaf: int, leaves: int) -> Array:
    """The nodes with these numbers among inner nodes or leaves, -1 if nonexistent."""
    is_leaf = leaf.astype(bool)
    known = (names >= 0) & (names < np.where(is_leaf, leaves, inner))
    place = names.astype(np.int32)
    place[is_leaf] += first_leaf
    place[~known] = -1
    return place


def _chains(call: Call, modes: Array, value: Array) -> tuple[Array | slice, Array, Array]:
    """The source node of each row, the value that it compares with, and the next row of its chain.

    A node that tests set membership is a chain of rows: its first row is among those of the nodes,
    the others are appended after them (next 0: end of chain).  Without sets, rows are nodes.
    """
    members = np.flatnonzero(modes == _MEMBER)
    if not members.size:
        return slice(None), value, np.zeros(len(modes), np.int32)
    values, starts, lengths = _members(call)
    if len(starts) < len(members):
        raise ForestError(f"there are {len(starts)} sets of values for {len(members)} nodes")
    starts, more = starts[: len(members)], lengths[: len(members)] - 1
    begins = len(modes) + np.cumsum(more) - more
    within: Array = np.arange(int(more.sum())) - np.repeat(np.cumsum(more) - more, more)
    value = value.astype(np.result_type(value, values)) if len(values) else value.copy()
    value[members] = values[starts]
    following = np.zeros(len(modes) + len(within), np.int64)
    following[members] = np.where(more > 0, begins, 0)
    last = np.equal(within, np.repeat(more, more) - 1)
    following[len(modes) :] = np.where(last, 0, len(modes) + np.arange(len(within)) + 1)
    row = np.concatenate([np.arange(len(modes)), np.repeat(members, more)])
    return row, np.concatenate([value, values[np.repeat(starts, more) + 1 + within]]), following


def _members(call: Call) -> tuple[Array, Array, Array]:
    """The sets of values of set-membership nodes, in order: all values, starts, and sizes of sets.

    NaN ends a set; an empty set is {NaN}, which equals nothing.
    """
    if not call.attrs.has("membership_values"):
        return np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64)
    values = call.attrs.tensor("membership_values").reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])
    ends = np.append(ends, len(values))
    if starts[-1] == len(values):
        starts, ends = starts[:-1], ends[:-1]
    return values, starts, np.maximum(ends - starts, 1)
