"""The loops of tree ensembles: walks from roots to leaves, several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.ir.algorithm import AlgorithmBuilder, add, call, convert, number
from modelcc.ir.compute import Operand
from modelcc.ir.index import Index
from modelcc.ir.loop import Bitcast, Expr, Select, Var
from modelcc.ir.types import I64, U32, U64
from modelcc.ops.feature_keys import key_type

EIGHT = 8
"""Walks that go on side by side; the number of trees is a multiple of it."""


@dataclass(frozen=True)
class Walk:
    """EIGHT ways from roots to leaves at a time, and what is added at their ends.

    ``nodes``, ``target``, ``first`` and ``weights`` are those of
    :class:`~modelcc.ops.forest.Forest`, ``bits`` and ``equals`` its attributes; ``combine`` is the
    function that takes one more weight into ``result``.
    """

    keys: Operand
    nodes: Operand
    target: Operand
    first: Operand | None
    weights: Operand | None
    result: Operand
    bits: int
    equals: bool
    combine: str

    @property
    def mask(self) -> int:
        """The lowest bits of a link that are a column."""
        return (1 << (self.bits - int(self.equals))) - 1

    @property
    def targets(self) -> Index:
        """How many there are."""
        return self.result.shape[1]

    def rows(self, at: AlgorithmBuilder, tree: Index, root: Expr, row: Index) -> None:
        """EIGHT rows from ``row`` on go down one ``tree``."""
        rows = [row + j for j in range(EIGHT)]
        leaves = self._leaves(at, [root] * EIGHT, rows)
        target = self._target(at, tree)
        for leaf, place in zip(leaves, rows, strict=True):
            self._add(at, leaf, place, target)

    def trees(self, at: AlgorithmBuilder, tree: Index, roots: Sequence[Expr], row: Index) -> None:
        """One ``row`` goes down EIGHT trees from ``tree`` on."""
        leaves = self._leaves(at, roots, [row] * EIGHT)
        if self.weights is None and self.targets == 1:
            values = [self._value(leaf) for leaf in leaves]
            self._combine(at, row, _paired(self.combine, values))
            return
        for j, leaf in enumerate(leaves):
            self._add(at, leaf, row, self._target(at, tree + j))

    def _leaves(
        self, at: AlgorithmBuilder, roots: Sequence[Expr], rows: Sequence[Index]
    ) -> list[Expr]:
        """The keys of the leaves."""
        columns, none = self.keys.shape[1], number(0, self.nodes.dtype)
        nodes = [at.register(root) for root in roots]
        links = at.register(number(1, self.nodes.dtype))
        with at.while_(call("ne", links, none)):
            at.assign(links, none)
            for node, row in zip(nodes, rows, strict=True):
                self._step(at, node, links, row * columns)
        return [at.let(at.load(self.nodes, at.index(node) * 2)) for node in nodes]

    def _step(self, at: AlgorithmBuilder, node: Var, links: Var, row: Index) -> None:
        """``node`` becomes one of its children, and ``links`` not 0 if it has any."""
        place, dtype = at.index(node), self.nodes.dtype
        link = at.let(at.load(self.nodes, place * 2 + 1))
        at.assign(links, call("or", links, link))
        column = at.index(call("and", link, number(self.mask, dtype)))
        key = at.let(at.load(self.nodes, place * 2))
        value = at.let(at.load(self.keys, row + column))
        right = call("gt", value, key)
        if self.equals:
            flag = call("and", link, number(self.mask + 1, dtype))
            least = number(-(1 << (key_type(self.result.dtype).bits - 1)), dtype)
            other = call("and", call("ne", value, key), call("ne", value, least))
            right = Select(call("ne", flag, number(0, dtype)), other, right)
        # Links are not negative: without a sign there is nothing to extend.
        plain = U64 if dtype == I64 else U32
        distance = call("shr", Bitcast(link, plain), number(self.bits, plain))
        at.assign(node, add(call("add", node, convert(distance, I64)), convert(right, I64)))

    def _target(self, at: AlgorithmBuilder, tree: Index) -> Index:
        if self.weights is not None or self.targets == 1:
            return 0
        return at.index(at.load(self.target, tree))

    def _value(self, leaf: Expr) -> Expr:
        """The weight that the key of a ``leaf`` is."""
        return Bitcast(convert(leaf, key_type(self.result.dtype)), self.result.dtype)

    def _add(self, at: AlgorithmBuilder, leaf: Expr, row: Index, target: Index) -> None:
        start = row * self.targets
        if self.first is None or self.weights is None:
            self._combine(at, start + target, self._value(leaf))
            return
        number_ = at.index(leaf)
        begin, end = (at.index(at.load(self.first, number_ + j)) for j in range(2))
        with at.loop(begin, end) as item:
            place = at.index(at.load(self.target, item))
            self._combine(at, start + place, at.load(self.weights, item))

    def _combine(self, at: AlgorithmBuilder, place: Index, value: Expr) -> None:
        at.store(self.result, place, call(self.combine, at.load(self.result, place), value))


def _paired(function: str, values: Sequence[Expr]) -> Expr:
    """All ``values`` combined, pair by pair."""
    while len(values) > 1:
        values = [call(function, a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]
