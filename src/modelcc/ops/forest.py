"""Ensembles of decision trees.

Nodes of all trees lie in one table, the two children of a node next to each other, so that a step
of the descent is ``node = child[node] + (not x[feature[node]] <= threshold[node])``.  A leaf
that is less deep than others is followed by a copy of itself, and is the child of both: descents
in trees of one group all take the same number of steps.  (The branch-free descent of Asadi, Lin
and de Vries, "Runtime optimizations for tree-based machine learning models", 2014.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, index_value, number, select
from modelcc.ir.index import Index
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.op import Op, Sample, require, same_dtype
from modelcc.ir.types import F64, I32, U8, Array, TensorType
from modelcc.ops.accumulate import require_float
from modelcc.ops.runtime_index import bound_along
from modelcc.ops.samples import tensor

Aggregate = Literal["sum", "max", "min"]
Descent = Callable[[Index, Element, int, Callable[[Index], Element]], Element]

NAN_LEFT, EQUALS = 1, 2
"""Bits of a node's flags: missing values go left; the left child is for ``x == threshold``."""


def _samples() -> tuple[Sample, ...]:
    """Two trees: one of depth 2 with a leaf at depth 1, and one of depth 1."""
    child = np.array([2, 8, 6, 4, 4, 4, 0, 0, 10, 12, 10, 10, 12, 12], np.int32)
    feature, threshold = np.zeros(14, np.int32), np.zeros(14, np.float32)
    feature[:3], threshold[:3] = (0, 2, 1), (0.5, -0.5, 0.0)
    flags = np.zeros(14, np.uint8)
    flags[:2] = NAN_LEFT, EQUALS
    weights = np.arange(28, dtype=np.float32).reshape(14, 2)
    missing = np.array([[np.nan, 0, 1], [0.3, 0.2, -0.5], [1, np.nan, np.nan]], np.float32)
    tables = (np.array([0, 1], np.int32), feature, threshold, child)
    wide = (*tables[:2], threshold.astype(np.float64), child, weights.astype(np.float64))
    return (
        Sample((tensor("n", 3), *tables, weights[:, :1], None), {"groups": ((2, 2),)}),
        Sample((tensor("n", 3), *tables, weights[:, :1], None), {"groups": ((1, 2), (1, 1))}),
        Sample((tensor("n", 3), *tables, weights, None), {"groups": ((2, 2),)}),
        Sample((tensor("n", 3), *tables, weights, None), {"groups": ((1, 2), (1, 1))}),
        Sample((missing, *tables, weights, None), {"groups": ((2, 2),), "missing_left": True}),
        Sample((missing, *tables, weights, flags), {"groups": ((2, 2),), "aggregate": "min"}),
        Sample(
            (missing, *tables, weights[:, 1:], flags),
            {"groups": ((1, 3), (1, 1)), "aggregate": "max"},
        ),
        Sample((tensor(5, 3, dtype=F64), *wide, None), {"groups": ((2, 2),)}),
    )


@dataclass(frozen=True)
class Forest(Op):
    """``result[n, k]``: over all trees, the combined ``weights[leaf, k]`` of the leaf x[n] gets to.

    Operands: x [n, f]; root of each tree; feature, threshold and first child of each node; weights
    [nodes, k]; flags of each node.  Without flags missing values (NaN) go left or all go right.
    ``groups`` are numbers of trees and their depths, in the order of the roots.
    """

    groups: tuple[tuple[int, int], ...]
    missing_left: bool = False
    aggregate: Aggregate = "sum"
    samples = _samples()

    def infer(
        self,
        x: TensorType,
        roots: TensorType,
        feature: TensorType,
        threshold: TensorType,
        child: TensorType,
        weights: TensorType,
        flags: TensorType | None,
    ) -> tuple[TensorType]:
        dtype = same_dtype(x, threshold, weights)
        require_float(dtype, "Forest")
        require(self.aggregate in get_args(Aggregate), f"there is no aggregate {self.aggregate!r}")
        require(x.rank == 2 and weights.rank == 2, f"Forest needs rows of features, not {x}")
        require(
            roots.shape == (sum(count for count, _ in self.groups),),
            f"Forest has {roots} roots for trees in groups of {self.groups}",
        )
        for table in (roots, feature, child):
            require(table.rank == 1 and table.dtype == I32, f"a node table of Forest is {table}")
        require(
            threshold.shape == feature.shape == child.shape == weights.shape[:1]
            and (flags is None or (flags.shape == child.shape and flags.dtype == U8)),
            "the node tables of Forest have different lengths",
        )
        return (TensorType((x.shape[0], weights.shape[1]), dtype),)

    def reference(
        self,
        x: Array,
        roots: Array,
        feature: Array,
        threshold: Array,
        child: Array,
        weights: Array,
        flags: Array | None,
    ) -> Array:
        rows = np.arange(len(x))[:, None]
        node = np.broadcast_to(roots, (len(x), len(roots)))
        every = np.full(len(child), NAN_LEFT if self.missing_left else 0, np.uint8)
        marks = every if flags is None else flags
        depth = np.repeat([d for _, d in self.groups], [n for n, _ in self.groups])
        for level in range(depth.max(initial=0)):
            value, bound, mark = x[rows, feature[node]], threshold[node], marks[node]
            left = np.where(mark & EQUALS, value == bound, value <= bound)
            left |= np.isnan(value) & (mark & NAN_LEFT != 0)
            node = np.where(level < depth, child[node] + ~left, node)
        total = {"sum": np.sum, "max": np.max, "min": np.min}[self.aggregate]
        return np.asarray(total(weights[node], axis=1), x.dtype)

    def compute(
        self,
        at: StageBuilder,
        x: Operand,
        roots: Operand,
        feature: Operand,
        threshold: Operand,
        child: Operand,
        weights: Operand,
        flags: Operand | None,
    ) -> Operand:
        nodes_bound = IndexBound(child.shape[0], "the nodes of the trees", "child")

        def step(n: Index, node: Index) -> Element:
            bound = threshold[node]
            value = at.gather(feature[node], lambda f: x[n, f], bound_along(x, 1, wrapped=False))
            left = apply("not", value > bound) if self.missing_left else value <= bound
            if flags is not None:
                left = _flagged(value, bound, left, flags[node])
            return child[node] + select(left, number(0, I32), number(1, I32))

        def leaf(n: Index, root: Element, depth: int, use: Callable[[Index], Element]) -> Element:
            """``use`` of the leaf below ``root``."""
            if not depth:
                return at.gather(root, use, nodes_bound)
            return at.gather(root, lambda i: leaf(n, step(n, i), depth - 1, use), nodes_bound)

        if weights.shape[1] == 1:
            return self._single(at, x, roots, weights, leaf)
        nodes = at.tensor((x.shape[0], roots.shape[0]), I32)
        for start, count, depth in self._starts():
            at.fill(
                nodes,
                (x.shape[0], count),
                lambda o, s=start: (o[0], o[1] + s),
                lambda o, s=start, d=depth: leaf(
                    o[0], roots[o[1] + s], d, lambda i: index_value(i, I32)
                ),
            )
        return at.reduce(
            (x.shape[0], weights.shape[1]),
            roots.shape,
            self.aggregate,
            lambda o, r: at.gather(nodes[o[0], r[0]], lambda i: weights[i, o[1]], nodes_bound),
        )

    def _starts(self) -> Iterator[tuple[int, int, int]]:
        """First tree, number of trees and depth of each group."""
        start = 0
        for count, depth in self.groups:
            yield start, count, depth
            start += count

    def _single(
        self, at: StageBuilder, x: Operand, roots: Operand, weights: Operand, leaf: Descent
    ) -> Operand:
        """Of one column: leaves' weights are added up on the way."""
        parts = [
            at.reduce(
                (x.shape[0], 1),
                (count,),
                self.aggregate,
                lambda o, r, s=start, d=depth: leaf(
                    o[0], roots[r[0] + s], d, lambda i: weights[i, 0]
                ),
            )
            for start, count, depth in self._starts()
        ]
        function = {"sum": "add", "max": "max", "min": "min"}[self.aggregate]
        whole = parts[0]
        for part in parts[1:]:
            whole = at.stage(whole.shape, lambda o, a=whole, b=part: apply(function, a[o], b[o]))
        return whole


def _flagged(value: Element, bound: Element, left: Element, flags: Element) -> Element:
    """Whether ``value`` goes left, where a node's ``flags`` have a say."""

    def is_set(bit: int) -> Element:
        return apply("ne", apply("and", flags, number(bit, U8)), number(0, U8))

    tested = select(is_set(EQUALS), apply("eq", value, bound), left)
    return select(apply("isnan", value), is_set(NAN_LEFT), tested)


OPS: tuple[type[Op], ...] = (Forest,)
