"""Guards that protect no read, as selects, which vectors evaluate for all lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelcc.ir.index import Bounds, compare, loop_range, symbols
from modelcc.ir.scalar_tree import children, transform
from modelcc.ir.tensor import Apply, Bind, Condition, Guard, IndexValue, Read, Scalar, Select, Stage
from modelcc.ir.types import BOOL, I32, I64, TensorType

LIMIT = 1 << 31
"""Beyond the range of 32-bit integers."""

_FUNCTIONS = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge"}


def with_choices(
    stages: tuple[Stage, ...], types: Mapping[str, TensorType], dims: Bounds
) -> tuple[Stage, ...]:
    """Elementwise stages without guards that would prevent vectorisation along their rows.

    Lanes load values that they discard, where these are in range for the whole iteration space.
    """
    if any(stage.reduce for stage in stages):
        return stages
    return tuple(_chosen(stage, types, dims) for stage in stages)


def _chosen(stage: Stage, types: Mapping[str, TensorType], dims: Bounds) -> Stage:
    type_ = types.get(stage.output)
    if not stage.write or (type_ is not None and type_.layout is not None):
        return stage
    lanes = symbols(stage.write[-1])
    bounds = {**dims, **{a.name: loop_range(a.extent) for a in stage.axes}}

    def visit(node: Scalar) -> Scalar:
        if not isinstance(node, Guard) or not any(symbols(c.left) & lanes for c in node.conditions):
            return node
        if not _is_in_range(node.inside, types, bounds):
            return node
        test = _holds(node.conditions[0], bounds)
        for condition in node.conditions[1:]:
            test = Apply("and", (test, _holds(condition, bounds)), BOOL)
        return Select(test, node.inside, node.outside, node.dtype)

    body = transform(stage.body, visit)
    return replace(stage, body=body)


def _holds(condition: Condition, bounds: Bounds) -> Scalar:
    """The condition on integers as narrow as possible, so that vectors hold more of them."""
    indices = (condition.left, condition.right)
    few = all(compare(i, "<", LIMIT, bounds) and compare(i, ">", -LIMIT, bounds) for i in indices)
    sides = tuple(IndexValue(i, I32 if few else I64) for i in indices)
    return Apply(_FUNCTIONS[condition.comparison], sides, BOOL)


def _is_in_range(scalar: Scalar, types: Mapping[str, TensorType], bounds: Bounds) -> bool:
    """Whether all reads stay within their tensors wherever ``scalar`` is evaluated."""
    match scalar:
        case Bind():
            return False
        case Read() if scalar.tensor in types:
            pairs = zip(scalar.indices, types[scalar.tensor].shape, strict=True)
            return all(
                compare(i, ">=", 0, bounds) and compare(i, "<", extent, bounds)
                for i, extent in pairs
            )
        case _:
            return all(_is_in_range(part, types, bounds) for part in children(scalar))
