"""Decision trees of ai.onnx.ml as the tables of :class:`~modelcc.ops.forest.Forest`.

Ensembles may have millions of nodes: they are stored as arrays, with an item per node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.frontends.onnx.ml.forest_leaves import LeafWeights, Leaves, leaves
from modelcc.frontends.onnx.ml.forest_order import ForestError, Nodes, parents_first
from modelcc.frontends.onnx.ml.forest_places import places_of
from modelcc.ir.types import F32, I32, I64, Array, DType
from modelcc.ops.feature_keys import FIXED, GREATEST, LEAST, key_type, keys_of
from modelcc.ops.forest import Aggregate
from modelcc.ops.forest_walk import EIGHT

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
"""Comparisons of a node, in the order of ``modes`` codes."""

LEAF = len(MODES)
"""The mode of a leaf."""

_SWAPS = np.isin(range(LEAF + 1), [MODES.index(mode) for mode in ("GT", "GTE", "NEQ")])
_BELOW = np.isin(range(LEAF + 1), [MODES.index(mode) for mode in ("LT", "GTE")])
_EQUALS = np.isin(range(LEAF + 1), [MODES.index(mode) for mode in ("EQ", "NEQ")])
_UNORDERED = np.isin(range(LEAF + 1), [MODES.index("NEQ")])

_FEW = 1 << 20
"""Number of features up to which a table with an item per feature is small."""


@dataclass(frozen=True)
class Comparisons:
    """Per node: the ``key`` compared with, by ``equals`` or as an upper bound, and whether
    ``missing`` values go left; ``swaps``: the left child is the one for false."""

    key: Array
    equals: Array
    missing: Array
    swaps: Array


def comparisons(modes: Array, value: Array, tracks: Array, dtype: DType) -> Comparisons:
    """The comparisons of nodes of ONNX's ``modes``.

    NaN goes to the child for true only if the node ``tracks`` missing values.
    """
    swaps = _SWAPS[modes]
    threshold = value.astype(dtype.numpy, copy=False)
    # Only NaN, ordered as the minimum, is below the key of NaN, and nothing else equals it.
    key = np.where(
        np.isnan(threshold), np.iinfo(key_type(dtype).numpy).min, keys_of(threshold) - _BELOW[modes]
    )
    # NaN differs from every value, even if the node tracks missing values.
    missing = (tracks.astype(bool) != swaps) & ~_UNORDERED[modes]
    return Comparisons(key, _EQUALS[modes], missing, swaps)


@dataclass(frozen=True)
class Tables:
    """Operands and attributes of the ops FeatureKeys and Forest."""

    features: Array
    missing: Array
    roots: Array
    nodes: Array
    leaves: Leaves
    bits: int
    equals: bool

    @property
    def key(self) -> DType:
        """The dtype of keys."""
        return I64 if self.nodes.dtype == np.int64 else I32


def tables(
    nodes: Nodes,
    weights: LeafWeights,
    roots: Array,
    targets: int,
    dtype: DType,
    aggregate: Aggregate,
) -> Tables:
    """The tables of the trees at ``roots``.

    :class:`ForestError` if the nodes are not trees, or a leaf has a weight for an invalid target.
    """
    if not len(roots):
        raise ForestError("there are no trees")
    nodes, owners, roots = parents_first(nodes, weights.node, roots)
    weights = LeafWeights(owners, weights.target, weights.weight)
    places = places_of(nodes, roots)
    ends = leaves(places, nodes, weights, roots, targets, dtype, aggregate)
    features, missing, column = _columns(nodes, places.inner)
    flags = nodes.equals[places.inner]
    equals = bool(flags.any())
    width = (len(features) - 1).bit_length()
    bits = width + equals
    wide = dtype != F32 or int(places.distance.max(initial=0)) >> (31 - bits) > 0
    table = np.zeros((len(places.node), 2), np.int64 if wide else np.int32)
    table[:, 0] = ends.key
    own = places.place[places.inner]
    table[own, 0] = nodes.key[places.inner]
    # Detours compare column 0, and so all go left.
    table[:, 1] = places.distance
    table[:, 1] <<= bits
    table[own, 1] |= column
    if equals:
        table[own, 1] |= flags.astype(table.dtype) << width
    none = int(places.empty)
    padding = np.full(-len(roots) % EIGHT, none)
    starts = np.concatenate([places.place[roots], padding]).astype(np.int32)
    return Tables(features, missing, starts, table, ends, bits, equals)


def _columns(nodes: Nodes, inner: Array) -> tuple[Array, Array, Array]:
    """Features that are compared, the key of missing values of each, and the column of each node.

    Features whose missing values go both left and right have two columns.
    """
    feature = nodes.feature[inner]
    if feature.size and (feature.min() < 0 or feature.max() > np.iinfo(np.int32).max):
        worst = feature.min() if feature.min() < 0 else feature.max()
        raise ForestError(f"a node compares feature {worst}")
    code = feature.astype(np.int64 if feature.max(initial=0) > _FEW else np.int32)
    code *= 2
    code += nodes.missing[inner]
    if code.max(initial=0) <= 2 * _FEW + 1:
        present = np.zeros(int(code.max(initial=0)) + 1, bool)
        present[code] = True
        found = np.flatnonzero(present)
        number = np.cumsum(present, dtype=np.int32)
        column = number[code]
    else:
        found, column = np.unique(code, return_inverse=True)
        column += 1
    found = found if code.size else found[:0]
    missing = np.where(found & 1, LEAST, GREATEST)
    return (
        np.concatenate([np.zeros(1, np.int32), found >> 1]).astype(np.int32),
        np.concatenate([[FIXED], missing]).astype(np.uint8),
        column,
    )
