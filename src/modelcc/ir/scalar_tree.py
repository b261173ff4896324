"""Walking and rewriting tensor-level scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from modelcc.ir.index import Index, substitute, symbols
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.tensor import (
    Apply,
    Bind,
    Bitcast,
    Cast,
    Condition,
    Guard,
    IndexValue,
    Number,
    Read,
    Scalar,
    Select,
)


def children(scalar: Scalar) -> tuple[Scalar, ...]:
    """Direct sub-expressions, in evaluation order."""
    match scalar:
        case Number() | IndexValue() | Read():
            return ()
        case Apply():
            return scalar.args
        case Select():
            return (scalar.condition, scalar.then, scalar.other)
        case Cast() | Bitcast():
            return (scalar.value,)
        case Guard():
            return (scalar.inside, scalar.outside)
        case Bind():
            return (scalar.value, scalar.body)


def rebuild(scalar: Scalar, parts: tuple[Scalar, ...]) -> Scalar:
    """The same node over other sub-expressions (in the order of :func:`children`)."""
    match scalar:
        case Number() | IndexValue() | Read():
            return scalar
        case Apply():
            return replace(scalar, args=parts)
        case Select():
            return replace(scalar, condition=parts[0], then=parts[1], other=parts[2])
        case Cast() | Bitcast():
            return replace(scalar, value=parts[0])
        case Guard():
            return replace(scalar, inside=parts[0], outside=parts[1])
        case Bind():
            return replace(scalar, value=parts[0], body=parts[1])


def transform(scalar: Scalar, visit: Callable[[Scalar], Scalar]) -> Scalar:
    """Apply ``visit`` to every node, leaves first."""
    below = children(scalar)
    if not below:
        return visit(scalar)
    parts = tuple(transform(c, visit) for c in below)
    same = all(p is c for p, c in zip(parts, below, strict=True))
    return visit(scalar if same else rebuild(scalar, parts))


def walk(scalar: Scalar) -> Iterator[Scalar]:
    """Every node, parents first."""
    yield scalar
    for child in children(scalar):
        yield from walk(child)


def reads(scalar: Scalar) -> list[Read]:
    """Every read, in evaluation order (repeated ones included)."""
    return [s for s in walk(scalar) if isinstance(s, Read)]


def map_indices(scalar: Scalar, rewrite: Callable[[Index], Index]) -> Scalar:
    """Rewrite every index expression: of reads, index values and guard conditions."""

    def visit(node: Scalar) -> Scalar:
        match node:
            case Read():
                return replace(node, indices=tuple(rewrite(i) for i in node.indices))
            case IndexValue():
                return replace(node, index=rewrite(node.index))
            case Guard():
                conditions = tuple(
                    Condition(rewrite(c.left), c.comparison, rewrite(c.right))
                    for c in node.conditions
                )
                return replace(node, conditions=conditions)
            case _:
                return node

    return transform(scalar, visit)


def substitute_indices(scalar: Scalar, values: Mapping[str, Index]) -> Scalar:
    """Substitute symbols in every index expression."""
    return map_indices(scalar, lambda i: substitute(i, values)) if values else scalar


def index_symbols(scalar: Scalar) -> frozenset[str]:
    """Names of all symbols in index expressions, symbols bound inside included."""
    names: set[str] = set()

    def visit(index: Index) -> Index:
        names.update(symbols(index))
        return index

    map_indices(scalar, visit)
    return frozenset(names)


def cost(scalar: Scalar) -> int:
    """Rough work of one evaluation in additions."""
    own = FUNCTIONS[scalar.function].cost if isinstance(scalar, Apply) else 0
    return own + sum(cost(c) for c in children(scalar))
