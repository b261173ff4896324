"""Rows of products of constant matrices at a point: common subexpressions are computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, substitute
from modelcc.ir.loop import Const, Expr, Predicate, ScalarCall, Select
from modelcc.ir.scalar_tree import index_symbols, summands
from modelcc.ir.tensor import Linear, Scalar
from modelcc.ir.types import DType
from modelcc.schedule.lanes import widen

Point = Mapping[str, Index]
Column = dict[tuple[int, int], Expr]
"""Elements of columns, by the number of factors applied and by their index."""


@dataclass(frozen=True)
class _Columns:
    """The columns of ``node`` for each value of the loop variables ``moving`` its operands."""

    node: Linear
    moving: tuple[str, ...]
    made: dict[tuple[Index, ...], Column] = field(default_factory=dict[tuple[Index, ...], Column])


@dataclass(frozen=True)
class LinearRows:
    """Linear combinations at points of a nest, each element of a column computed once for all rows.

    Nodes are keyed by identity, since comparing them is slow.
    """

    _known: dict[int, _Columns] = field(default_factory=dict[int, _Columns])

    def forget(self) -> None:
        """Clears all columns: the next point differs."""
        for columns in self._known.values():
            columns.made.clear()

    def row(
        self,
        node: Linear,
        point: Point,
        operand: Callable[[Scalar], Expr],
        named: Callable[[Expr], Expr],
    ) -> Expr:
        """The value of ``node`` at ``point``; ``operand`` evaluates operands, ``named`` binds
        results."""
        column = self._column(node, point)
        row, last = substitute(node.row, point), len(node.factors)
        if isinstance(row, int):
            return _element(node, column, (last, row), operand, named)
        ways = [
            _element(node, column, (last, number), operand, named)
            for number in range(len(node.factors[-1]))
        ]
        value = ways[-1]
        for number, one in enumerate(ways[:-1]):
            lanes = max(one.lanes, value.lanes)
            here = Predicate((Condition(row - number, "==", 0),))
            value = Select(widen(here, lanes), widen(one, lanes), widen(value, lanes))
        return value

    def _column(self, node: Linear, point: Point) -> Column:
        columns = self._known.get(id(node))
        if columns is None:
            used = frozenset[str]().union(*map(index_symbols, node.args))
            columns = self._known[id(node)] = _Columns(node, tuple(sorted(used & point.keys())))
        return columns.made.setdefault(tuple(point[name] for name in columns.moving), {})


def _element(
    node: Linear,
    column: Column,
    place: tuple[int, int],
    operand: Callable[[Scalar], Expr],
    named: Callable[[Expr], Expr],
) -> Expr:
    value = column.get(place)
    if value is not None:
        return value
    level, number = place
    if level == 0:
        value = operand(node.args[number])
    else:
        terms = summands(node.factors[level - 1][number])
        below = [(c, _element(node, column, (level - 1, n), operand, named)) for n, c in terms]
        value = named(_combination(below, node.dtype))
    column[place] = value
    return value


def _combination(terms: Sequence[tuple[float, Expr]], dtype: DType) -> Expr:
    """The sum of values times their factors, in order."""
    if not terms:
        return Const(0.0 if dtype.is_float else 0, dtype)
    lanes = max([value.lanes for _, value in terms])
    total: Expr | None = None
    for factor, value in terms:
        value, size = widen(value, lanes), abs(factor)
        if size != 1:
            times = Const(size if dtype.is_float else int(size), dtype, lanes)
            value = ScalarCall("mul", (value, times), dtype, lanes)
        if total is not None:
            value = ScalarCall("add" if factor > 0 else "sub", (total, value), dtype, lanes)
        elif factor < 0:
            value = ScalarCall("neg", (value,), dtype, lanes)
        total = value
    assert total is not None
    return total
