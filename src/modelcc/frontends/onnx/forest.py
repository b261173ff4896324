"""Decision trees of ai.onnx.ml as the node tables of :class:`~modelcc.ops.forest.Forest`.

Ensembles have millions of nodes: here they are arrays, with an item for each node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np

from modelcc.ir.types import Array, DType
from modelcc.ops.forest import EQUALS, NAN_LEFT

Groups: TypeAlias = tuple[tuple[int, int], ...]

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
"""Comparisons of a node, as ``modes`` number them."""

LEAF = len(MODES)
"""The mode of a leaf."""

WORTH_A_GROUP = 32
"""Steps in trees; a kernel of its own starts in about the time of as many."""


class ForestError(ValueError):
    """Nodes that are no forest."""


@dataclass(frozen=True)
class Nodes:
    """Nodes of all trees: left if ``x[feature] <= threshold`` (EQUALS: ``==``); see ``flags``.

    ``left`` and ``right`` are nodes, -1 for those that there are none of; ``names`` and ``trees``
    are what the model calls nodes, for messages.
    """

    leaf: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    flags: Array
    trees: Array
    left_names: Array
    right_names: Array


@dataclass(frozen=True)
class LeafWeights:
    """What leaves add to targets, in the order of the model."""

    node: Array
    target: Array
    weight: Array


_SWAPS = np.isin(range(LEAF + 1), [MODES.index(mode) for mode in ("GT", "GTE", "NEQ")])
_BELOW = np.isin(range(LEAF + 1), [MODES.index(mode) for mode in ("LT", "GTE")])
_EQUALS = np.isin(range(LEAF + 1), [MODES.index(mode) for mode in ("EQ", "NEQ")])
_UNORDERED = np.isin(range(LEAF + 1), [MODES.index("NEQ")])


def comparisons(
    modes: Array, value: Array, tracks: Array, dtype: DType
) -> tuple[Array, Array, Array]:
    """Thresholds and flags of nodes of ONNX's ``modes``, and which have their children swapped.

    NaN goes to the child for true only if the node ``tracks`` missing values.
    """
    swaps = _SWAPS[modes]
    threshold = value.astype(dtype.numpy)
    below = np.nextafter(threshold, dtype.numpy.type(-np.inf))
    # NaN differs from every value, whatever the node tracks.
    nan_left = (tracks.astype(bool) != swaps) & ~_UNORDERED[modes]
    flags = np.where(_EQUALS[modes], EQUALS, 0) | np.where(nan_left, NAN_LEFT, 0)
    return np.where(_BELOW[modes], below, threshold), flags.astype(np.uint8), swaps


@dataclass(frozen=True)
class Tables:
    """Operands of :class:`~modelcc.ops.forest.Forest`; ``flags`` is None where none is set."""

    roots: Array
    feature: Array
    threshold: Array
    child: Array
    weights: Array
    flags: Array | None
    groups: Groups
    missing_left: bool


@dataclass(frozen=True)
class _Layout:
    """The nodes in their places, two by two: those of every tree level by level, roots first.

    ``child`` is the place of the first child.  A second way to a node is a *detour*: a place where
    all go left, to the place of the node.
    """

    node: Array
    tree: Array
    level: Array
    child: Array
    detour: Array


def _layout(nodes: Nodes, roots: Array) -> _Layout:
    """The layout of the trees at ``roots``; :class:`ForestError` if a node is missing."""
    seen = np.full(len(nodes.leaf), -1)
    level, trees, count = roots, np.arange(len(roots)), 0
    found: list[list[Array]] = [[] for _ in range(5)]
    while level.size:
        visits = count + np.arange(level.size)
        new = seen[level] < 0
        seen[level[new][::-1]] = visits[new][::-1]  # of several visits the first one stays
        first = seen[level] == visits
        count += level.size
        inner = first & ~nodes.leaf[level]
        child = np.where(first, 0, seen[level])
        child[inner] = count + 2 * np.arange(np.count_nonzero(inner))
        depth = np.full(level.size, len(found[0]))
        for column, part in zip(found, (level, trees, depth, child, ~first), strict=True):
            column.append(part)
        level, trees = _children(nodes, level[inner]), np.repeat(trees[inner], 2)
    return _by_tree(_Layout(*(np.concatenate(column) for column in found)), len(roots))


def _children(nodes: Nodes, inner: Array) -> Array:
    children = np.stack([nodes.left[inner], nodes.right[inner]], axis=1)
    if children.size and children.min() < 0:
        row, side = np.argwhere(children < 0)[0]
        node = inner[row]
        names = nodes.right_names if side else nodes.left_names
        missing(int(nodes.trees[node]), int(names[node]))
    return children.reshape(-1)


def missing(tree: int, name: int) -> NoReturn:
    """Refuse a forest for a node that it lacks."""
    raise ForestError(f"tree {tree} has no node {name}, but a node refers to it")


def _by_tree(found: _Layout, roots: int) -> _Layout:
    """The same with the nodes of each tree together: they were visited all level by level."""
    order = np.concatenate(
        [np.arange(roots), roots + np.argsort(found.tree[roots:], kind="stable")]
    )
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    parts = (found.node, found.tree, found.level, place[found.child], found.detour)
    return _Layout(*(part[order] for part in parts))


def _levels(found: _Layout, inner: Array, roots: int) -> Iterator[tuple[Array, Array]]:
    """Trees and places of the nodes at each distance from the roots, where there are detours."""
    _refuse_cycles(found, inner, roots)
    trees = places = np.arange(roots)
    while places.size:
        yield trees, places
        goes = inner[places] | found.detour[places]
        trees, places = trees[goes], places[goes]
        both = inner[places]
        pairs = np.concatenate(
            [
                trees * len(inner) + found.child[places],
                trees[both] * len(inner) + found.child[places[both]] + 1,
            ]
        )
        trees, places = np.divmod(np.unique(pairs), len(inner))


def _refuse_cycles(found: _Layout, inner: Array, roots: int) -> None:
    """Take nodes away that nothing leads to, until there are none: what is left is a cycle."""
    ways = np.zeros(len(inner), np.int64)
    np.add.at(ways, found.child[found.detour], 1)
    ways[found.child[inner]] += 1
    ways[found.child[inner] + 1] += 1
    free = np.flatnonzero(ways == 0)
    left = len(inner)
    while free.size:
        left -= free.size
        one = found.child[free[inner[free] | found.detour[free]]]
        targets = np.concatenate([one, found.child[free[inner[free]]] + 1])
        np.subtract.at(ways, targets, 1)
        free = np.unique(targets[ways[targets] == 0])
    if left:
        raise ForestError("its nodes form a cycle")


def _depths(found: _Layout, inner: Array, roots: int) -> tuple[Array, Array, Array]:
    """Trees, places and distances from the root of all ways to nodes."""
    if not found.detour.any():
        return found.tree, np.arange(len(inner)), found.level
    levels = list(_levels(found, inner, roots))
    distance = [np.full(len(places), level) for level, (_, places) in enumerate(levels)]
    trees, places = (np.concatenate(column) for column in zip(*levels, strict=True))
    return trees, places, np.concatenate(distance)


def grouped_depths(depths: Sequence[int]) -> Groups:
    """How many trees take how many steps, for falling ``depths``.

    A group of its own is only worth it where it saves more steps than starting it costs.
    """
    groups: list[tuple[int, int]] = []
    for depth in depths:
        if groups and groups[-1][1] == depth:
            groups[-1] = (groups[-1][0] + 1, depth)
        else:
            groups.append((1, depth))
    while len(groups) > 1:
        wasted = [count * (groups[i][1] - depth) for i, (count, depth) in enumerate(groups[1:])]
        least = min(range(len(wasted)), key=wasted.__getitem__)
        if wasted[least] >= WORTH_A_GROUP:
            break
        (count, depth), (more, _) = groups[least : least + 2]
        groups[least : least + 2] = [(count + more, depth)]
    return tuple(groups)


def tables(
    nodes: Nodes, weights: LeafWeights, roots: Array, targets: int, dtype: DType, empty: float
) -> Tables:
    """The tables of the trees at ``roots``; ``empty`` stands where a leaf has no weight.

    :class:`ForestError` if the nodes are no trees.
    """
    found = _layout(nodes, roots)
    leaf = nodes.leaf[found.node] & ~found.detour
    inner = ~leaf & ~found.detour
    order, groups, early = _grouped(found, leaf, inner, len(roots))
    size = len(found.node)
    # Early leaves follow themselves: a row each, and two for their copies.
    copies = size + 2 * np.arange(len(early))
    child = np.concatenate([found.child, np.repeat(copies, 2)])
    child[early] = copies
    own = np.where(inner, nodes.flags[found.node], NAN_LEFT * found.detour)
    flags = np.concatenate([own, np.zeros(2 * len(early), own.dtype)])
    feature = np.where(inner, nodes.feature[found.node], 0)
    threshold = np.where(inner, nodes.threshold[found.node], np.where(found.detour, np.inf, 0))
    node = np.concatenate([found.node, np.repeat(found.node[early], 2)])
    is_leaf = np.concatenate([leaf, np.ones(2 * len(early), bool)])
    common = _missing(found, nodes.flags[found.node[inner]])
    return Tables(
        order.astype(np.int32),
        _longer(feature, len(child)).astype(np.int32),
        _longer(threshold, len(child)).astype(dtype.numpy),
        child.astype(np.int32),
        _weights(weights, node, is_leaf, targets, dtype, empty),
        flags.astype(np.uint8) if common is None else None,
        groups,
        common == NAN_LEFT,
    )


def _longer(column: Array, size: int) -> Array:
    return np.concatenate([column, np.zeros(size - len(column), column.dtype)])


def _grouped(found: _Layout, leaf: Array, inner: Array, roots: int) -> tuple[Array, Groups, Array]:
    """The roots in groups of about the same depth; leaves at which some tree's descent is early."""
    trees, places, distance = _depths(found, inner, roots)
    depth = np.zeros(roots, np.int64)
    np.maximum.at(depth, trees, distance)
    order = np.argsort(-depth, kind="stable")
    groups = grouped_depths(depth[order].tolist())
    steps = np.empty(roots, np.int64)
    steps[order] = np.repeat([steps for _, steps in groups], [count for count, _ in groups])
    return order, groups, np.unique(places[leaf[places] & (distance < steps[trees])])


def _missing(found: _Layout, own: Array) -> int | None:
    """The flags that all inner nodes have, if that is no more than where NaN goes."""
    kinds = set(np.unique(own).tolist())
    if found.detour.any() and kinds != {NAN_LEFT}:
        return None
    return min(kinds, default=0) if kinds in (set[int](), {0}, {NAN_LEFT}) else None


def _weights(
    weights: LeafWeights, node: Array, leaf: Array, targets: int, dtype: DType, empty: float
) -> Array:
    """Weights [places, targets] for the node in each place."""
    order = np.argsort(weights.node, kind="stable")
    owner = weights.node[order]
    places = np.flatnonzero(leaf)
    first = np.searchsorted(owner, node[places])
    counts = np.searchsorted(owner, node[places], side="right") - first
    rows = np.repeat(places, counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    items = order[np.repeat(first, counts) + within]
    columns = weights.target[items]
    wrong = columns[(columns < 0) | (columns >= targets)]
    if wrong.size:
        raise ForestError(f"a leaf has a weight for target {wrong[0]} of {targets}")
    at = rows * targets + columns
    total = np.zeros(len(node) * targets, dtype.numpy)
    np.add.at(total, at, weights.weight[items].astype(dtype.numpy))
    if empty:
        present = np.zeros(len(total), bool)
        present[at] = True
        total[~present] = empty
    return total.reshape(-1, targets)
