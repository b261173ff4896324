"""Ensembles of decision trees.

Nodes of all trees lie in one table, the two children of a node side by side and after it.  A node
is a pair of integers: the key that a feature's key (:class:`~modelcc.ops.feature_keys.FeatureKeys`)
is compared with, and a link: how far away the children are, above the column of the feature.  One
step is

    node += (link >> bits) + (keys[row, link & mask] > key)

Leaves have link 0.  Column 0 has the least key, so a leaf follows itself, and EIGHT walks that
depend on nothing of each other go on side by side until all are at leaves: there are no branches
to foretell, and each one's loads are waited for while others are made.  (The branch-free descent of
Asadi, Lin and de Vries, "Runtime optimizations for tree-based machine learning models", 2014.)
Several rows go down one tree, which so stays in the cache, and what rows are left go down several
trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, convert, number, predicate
from modelcc.ir.compute import Inputs, Outputs
from modelcc.ir.index import minimum
from modelcc.ir.op import Op, Sample, require
from modelcc.ir.types import F32, F64, I32, I64, Array, DType, TensorType
from modelcc.ops.accumulate import require_float
from modelcc.ops.feature_keys import key_type
from modelcc.ops.forest_walk import EIGHT, Walk
from modelcc.ops.samples import bounded, sample, tensor

Aggregate = Literal["sum", "max", "min"]

ROWS, MORE_ROWS, MANY_NODES = 64, 512, 1 << 16
"""Rows that go down all trees before the next ones do: more where there are many nodes, which come
from far away for each of these blocks."""
NEUTRAL = {"sum": 0.0, "max": -np.inf, "min": np.inf}
_FUNCTIONS = {"sum": "add", "max": "max", "min": "min"}
_UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def _table(key: DType, leaves: Sequence[int], bits: int) -> Array:
    """A tree of depth 2 with a leaf at depth 1, one of a single leaf, and an empty leaf."""
    flag = 1 << (bits - 1) if bits > 2 else 0
    far = 2 << bits
    table = np.array([[-3, far | 1], [0, 0], [leaves[0], 0], [-4, (far >> 1) | flag | 2],
                      [leaves[1], 0], [leaves[2], 0], [leaves[3], 0], [leaves[4], 0]])  # fmt: skip
    return table.astype(key.numpy)


def _samples() -> tuple[Sample, ...]:
    def bits(values: Sequence[float], dtype: DType) -> list[int]:
        return np.array(values, dtype.numpy).view(key_type(dtype).numpy).tolist()

    roots = np.array([0, 6, *[7] * (EIGHT - 2)], np.int32)
    numbered = np.arange(5)
    weights = np.array([0.5, 2.0, -1.0, 4.0], np.float32)
    items = (np.array([1, 0, 1, 0], np.int32), np.array([0, 1, 2, 3, 4, 4], np.int32), weights)
    single = np.zeros(EIGHT, np.int32)
    keys = np.full((19, 3), np.iinfo(np.int32).min, np.int32)
    keys[:, 1:] = -1 - np.arange(38).reshape(2, 19).T % 7
    keys[5, 2] = keys[0, 0]
    values = [1.5, 2.0, 0.25, 3.0, 0.5]
    small = _table(I32, bits(values, F32), 2)
    wide = _table(I64, bits(values, F64), 2)
    mixed = _table(I64, bits(values, F32), 2)
    rows = tensor("n", 3, dtype=I32)
    listed = _table(I32, numbered.tolist(), 2)
    flagged = _table(I32, numbered.tolist(), 3)
    several = (roots % 2).astype(np.int32)
    # What is below 0 is below the keys of leaves, as column 0 must be.
    below = (-7, -1)
    return (
        bounded(below, rows, roots, small, single, None, None, targets=1),
        sample(keys, roots, small, single, None, None, targets=1, aggregate="max"),
        bounded(below, rows, roots, small, several, None, None, targets=2),
        sample(keys, roots, listed, *items, targets=2),
        bounded(below, rows, roots, listed, *items, targets=2, aggregate="min"),
        sample(keys, roots, flagged, *items, targets=2, bits=3, equals=True),
        sample(keys.astype(np.int64), roots, mixed, single, None, None, targets=1),
        sample(
            *(keys.astype(np.int64), roots, flagged.astype(np.int64), *items),
            targets=2, bits=3, equals=True,
        ),
        bounded(
            *(below, tensor("n", 3, dtype=I64), roots, wide, single, None, None),
            targets=1, dtype=F64,
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class Forest(Op):
    """``result[n, k]``: over all trees, the combined weights for target k of leaves reached.

    Operands: keys [n, c], of which column 0 has the least one; the root of each tree; nodes [m, 2],
    keys and links, whose lowest ``bits`` are a column and, above it, with ``equals`` whether
    all keys but the node's own and the least one of as many bits as ``dtype`` go right, not those
    above.  A leaf's key has the bits
    of its weight for ``target`` [trees] of its tree; or, given ``first`` [leaves + 1] and
    ``weights``, it is the number of the leaf, which has the weights from its first to
    the next leaf's first, for ``target`` [weights].  All but keys are constants: the loops go where
    these say.
    """

    differentiable = False
    targets: int
    aggregate: Aggregate = "sum"
    bits: int = 2
    equals: bool = False
    dtype: DType = F32
    samples = _samples()

    def infer(
        self,
        keys: TensorType,
        roots: TensorType,
        nodes: TensorType,
        target: TensorType,
        first: TensorType | None,
        weights: TensorType | None,
    ) -> tuple[TensorType]:
        require_float(self.dtype, "Forest")
        require(self.aggregate in get_args(Aggregate), f"there is no aggregate {self.aggregate!r}")
        require(
            keys.rank == 2
            and isinstance(keys.shape[1], int)
            and keys.dtype in (key_type(self.dtype), I64)
            and nodes.rank == 2,
            f"Forest of {self.dtype} has keys {keys} and nodes {nodes}",
        )
        require(nodes.dtype == keys.dtype and nodes.shape[1] == 2, f"nodes of Forest are {nodes}")
        require(
            roots.rank == 1 and roots.dtype == I32 and roots.shape[0] % EIGHT == 0,
            f"the trees of Forest are no multiple of {EIGHT}: {roots}",
        )
        owners = roots if weights is None else weights
        require(
            target.shape == owners.shape and target.dtype == I32,
            f"targets of Forest are {target}, one for each of {owners}",
        )
        require(
            (weights is None) == (first is None)
            and (weights is None or weights.dtype == self.dtype)
            and (first is None or (first.rank == 1 and first.dtype == I32)),
            f"weights of leaves of Forest are {first} and {weights}",
        )
        return (TensorType((keys.shape[0], self.targets), self.dtype),)

    @property
    def column_mask(self) -> int:
        """The lowest bits of a link that are a column."""
        return (1 << (self.bits - int(self.equals))) - 1

    def require_contents(
        self, types: Sequence[TensorType | None], contents: Sequence[Array | None]
    ) -> None:
        _, roots, nodes, target, first, weights = contents
        require(
            roots is not None and nodes is not None and target is not None,
            "the tables of Forest must be constants",
        )
        assert roots is not None and nodes is not None and target is not None
        link, size = nodes[:, 1], len(nodes)
        _require_below("roots", roots, size)
        _require_below("links", link, np.iinfo(link.dtype).max)
        inner = np.flatnonzero(link)
        distance = link[inner] >> self.bits
        require(bool((distance > 0).all()), "nodes of Forest come after their children")
        _require_below("children", inner + distance, size - 1)
        keys = types[0]
        columns = keys.shape[1] if keys is not None else 0
        assert isinstance(columns, int)
        _require_below("columns", link & self.column_mask, columns)
        _require_below("targets", target, self.targets)
        if first is not None:
            require(weights is not None, "the weights of Forest must be constants")
            _require_below("leaves", nodes[link == 0, 0], len(first) - 1)
            _require_below("first weights", first, len(target) + 1)

    def reference(
        self,
        keys: Array,
        roots: Array,
        nodes: Array,
        target: Array,
        first: Array | None,
        weights: Array | None,
    ) -> Array:
        rows = np.arange(len(keys))[:, None]
        node: Array = np.broadcast_to(roots.astype(np.int64), (len(keys), len(roots)))
        link = nodes[node, 1]
        while link.any():
            value, key = keys[rows, link & self.column_mask], nodes[node, 0]
            right: Array = value > key
            if self.equals:
                least = np.iinfo(key_type(self.dtype).numpy).min
                other = (value != key) & (value != least)
                right = np.where(link & (self.column_mask + 1), other, right)
            node = np.add(node, (link >> self.bits) + right)
            link = nodes[node, 1]
        result = np.full((len(keys), self.targets), NEUTRAL[self.aggregate], self.dtype.numpy)
        combine, leaf = _UFUNCS[self.aggregate], nodes[node, 0]
        for row, leaves in enumerate(leaf):
            if first is None or weights is None:
                values = leaves.astype(key_type(self.dtype).numpy).view(self.dtype.numpy)
                combine.at(result[row], target, values)
                continue
            for number_ in leaves:
                items = slice(first[number_], first[number_ + 1])
                combine.at(result[row], target[items], weights[items])
        return result

    # --- loops

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        keys, roots, nodes, target, first, weights = inputs
        assert keys is not None and roots is not None and nodes is not None and target is not None
        combine = _FUNCTIONS[self.aggregate]
        walk = Walk(
            keys, nodes, target, first, weights, outputs[0], self.bits, self.equals, combine
        )
        rows, trees, size = keys.shape[0], roots.shape[0], nodes.shape[0]
        block_rows = MORE_ROWS if isinstance(size, int) and size >= MANY_NODES else ROWS
        block_rows = block_rows if at.capacity.groups is None else 1
        blocks = (rows + block_rows - 1) // block_rows
        with at.shared_loop(blocks, block_rows * blocks * trees) as block:
            start = block * block_rows
            stop = minimum(start + block_rows, rows)
            neutral = number(NEUTRAL[self.aggregate], self.dtype)
            at.fill(outputs[0], start * self.targets, (stop - start) * self.targets, neutral)
            groups = (stop - start) // EIGHT if block_rows > 1 else 0
            with at.when(predicate(groups, ">", 0)), at.loop(0, trees if groups else 0) as tree:
                root = at.let(convert(at.load(roots, tree), I64))
                with at.loop(0, groups) as group:
                    walk.rows(at, tree, root, start + group * EIGHT)
            rest = start + groups * EIGHT
            with at.when(predicate(rest, "<", stop)), at.loop(0, trees // EIGHT) as group:
                first_tree = group * EIGHT
                found = [at.let(convert(at.load(roots, first_tree + j), I64)) for j in range(EIGHT)]
                with at.loop(rest, stop) as row:
                    walk.trees(at, first_tree, found, row)


def _require_below(what: str, places: Array, end: int) -> None:
    """Refuse ``places`` that are negative or not below ``end``."""
    low, high = (int(places.min()), int(places.max())) if places.size else (0, -1)
    require(low >= 0 and high < end, f"{what} of Forest are {low} to {high}, not 0 to {end - 1}")


OPS: tuple[type[Op], ...] = (Forest,)
