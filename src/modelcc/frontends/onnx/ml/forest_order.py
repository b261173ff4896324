"""Topological order of the nodes of decision trees: parents before children."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NoReturn

import numpy as np

from modelcc.ir.types import Array


class ForestError(ValueError):
    """Nodes that do not form a forest."""


@dataclass(frozen=True)
class Nodes:
    """Nodes of all trees: keys of ``feature`` up to ``key`` go left (``equals``: only that one).

    ``missing``: NaN goes left.  ``left`` and ``right`` are nodes, -1 if nonexistent; ``trees`` and
    names are the model's names of nodes, for messages.
    """

    leaf: Array
    feature: Array
    key: Array
    equals: Array
    missing: Array
    left: Array
    right: Array
    trees: Array
    left_names: Array
    right_names: Array


def missing(tree: int, name: int) -> NoReturn:
    """Rejects a forest for a missing node."""
    raise ForestError(f"tree {tree} has no node {name}, but a node refers to it")


def parents_first(nodes: Nodes, owners: Array, roots: Array) -> tuple[Nodes, Array, Array]:
    """``nodes`` in topological order; ``owners`` and ``roots`` renumbered accordingly.

    Unreachable nodes may be omitted: they are -1.  :class:`ForestError` for missing nodes, and for
    cycles.
    """
    own = np.arange(len(nodes.leaf), dtype=np.int32)
    if ((nodes.leaf | (nodes.left > own)) & (nodes.leaf | (nodes.right > own))).all():
        return nodes, owners, roots
    order = _order(nodes, roots)
    place = np.full(len(own) + 1, -1, np.int32)  # the last one is for the node -1
    place[order] = np.arange(len(order), dtype=np.int32)
    inner = ~nodes.leaf[order]
    left, right = (np.where(inner, place[side[order]], -1) for side in (nodes.left, nodes.right))
    columns = {f.name: getattr(nodes, f.name)[order] for f in fields(nodes)}
    arranged = Nodes(**{**columns, "left": left, "right": right})
    return arranged, place[owners], place[roots]


def _order(nodes: Nodes, roots: Array) -> Array:
    """Nodes tree by tree, and within each by the longest distance from its root."""
    tree = _reached(nodes, roots)
    distance = np.full(len(tree), -1)
    count = 0
    for step, level in enumerate(_freed(nodes, tree >= 0)):
        distance[level] = step
        count += len(level)
    if count < np.count_nonzero(tree >= 0):
        raise ForestError("its nodes form a cycle")
    found = np.flatnonzero(tree >= 0)
    return found[np.lexsort((found, distance[found], tree[found]))]


def _reached(nodes: Nodes, roots: Array) -> Array:
    """The first tree that each node is reachable in, -1 for none."""
    tree = np.full(len(nodes.leaf), -1)
    tree[roots[::-1]] = np.arange(len(roots))[::-1]
    level = np.unique(roots)
    while level.size:
        inner = level[~nodes.leaf[level]]
        for side, names in ((nodes.left, nodes.left_names), (nodes.right, nodes.right_names)):
            for node in inner[side[inner] < 0][:1]:
                missing(int(nodes.trees[node]), int(names[node]))
        children = np.concatenate([nodes.left[inner], nodes.right[inner]])
        origin = np.concatenate([tree[inner]] * 2)
        new = tree[children] < 0
        children, origin = children[new], origin[new]
        tree[children] = origin
        level = np.unique(children)
    return tree


def _freed(nodes: Nodes, known: Array) -> Iterator[Array]:
    """Nodes without predecessors among the remaining ones, repeatedly (Kahn); the nodes of cycles
    are never yielded."""
    inner = known & ~nodes.leaf
    ways = np.zeros(len(known), np.int64)
    for side in (nodes.left, nodes.right):
        np.add.at(ways, side[inner], 1)
    free = np.flatnonzero(known & (ways == 0))
    while free.size:
        yield free
        parents = free[~nodes.leaf[free]]
        children = np.concatenate([nodes.left[parents], nodes.right[parents]])
        np.subtract.at(ways, children, 1)
        free = np.unique(children[ways[children] == 0])
