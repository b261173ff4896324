"""Kernels under canonical names, so that equal layers are scheduled and compiled once."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index, Range, Sym, substitute, symbols
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.scalar_tree import (
    index_symbols,
    map_indices,
    map_own_indices,
    outer_binds,
    transform,
)
from modelcc.ir.tensor import Axis, Bind, Guard, IndexValue, Kernel, Linear, Read, Scalar, Stage
from modelcc.ir.types import TensorType


@dataclass(frozen=True)
class CanonicalKernel:
    """A kernel in canonical names: inputs ``x0…``, outputs ``y0…``, internal ``t0…``, axes ``a0…``.

    ``types`` are those of inputs and outputs; ``constants`` names the inputs known at compile
    time; ``dims`` the symbolic dimensions it depends on, with bounds; ``internal`` has the types
    of inner tensors that have a layout.
    """

    stages: tuple[Stage, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[tuple[str, TensorType], ...]
    constants: frozenset[str]
    dims: tuple[tuple[str, Range], ...]
    internal: tuple[tuple[str, TensorType], ...] = ()


def canonical(
    kernel: Kernel, types: Mapping[str, TensorType], constants: frozenset[str], dims: Bounds
) -> tuple[CanonicalKernel, dict[str, str]]:
    """``kernel`` in canonical names, and the map from canonical to original tensor names."""
    names = {t: f"x{n}" for n, t in enumerate(kernel.inputs)}
    names |= {t: f"y{n}" for n, t in enumerate(kernel.outputs)}
    inner = dict.fromkeys(s.output for s in kernel.stages if s.output not in names)
    names |= {t: f"t{n}" for n, t in enumerate(inner)}
    counter = _Counter(dims)
    stages = tuple(_rename_stage(s, names, counter) for s in kernel.stages)
    outside = (*kernel.inputs, *kernel.outputs)
    own = tuple((names[t], types[t]) for t in outside)
    used = [name for name in dimensions(stages, own) if name in dims] if dims else ()
    key = CanonicalKernel(
        stages,
        tuple(names[t] for t in kernel.inputs),
        tuple(names[t] for t in kernel.outputs),
        own,
        frozenset(names[t] for t in kernel.inputs if t in constants),
        tuple((d, dims[d]) for d in sorted(used)),
        tuple((names[t], types[t]) for t in inner if t in types and types[t].layout is not None),
    )
    return key, {names[t]: t for t in outside}


def with_numbers(kernel: Kernel) -> tuple[Kernel, tuple[IndexBound, ...]]:
    """``kernel`` with its index bounds replaced by numbers, and the bounds by these numbers."""
    numbers: dict[IndexBound, int] = {}

    def visit(node: Scalar) -> Scalar:
        if not isinstance(node, Bind) or node.bound is None:
            return node
        bound = replace(node.bound, number=0)
        number = numbers.setdefault(bound, len(numbers))
        return replace(node, bound=replace(bound, number=number))

    stages = tuple(replace(s, body=transform(s.body, visit)) for s in kernel.stages)
    return (replace(kernel, stages=stages) if numbers else kernel), tuple(numbers)


class _Counter:
    """Names of axes; a model's own dimensions may have the same names."""

    def __init__(self, reserved: Container[str]) -> None:
        self.reserved = reserved
        self.next = 0

    def fresh(self) -> str:
        name = f"a{self.next}"
        self.next += 1
        return self.fresh() if name in self.reserved else name


def _rename_stage(stage: Stage, names: Mapping[str, str], counter: _Counter) -> Stage:
    axes = {a.name: counter.fresh() for a in (*stage.axes, *stage.reduce)}
    values: dict[str, Index] = {old: Sym(new) for old, new in axes.items()}

    def visit(node: Scalar) -> Scalar:
        match node:
            case Read(tensor, indices, dtype):
                own = tuple([substitute(i, values) for i in indices])
                return Read(names.get(tensor, tensor), own, dtype)
            case IndexValue() | Guard() | Linear():
                return map_own_indices(node, lambda i: substitute(i, values))
            case Bind():
                fresh = counter.fresh()
                rename = {node.symbol: Sym(fresh)}
                body = map_indices(node.body, lambda i: substitute(i, rename))
                bound = node.bound and IndexBound(node.bound.extent, number=node.bound.number)
                return replace(node, symbol=fresh, body=body, bound=bound)
            case _:
                return node

    body = transform(stage.body, visit)
    before, after = outer_binds(stage.body)[0], outer_binds(body)[0]
    values |= {old.symbol: Sym(new.symbol) for old, new in zip(before, after, strict=True)}
    return Stage(
        names[stage.output],
        tuple(Axis(axes[a.name], a.extent) for a in stage.axes),
        tuple(substitute(i, values) for i in stage.write),
        body,
        tuple(Axis(axes[a.name], a.extent) for a in stage.reduce),
        stage.combine,
    )


def dimensions(
    stages: tuple[Stage, ...], types: tuple[tuple[str, TensorType], ...]
) -> frozenset[str]:
    """Symbols in stages and types, axes among them."""
    names: set[str] = set()
    for _, type_ in types:
        for extent in type_.shape:
            names |= symbols(extent)
    for stage in stages:
        names |= index_symbols(stage.body)
        for axis in (*stage.axes, *stage.reduce):
            names |= symbols(axis.extent)
        for index in stage.write:
            names |= symbols(index)
    return frozenset(names)
