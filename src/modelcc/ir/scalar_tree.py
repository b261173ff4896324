"""Traversing and rewriting tensor-level scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil

from modelcc.ir.fields import NodeParts
from modelcc.ir.index import Index, substitute, symbols
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.tensor import Apply, Axis, Bind, Condition, Linear, Read, Scalar, Stage

_CHILDREN = NodeParts[Scalar]("Scalar")
_INDICES = NodeParts[Index]("Index", Condition, IndexBound)

children = _CHILDREN.of
"""Direct sub-expressions, in evaluation order."""

own_indices = _INDICES.of
"""The index expressions of a node itself."""


def transform(scalar: Scalar, visit: Callable[[Scalar], Scalar]) -> Scalar:
    """Apply ``visit`` to every node, leaves first."""
    below = children(scalar)
    if not below:
        return visit(scalar)
    return visit(_CHILDREN.changed(scalar, lambda child: transform(child, visit)))


def walk(scalar: Scalar) -> Iterator[Scalar]:
    """Every node, parents first."""
    pending, listings = [scalar], _CHILDREN.listings
    while pending:
        node = pending.pop()
        yield node
        pending += listings[type(node)](node)[::-1]


def outer_binds(scalar: Scalar) -> tuple[tuple[Bind, ...], Scalar]:
    """The :class:`Bind` s around ``scalar``, outermost first, and the expression inside."""
    found: list[Bind] = []
    while isinstance(scalar, Bind):
        found.append(scalar)
        scalar = scalar.body
    return tuple(found), scalar


def size(scalar: Scalar) -> int:
    """Number of nodes."""
    return sum(1 for _ in walk(scalar))


def depth(scalar: Scalar) -> int:
    """Number of nodes on the longest path to a leaf."""
    level, found = [scalar], 0
    while level:
        level, found = [child for node in level for child in children(node)], found + 1
    return found


def reads(scalar: Scalar) -> list[Read]:
    """Every read, in evaluation order (repeated ones included)."""
    return [s for s in walk(scalar) if isinstance(s, Read)]


def map_indices(scalar: Scalar, rewrite: Callable[[Index], Index]) -> Scalar:
    """Rewrite every index expression: of reads, index values and guard conditions."""
    return transform(scalar, lambda node: map_own_indices(node, rewrite))


def map_own_indices(node: Scalar, rewrite: Callable[[Index], Index]) -> Scalar:
    """Rewrite the index expressions of ``node`` itself."""
    return _INDICES.changed(node, rewrite)


def substitute_indices(scalar: Scalar, values: Mapping[str, Index]) -> Scalar:
    """Substitute symbols in every index expression."""
    return map_indices(scalar, lambda i: substitute(i, values)) if values else scalar


def substitute_stage(stage: Stage, values: Mapping[str, Index]) -> Stage:
    """Substitute symbols in all of a stage; its axes keep their names."""

    def axis(one: Axis) -> Axis:
        return replace(one, extent=substitute(one.extent, values))

    return replace(
        stage,
        axes=tuple(map(axis, stage.axes)),
        reduce=tuple(map(axis, stage.reduce)),
        write=tuple(substitute(index, values) for index in stage.write),
        body=substitute_indices(stage.body, values),
    )


def index_symbols(scalar: Scalar) -> frozenset[str]:
    """Names of all symbols in index expressions, symbols bound inside included."""
    found = (symbols(index) for node in walk(scalar) for index in own_indices(node))
    return frozenset[str]().union(*found)


def depends_on(scalar: Scalar, variable: str) -> bool:
    """Whether any index expression mentions ``variable``."""
    return variable in index_symbols(scalar)


def cost(scalar: Scalar) -> int:
    """Rough work of one evaluation in additions."""
    return sum(map(_own_cost, walk(scalar)))


def _own_cost(node: Scalar) -> int:
    match node:
        case Apply():
            return FUNCTIONS[node.function].cost
        case Linear():
            rows = sum(operations(row) for matrix in node.factors for row in matrix)
            return ceil(rows / len(node.factors[-1]))
        case _:
            return 0


def operations(coefficients: Sequence[float]) -> int:
    """Additions and multiplications of a linear combination."""
    terms = [c for c in coefficients if c != 0]
    return max(0, len(terms) - 1) + sum(abs(c) != 1 for c in terms)


def summands(coefficients: Sequence[float]) -> list[tuple[int, float]]:
    """Positions and coefficients of the non-zero terms of a linear combination, in the cheapest
    order of summation: ``-a + b`` is ``b - a``, to the bit."""
    found = [(n, c) for n, c in enumerate(coefficients) if c != 0]
    if len(found) > 1 and found[0][1] < 0 < found[1][1]:
        found[:2] = found[1::-1]
    return found
