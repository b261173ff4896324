"""Lookup of decision tree nodes by the model's identifiers: a tree, and a number in it."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.onnx.ml.forest_order import missing
from modelcc.ir.types import Array


class NodeNames:
    """Nodes by tree and number in it; the last one of duplicates.

    If the nodes of each tree are contiguous and numbered in order, numbers are offsets; otherwise
    identifiers are sorted.
    """

    def __init__(self, trees: Array, ids: Array) -> None:
        self._trees, self._ids = trees, ids
        changes = np.flatnonzero(trees[1:] != trees[:-1]) + 1
        self._starts = np.concatenate([np.zeros(1, np.int64), changes])
        self._lengths = np.diff(self._starts, append=len(trees))
        runs = trees[self._starts]
        self._order = np.argsort(runs, kind="stable")
        self._sorted = runs[self._order]
        apart = (self._sorted[1:] != self._sorted[:-1]).all()
        self._in_order = bool(apart) and np.array_equal(ids, self._within())
        if not self._in_order:
            self._sort()

    def _within(self) -> Array:
        place = np.arange(len(self._trees), dtype=np.int32)
        place -= np.repeat(self._starts.astype(np.int32), self._lengths)
        return place

    def _sort(self) -> None:
        self._known_trees, self._known_ids = np.unique(self._trees), np.unique(self._ids)
        keys = self._key(self._trees, self._ids)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def of_own_trees(self, ids: Array) -> Array:
        """For each node the one with number ``ids`` in its tree, -1 if nonexistent."""
        if not self._in_order:
            return self.find(self._trees, ids)
        return self._in_run(np.repeat(np.arange(len(self._starts)), self._lengths), ids)

    def find(self, trees: Array, ids: Array) -> Array:
        """The nodes with these identifiers, -1 if nonexistent."""
        keys = trees if self._in_order else self._key(trees, ids)
        place = np.searchsorted(self._sorted, keys.astype(self._sorted.dtype), side="right") - 1
        found = (place >= 0) & (self._sorted[place] == keys)
        place = self._order[place]
        if self._in_order:
            return np.where(found, self._in_run(place, ids), np.int32(-1))
        return np.where(found & (keys >= 0), place, -1).astype(np.int32)

    def _in_run(self, run: Array, ids: Array) -> Array:
        inside = (ids >= 0) & (ids < self._lengths[run])
        return np.where(inside, self._starts[run] + ids, -1).astype(np.int32)

    def _key(self, trees: Array, ids: Array) -> Array:
        tree, id = (
            np.minimum(np.searchsorted(known, values), len(known) - 1)
            for known, values in ((self._known_trees, trees), (self._known_ids, ids))
        )
        known = (self._known_trees[tree] == trees) & (self._known_ids[id] == ids)
        return np.where(known, tree * len(self._known_ids) + id, -1)

    def roots(self, child: Array) -> Array:
        """The first node of each tree that is not a ``child``, in the order of the trees."""
        named = self.of_own_trees(self._ids) if not self._in_order else None
        free = np.flatnonzero(~child if named is None else ~child[named])
        trees, first = np.unique(self._trees[self._starts], return_index=True)
        rooted, root = np.unique(self._trees[free], return_index=True)
        alone = np.setdiff1d(trees, rooted)
        if alone.size:
            missing(int(alone[0]), -1)
        found = free[root[np.argsort(first)]]
        return (found if named is None else named[found]).astype(np.int32)
