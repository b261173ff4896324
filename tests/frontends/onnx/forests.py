"""Random tree ensembles in ONNX's attributes, and a plain walk through them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from modelcc.ir.types import Array

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
VALUES = (-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf)
"""What thresholds and features are, so that they often meet; features are NaN as well."""


@dataclass
class Node:
    """A node: where its children are among the nodes of its tree, or what it adds to targets."""

    tree: int
    name: int
    feature: int = 0
    value: float = 0.0
    mode: str = "LEAF"
    tracks: int = 0
    true: int = 0
    false: int = 0
    weights: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Shape:
    """What random trees may have; ``skew`` is how often a node that could have children has."""

    trees: int = 9
    depth: int = 4
    features: int = 4
    targets: int = 1
    modes: tuple[str, ...] = MODES
    skew: float = 0.7
    shared: float = 0.0
    shuffled: bool = False
    per_leaf: str = "one"
    """Targets of leaves: ``tree``'s own, ``one`` of any, or ``any`` of them, perhaps twice."""


def random_forest(random: np.random.Generator, shape: Shape) -> list[Node]:
    """All trees' nodes; the first of a tree is its root unless they are shuffled."""
    nodes: list[Node] = []
    for tree in range(shape.trees):
        own: list[Node] = []
        _grow(random, shape, own, tree, 0)
        nodes += _renamed(random, own) if shape.shuffled else own
    if shape.shuffled:
        nodes = [nodes[i] for i in random.permutation(len(nodes))]
    return nodes


def _grow(random: np.random.Generator, shape: Shape, own: list[Node], tree: int, level: int) -> int:
    done = [n.name for n in own if n.weights or n.false]  # of the others a child is missing
    if level and done and random.random() < shape.shared:
        return int(random.choice(done))
    node = Node(tree, len(own))
    own.append(node)
    if level < shape.depth and random.random() < shape.skew:
        node.feature = int(random.integers(shape.features))
        node.value = float(random.choice(VALUES))
        node.tracks = int(random.integers(2))
        mode = str(random.choice(shape.modes))
        node.true = _grow(random, shape, own, tree, level + 1)
        node.false = _grow(random, shape, own, tree, level + 1)
        node.mode = mode
        return node.name
    target = tree if shape.per_leaf == "tree" else int(random.integers(shape.targets))
    count = int(random.integers(1, 5)) if shape.per_leaf == "any" else 1
    chosen = [target % shape.targets, *random.integers(shape.targets, size=3).tolist()][:count]
    node.weights = tuple((int(t), float(random.integers(-8, 9)) / 4) for t in chosen)
    return node.name


def _renamed(random: np.random.Generator, own: list[Node]) -> list[Node]:
    names = random.permutation(3 * len(own))[: len(own)].tolist()
    for node in own:
        node.name = names[node.name]
        if node.mode != "LEAF":
            node.true, node.false = names[node.true], names[node.false]
    return own


def attributes(nodes: list[Node], prefix: str = "target") -> dict[str, Any]:
    """Those of TreeEnsembleRegressor, or with prefix ``class`` of TreeEnsembleClassifier."""
    items = [(n.tree, n.name, t, w) for n in nodes for t, w in n.weights]
    columns = zip(*items, strict=True) if items else ((),) * 4
    leaves = zip(("treeids", "nodeids", "ids", "weights"), columns, strict=True)
    return {
        "nodes_treeids": [n.tree for n in nodes],
        "nodes_nodeids": [n.name for n in nodes],
        "nodes_featureids": [n.feature for n in nodes],
        "nodes_values": [n.value for n in nodes],
        "nodes_modes": [n.mode for n in nodes],
        "nodes_missing_value_tracks_true": [n.tracks for n in nodes],
        "nodes_truenodeids": [n.true for n in nodes],
        "nodes_falsenodeids": [n.false for n in nodes],
    } | {f"{prefix}_{key}": list(values) for key, values in leaves}


def features(
    random: np.random.Generator, rows: int, columns: int, dtype: type[np.generic]
) -> Array:
    """Rows of VALUES and NaN."""
    values: Array = np.array([*VALUES, np.nan])
    chosen: Array = values[random.integers(len(values), size=(rows, columns))]
    return chosen.astype(dtype)


def walked(nodes: list[Node], x: Array, targets: int) -> Array:
    """The sums of the weights of all leaves reached, node by node."""
    found = {(n.tree, n.name): n for n in nodes}
    children = {(n.tree, c) for n in nodes if n.mode != "LEAF" for c in (n.true, n.false)}
    roots = [n for n in nodes if (n.tree, n.name) not in children]
    result = np.zeros((len(x), targets), x.dtype)
    for row, total in zip(x, result, strict=True):
        for node in roots:
            while node.mode != "LEAF":
                name = node.true if _holds(node, row[node.feature]) else node.false
                node = found[node.tree, name]
            for target, weight in node.weights:
                total[target] += weight
    return result


def _holds(node: Node, value: Any) -> bool:
    if np.isnan(value) and (node.tracks or node.mode == "BRANCH_NEQ"):
        return True
    bound = value.dtype.type(node.value)
    return bool(
        {
            "BRANCH_LEQ": value <= bound,
            "BRANCH_LT": value < bound,
            "BRANCH_GTE": value >= bound,
            "BRANCH_GT": value > bound,
            "BRANCH_EQ": value == bound,
            "BRANCH_NEQ": value != bound,
        }[node.mode]
    )


def balanced(depth: int, features: int) -> dict[str, Any]:
    """A tree whose nodes all compare features of their own, as far as there are as many."""
    count = (2 << depth) - 1
    ids = np.arange(count)
    leaf = ids >= (1 << depth) - 1
    leaves = ids[leaf]
    return {
        "nodes_treeids": np.zeros(count, np.int64),
        "nodes_nodeids": ids,
        "nodes_featureids": np.where(leaf, 0, ids % features),
        "nodes_values": np.linspace(0, 1, count, dtype=np.float32),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_truenodeids": np.where(leaf, 0, 2 * ids + 1),
        "nodes_falsenodeids": np.where(leaf, 0, 2 * ids + 2),
        "target_treeids": np.zeros(len(leaves), np.int64),
        "target_nodeids": leaves,
        "target_ids": np.zeros(len(leaves), np.int64),
        "target_weights": np.arange(len(leaves), dtype=np.float32),
        "n_targets": 1,
    }
