"""Walking and rewriting tensor-level scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil

from modelcc.ir.index import Index, substitute, symbols
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Bind,
    Bitcast,
    Cast,
    Condition,
    Guard,
    IndexValue,
    Linear,
    Number,
    Read,
    Scalar,
    Select,
    Stage,
)


def children(scalar: Scalar) -> tuple[Scalar, ...]:
    """Direct sub-expressions, in evaluation order."""
    match scalar:
        case Apply() | Linear():
            return scalar.args
        case Read() | Number() | IndexValue():
            return ()
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
        case Apply():
            return Apply(scalar.function, parts, scalar.dtype)
        case Linear():
            return replace(scalar, args=parts)
        case Number() | IndexValue() | Read():
            return scalar
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
    parts = tuple([transform(c, visit) for c in below])
    return visit(scalar if _same(parts, below) else rebuild(scalar, parts))


def _same(new: Sequence[object], old: Sequence[object]) -> bool:
    return all([a is b for a, b in zip(new, old, strict=True)])


def walk(scalar: Scalar) -> Iterator[Scalar]:
    """Every node, parents first."""
    pending = [scalar]
    while pending:
        node = pending.pop()
        yield node
        pending += children(node)[::-1]


def outer_binds(scalar: Scalar) -> tuple[tuple[Bind, ...], Scalar]:
    """The :class:`Bind` s around ``scalar``, outermost first, and what is in them all."""
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
    match node:
        case Apply():
            return node
        case Read():
            indices = tuple([rewrite(i) for i in node.indices])
            same = _same(indices, node.indices)
            return node if same else Read(node.tensor, indices, node.dtype)
        case IndexValue():
            return replace(node, index=rewrite(node.index))
        case Linear():
            return replace(node, row=rewrite(node.row))
        case Guard():
            conditions = tuple(
                Condition(rewrite(c.left), c.comparison, rewrite(c.right)) for c in node.conditions
            )
            return replace(node, conditions=conditions)
        case Bind(bound=IndexBound(extent=extent) as bound):
            return replace(node, bound=replace(bound, extent=rewrite(extent)))
        case _:
            return node


def substitute_indices(scalar: Scalar, values: Mapping[str, Index]) -> Scalar:
    """Substitute symbols in every index expression."""
    return map_indices(scalar, lambda i: substitute(i, values)) if values else scalar


def substitute_stage(stage: Stage, values: Mapping[str, Index]) -> Stage:
    """Substitute symbols in everything that a stage says; its axes keep their names."""

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
    found = (symbols(index) for node in walk(scalar) for index in _own_indices(node))
    return frozenset[str]().union(*found)


def depends_on(scalar: Scalar, variable: str) -> bool:
    """Whether any index expression mentions ``variable``."""
    return variable in index_symbols(scalar)


def _own_indices(node: Scalar) -> tuple[Index, ...]:
    match node:
        case Read():
            return node.indices
        case IndexValue():
            return (node.index,)
        case Linear():
            return (node.row,)
        case Guard():
            return tuple(side for c in node.conditions for side in (c.left, c.right))
        case Bind(bound=IndexBound(extent=extent)):
            return (extent,)
        case _:
            return ()


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
    """Places and coefficients of what a linear combination adds, in the order in which that is
    best done: ``-a + b`` is ``b - a``, to the bit."""
    found = [(n, c) for n, c in enumerate(coefficients) if c != 0]
    if len(found) > 1 and found[0][1] < 0 < found[1][1]:
        found[:2] = found[1::-1]
    return found
