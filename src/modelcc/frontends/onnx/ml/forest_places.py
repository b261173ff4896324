"""Where nodes of decision trees lie: the children of a node side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.frontends.onnx.ml.forest_order import Nodes
from modelcc.ir.types import Array


@dataclass(frozen=True)
class Places:
    """``node`` [place] is -1 where there is none, ``place`` [node] the last one that has it.

    Trees lie one after the other, from ``heads`` on.  ``inner``: the nodes with children that have
    places; ``distance`` [place]: how far away their children are, 0 for leaves.  A place of a node
    that has a later one is a *detour*, and its distance is that to the other.  ``empty`` is a place
    without a node.
    """

    node: Array
    place: Array
    inner: Array
    distance: Array
    heads: Array
    empty: int

    def tree(self, places: Array) -> Array:
        """Which tree's places these are among."""
        return np.searchsorted(self.heads, places, side="right") - 1


def places_of(nodes: Nodes, roots: Array) -> Places:
    """Two places for each node with children and each root, in the order of the nodes."""
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
    place[node[used]] = used  # of several the last one
    last = place[node[used]]
    distance = np.zeros(len(node), np.int32)
    distance[used] = last - used
    placed = place[inner] >= 0
    inner, pair = inner[placed], pair[placed]
    distance[place[inner]] = pair - place[inner]
    return Places(node, place, inner, distance, first, int(first[0]) + 1)
