"""Memory layout of decision trees: the children of a node are adjacent slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.frontends.onnx.ml.forest_order import Nodes
from modelcc.ir.types import Array


@dataclass(frozen=True)
class Places:
    """``node`` [slot] is -1 if empty, ``place`` [node] its last slot.

    Trees are stored one after the other, from ``heads`` on.  ``inner``: the nodes with children
    that have slots; ``distance`` [slot]: the offset of its children, 0 for leaves.  A slot of a
    node that has a later one is a *detour*, and its distance is that to the other.  ``empty`` is an
    empty slot.
    """

    node: Array
    place: Array
    inner: Array
    distance: Array
    heads: Array
    empty: int

    def tree(self, places: Array) -> Array:
        """The trees that these slots belong to."""
        return np.searchsorted(self.heads, places, side="right") - 1


def places_of(nodes: Nodes, roots: Array) -> Places:
    """Two slots for each node with children and each root, in the order of the nodes."""
    heads = np.zeros(len(nodes.leaf), bool)
    heads[roots] = True
    count = np.cumsum(~nodes.leaf, dtype=np.int32)
    count += np.cumsum(heads, dtype=np.int32)
    inner = np.flatnonzero(~nodes.leaf).astype(np.int32)
    pair = 2 * (count[inner] - 1)
    node = np.full(2 * int(count[-1]), -1, np.int32)
    node[pair], node[pair + 1] = nodes.left[inner], nodes.right[inner]
    starts = np.flatnonzero(heads)
    first = 2 * (count[starts] - 1 - ~nodes.leaf[starts])
    node[first] = starts
    place = np.full(len(nodes.leaf), -1, np.int32)
    used = np.flatnonzero(node >= 0).astype(np.int32)
    place[node[used]] = used  # the last one of duplicates
    last = place[node[used]]
    distance = np.zeros(len(node), np.int32)
    distance[used] = last - used
    placed = place[inner] >= 0
    inner, pair = inner[placed], pair[placed]
    distance[place[inner]] = pair - place[inner]
    return Places(node, place, inner, distance, first, int(first[0]) + 1)
