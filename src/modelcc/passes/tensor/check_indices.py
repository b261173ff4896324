"""Elimination of run-time checks of indices from memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, Sym, bounds_of, compare
from modelcc.ir.region import map_leaves
from modelcc.ir.scalar_tree import children, transform
from modelcc.ir.tensor import Bind, Guard, Item, Kernel, Read, Scalar, Scatter, Stage, TensorProgram
from modelcc.passes.tensor.value_ranges import ValueRanges, wrapped_value


@dataclass(frozen=True)
class CheckIndices:
    """Indices that are in range for all inputs lose their bound; all indices, if ``unchecked``.

    A constant index that is out of range is a :class:`ModelError`, if it is used in every run of
    the model.

    before::

        program @main(%i: u8[9], %x: f32[256]) -> (%y) {
          kernel @Gather(%i: u8[9], %x: f32[256]) -> (%y: f32[9]) {
            %y: f32[9] = [i < 9] (let g = %i[i] below [256] in %x[g])
          }
        }

    after::

        program @main(%i: u8[9], %x: f32[256]) -> (%y) {
          kernel @Gather(%i: u8[9], %x: f32[256]) -> (%y: f32[9]) {
            %y: f32[9] = [i < 9] (let g = %i[i] in %x[g])
          }
        }
    """

    unchecked: bool = False

    def __call__(self, program: TensorProgram) -> TensorProgram:
        ranges = ValueRanges(program)
        if not self.unchecked:
            for item in program.items:
                for stage in _stages(item):
                    _refuse_constants(stage, program)

        def visit(item: Item) -> Item:
            if isinstance(item, Scatter):
                return replace(item, stage=self._without_idle(item.stage, ranges))
            if not isinstance(item, Kernel):
                return item
            stages = tuple(self._without_idle(stage, ranges) for stage in item.stages)
            return replace(item, stages=stages) if stages != item.stages else item

        return replace(program, items=map_leaves(program.items, visit))

    def _without_idle(self, stage: Stage, ranges: ValueRanges) -> Stage:
        bounds: Bounds | None = None

        def visit(node: Scalar) -> Scalar:
            nonlocal bounds
            if not isinstance(node, Bind) or node.bound is None:
                return node
            if bounds is None:
                bounds = ranges.bounds(stage)
            idle = self.unchecked or _is_within(node, ranges, bounds)
            return replace(node, bound=None) if idle else node

        return replace(stage, body=transform(stage.body, visit))


def _stages(item: Item) -> tuple[Stage, ...]:
    match item:
        case Kernel():
            return item.stages
        case Scatter():
            return (item.stage,)
        case _:
            return ()


def _is_within(node: Bind, ranges: ValueRanges, bounds: Bounds) -> bool:
    assert node.bound is not None
    values, extent = ranges.scalar(node.value, bounds), node.bound.extent
    above = any(compare(low, ">=", 0, bounds) for low in values.lows)
    return above and any(compare(high, "<", extent, bounds) for high in values.highs)


def _refuse_constants(stage: Stage, program: TensorProgram) -> None:
    """ModelError if ``stage`` uses a constant's index that is out of range for all sizes."""
    for node in _always(stage.body):
        if not isinstance(node, Bind) or node.bound is None:
            continue
        raw = wrapped_value(node.value)
        value = node.value if raw is None else raw[0]
        if not isinstance(value, Read) or value.tensor not in program.constants:
            continue
        axes = {a.name: a.extent for a in (*stage.axes, *stage.reduce)}
        shape = tuple(axes.get(i.name) if isinstance(i, Sym) else None for i in value.indices)
        data = program.constants[value.tensor].data
        if shape != data.shape or len(set(value.indices)) < data.ndim:
            continue  # a slice of the constant
        extent = bounds_of(node.bound.extent, program.dims).hi
        if extent is None:
            continue
        places = np.where(data < 0, data + extent, data) if node.bound.wrapped else data
        outside = places[(places < 0) | (places >= extent)]
        if outside.size:
            bound = replace(node.bound, extent=extent)
            raise ModelError(bound.fault(int(outside[0]), {}), bound.source)


def _always(scalar: Scalar) -> Iterator[Scalar]:
    """Every node that is evaluated at all points."""
    yield scalar
    for child in (scalar.outside,) if isinstance(scalar, Guard) else children(scalar):
        yield from _always(child)
