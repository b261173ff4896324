"""Decision trees of ai.onnx.ml as the node tables of :class:`~modelcc.ops.forest.Forest`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from modelcc.ir.types import Array, DType
from modelcc.ops.forest import EQUALS, NAN_LEFT

NodeId: TypeAlias = tuple[int, int]
"""Tree and node; for nodes made here, a negative tree."""

Table = list[tuple[int, float, int, int]]
Groups: TypeAlias = tuple[tuple[int, int], ...]

WORTH_A_GROUP = 32
"""Steps in trees; a kernel of its own starts in about the time of as many."""


class ForestError(ValueError):
    """Nodes that are no forest."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Left if ``x[feature] <= threshold`` (``equals``: ``==``), or for NaN if ``nan_left``."""

    feature: int
    threshold: float
    left: NodeId
    right: NodeId
    equals: bool = False
    nan_left: bool = False


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a leaf adds to each target."""

    weights: tuple[tuple[int, float], ...]


Nodes: TypeAlias = Mapping[NodeId, Branch | Leaf]


def branch(
    mode: str, feature: int, value: float, true: NodeId, false: NodeId, tracks: bool, dtype: DType
) -> Branch:
    """The node of ONNX's ``mode``; NaN goes to ``true`` only if it ``tracks`` missing values."""
    match mode:
        case "BRANCH_LEQ":
            return Branch(feature, value, true, false, nan_left=tracks)
        case "BRANCH_LT":
            return Branch(feature, _below(value, dtype), true, false, nan_left=tracks)
        case "BRANCH_GT":
            return Branch(feature, value, false, true, nan_left=not tracks)
        case "BRANCH_GTE":
            return Branch(feature, _below(value, dtype), false, true, nan_left=not tracks)
        case "BRANCH_EQ":
            return Branch(feature, value, true, false, equals=True, nan_left=tracks)
        case "BRANCH_NEQ":
            # NaN differs from every value.
            return Branch(feature, value, false, true, equals=True)
        case _:
            raise ForestError(f"there is no node mode {mode!r}")


def _below(value: float, dtype: DType) -> float:
    return float(np.nextafter(dtype.numpy.type(value), dtype.numpy.type(-np.inf)))


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


@dataclass
class _Layout:
    """Nodes given places, two by two: those of every tree level by level."""

    nodes: Nodes
    places: dict[NodeId, int] = field(default_factory=dict[NodeId, int])
    rows: Table = field(default_factory=Table)
    leaves: dict[int, Leaf] = field(default_factory=dict[int, Leaf])
    detours: set[int] = field(default_factory=set[int])
    inner: set[int] = field(default_factory=set[int])

    def place(self, roots: Sequence[NodeId]) -> None:
        self.rows += [(0, 0.0, -1, 0)] * len(roots)
        for at, root in enumerate(roots):
            pending = [(at, root)]
            while pending:
                pending = [item for at, name in pending for item in self._put(at, name)]

    def _put(self, at: int, name: NodeId) -> Iterable[tuple[int, NodeId]]:
        """Fill the place; the children's places, still to be filled."""
        node = self.nodes.get(name)
        if node is None:
            raise ForestError(f"tree {name[0]} has no node {name[1]}, but a node refers to it")
        if name in self.places:  # a second way to it, by way of a node where all go left
            self.detours.add(at)
            self.rows[at] = (0, float("inf"), self.places[name], NAN_LEFT)
            return ()
        self.places[name] = at
        if isinstance(node, Leaf):
            self.leaves[at] = node
            return ()
        self.inner.add(at)
        children = len(self.rows)
        flags = (EQUALS if node.equals else 0) | (NAN_LEFT if node.nan_left else 0)
        self.rows[at] = (node.feature, node.threshold, children, flags)
        self.rows += [(0, 0.0, -1, 0)] * 2
        return ((children, node.left), (children + 1, node.right))

    def levels(self, root: int) -> list[set[int]]:
        """Places of a tree's nodes by their distance from the root."""
        level, levels = {root}, list[set[int]]()
        while level:
            if len(levels) > len(self.rows):
                raise ForestError("its nodes form a cycle")
            levels.append(level)
            inner = [at for at in level if self.rows[at][2] >= 0]
            first = {self.rows[at][2] for at in inner}
            level = first | {self.rows[at][2] + 1 for at in inner if at not in self.detours}
        return levels

    def finish(self, roots: int) -> tuple[list[int], Groups]:
        """Let early leaves follow themselves; the roots in groups of about the same depth."""
        levels = [self.levels(root) for root in range(roots)]
        order = sorted(range(roots), key=lambda root: -len(levels[root]))
        groups = grouped_depths([len(levels[root]) - 1 for root in order])
        depths = [depth for count, depth in groups for _ in range(count)]
        early = {
            at
            for root, depth in zip(order, depths, strict=True)
            for level in levels[root][:depth]
            for at in level & self.leaves.keys()
        }
        for at in sorted(early):
            copy = len(self.rows)
            self.rows[at] = (0, 0.0, copy, 0)
            self.rows += [(0, 0.0, copy, 0)] * 2
            self.leaves |= {copy: self.leaves[at], copy + 1: self.leaves[at]}
        return order, groups

    def missing(self) -> int | None:
        """The flags that all inner nodes have, if that is no more than where NaN goes."""
        own = {row[3] for at, row in enumerate(self.rows) if at in self.inner}
        if self.detours and own != {NAN_LEFT}:
            return None
        return min(own, default=0) if own in (set[int](), {0}, {NAN_LEFT}) else None


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
    nodes: Nodes, roots: Sequence[NodeId], targets: int, dtype: DType, empty: float
) -> Tables:
    """The tables of the trees at ``roots``; ``empty`` stands where a leaf has no weight.

    :class:`ForestError` if the nodes are no trees.
    """
    layout = _Layout(nodes)
    layout.place(roots)
    order, groups = layout.finish(len(roots))
    missing = layout.missing()
    weights = np.full((len(layout.rows), targets), empty, dtype.numpy)
    for at, leaf in layout.leaves.items():
        for target, weight in leaf.weights:
            if not 0 <= target < targets:
                raise ForestError(f"a leaf has a weight for target {target} of {targets}")
            known = weights[at, target]
            weights[at, target] = weight if known == empty else known + weight
    feature, threshold, child, flags = zip(*layout.rows, strict=True)
    return Tables(
        np.array(order, np.int32),
        np.array(feature, np.int32),
        np.array(threshold, dtype.numpy),
        np.maximum(np.array(child, np.int32), 0),
        weights,
        np.array(flags, np.uint8) if missing is None else None,
        groups,
        missing == NAN_LEFT,
    )
