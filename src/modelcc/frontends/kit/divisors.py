"""Dimensions that occur as divisors in a model's shapes cannot be 0; all others can."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from modelcc.ir.graph import Graph
from modelcc.ir.index import Expr, Index, Range, symbols
from modelcc.ir.index_expr import FloorDiv, FloorMod


def without_empty_divisors(graph: Graph, names: Collection[str]) -> Graph:
    """``graph`` with those of the dimensions ``names`` that occur as divisors bounded to at least
    1."""
    divisors = frozenset[str]().union(*map(divided_by, _indices(graph)))
    changed: Mapping[str, Range] = {
        name: Range(1, graph.dims[name].hi) for name in names if name in divisors
    }
    return replace(graph, dims={**graph.dims, **changed}) if changed else graph


def _indices(value: Any) -> Iterator[Index]:
    """All index expressions of a graph or an attribute."""
    match value:
        case Expr():
            yield value
        case tuple():
            for item in cast("tuple[Any, ...]", value):
                yield from _indices(item)
        case Graph():
            for type in value.types.values():
                yield from type.shape
            for node in value.nodes:
                yield from _indices(tuple(node.op.attributes().values()))
        case _:
            return


def divided_by(e: Index) -> frozenset[str]:
    """Names of the symbols in divisors of ``e`` and of its operands.

    >>> from modelcc.ir.index import parse_index
    >>> sorted(divided_by(parse_index("(a floordiv b) * c + d mod 4")))
    ['b']
    """
    return frozenset[str]().union(*_divisors(e))


def _divisors(e: Index) -> Iterator[frozenset[str]]:
    if isinstance(e, int):
        return
    for atom in (atom for _, mono in e.terms.values() for atom in mono):
        if isinstance(atom, FloorDiv | FloorMod):
            yield symbols(atom.divisor)
        for operand in atom.operands():
            yield from _divisors(operand)
