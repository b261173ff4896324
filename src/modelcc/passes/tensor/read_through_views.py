"""Reads of views that differ in axes of one element, as reads of what these are views of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Index
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import (
    Item,
    Kernel,
    Read,
    Scalar,
    Scatter,
    Stage,
    TensorProgram,
    View,
    item_inputs,
)
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.fused_kernel import with_stages


@dataclass(frozen=True)
class ReadThroughViews:
    """What makes such a tensor may be inlined then, and what reads it be fused with that.

    Reductions, whose rows are looked for along the last axes, read views as they are, and so does
    whatever reads the same view.

    before::

        program @main(%x: f32[n, 4]) -> (%y) dims(n in 1:) {
          kernel @Transpose(%x: f32[n, 4]) -> (%t: f32[4, n]) {
            %t: f32[4, n] = [i < 4, j < n] %x[j, i]
          }
          view %v: f32[4, 1, n] = %t
          kernel @Neg(%v: f32[4, 1, n]) -> (%y: f32[4, 1, n]) {
            %y: f32[4, 1, n] = [i < 4, k < 1, j < n] -%v[i, k, j]
          }
        }

    after::

        program @main(%x: f32[n, 4]) -> (%y) dims(n in 1:) {
          kernel @Transpose(%x: f32[n, 4]) -> (%t: f32[4, n]) {
            %t: f32[4, n] = [i < 4, j < n] %x[j, i]
          }
          kernel @Neg(%t: f32[4, n]) -> (%y: f32[4, 1, n]) {
            %y: f32[4, 1, n] = [i < 4, k < 1, j < n] -%t[i, j]
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        stages = [s for i in program.items if isinstance(i, Kernel) for s in i.stages]
        reduced = {r.tensor for s in stages if s.reduce for r in reads(s.body)}
        through: dict[str, View] = {}
        items: list[Item] = []
        for item in program.items:
            match item:
                case View():
                    if item.output not in reduced and _places(item, program.types) is not None:
                        through[item.output] = item
                    items.append(item)
                case Kernel():
                    stages = [_stage(s, through, program.types) for s in item.stages]
                    items.append(with_stages(item, stages))
                case Scatter():
                    stage = _stage(item.stage, through, program.types)
                    inputs = dict.fromkeys((item.initial, *(r.tensor for r in reads(stage.body))))
                    items.append(replace(item, stage=stage, inputs=tuple(inputs)))
                case _:
                    items.append(item)
        return program.with_items(_read(items, program.outputs))


def _places(view: View, types: Mapping[str, TensorType]) -> tuple[int | None, ...] | None:
    """Axes of a view by those of what it is one of, None for those of one element; None if it
    has others."""
    base, shape = types[view.input], types[view.output].shape
    if base.layout is not None or types[view.output].layout is not None:
        return None
    moving = [axis for axis, extent in enumerate(shape) if extent != 1]
    if [shape[axis] for axis in moving] != [extent for extent in base.shape if extent != 1]:
        return None
    left = iter(moving)
    return tuple(None if extent == 1 else next(left) for extent in base.shape)


def through_views(
    stages: Sequence[Stage], through: Mapping[str, View], types: Mapping[str, TensorType]
) -> tuple[Stage, ...] | None:
    """``stages`` that read what views ``through`` are of, by their outputs; None if these differ in
    other axes than those of one element."""
    if any(_places(view, types) is None for view in through.values()):
        return None
    return tuple(_stage(stage, through, types) for stage in stages)


def _stage(stage: Stage, through: Mapping[str, View], types: Mapping[str, TensorType]) -> Stage:
    def visit(node: Scalar) -> Scalar:
        while isinstance(node, Read) and node.tensor in through:
            view = through[node.tensor]
            indices: list[Index] = []
            for place in _places(view, types) or ():
                indices.append(0 if place is None else node.indices[place])
            node = Read(view.input, tuple(indices), node.dtype)
        return node

    return replace(stage, body=transform(stage.body, visit))


def _read(items: Sequence[Item], outputs: Sequence[str]) -> tuple[Item, ...]:
    """Items but for views that nobody reads."""
    needed = set(outputs)
    kept: list[Item] = []
    for item in reversed(items):
        if not isinstance(item, View) or item.output in needed:
            needed |= set(item_inputs(item))
            kept.append(item)
    return tuple(reversed(kept))
