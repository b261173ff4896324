"""Items of the tensor level with their tensors called otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.scalar_tree import transform
from modelcc.ir.tensor import (
    Algorithm,
    Item,
    Kernel,
    Read,
    ReadSize,
    Scalar,
    Scatter,
    Stage,
    View,
)


def rename_tensors(item: Item, names: Mapping[str, str]) -> Item:
    """``item``, and what is in it, with the tensors in ``names`` called as these say."""

    def new(name: str) -> str:
        return names.get(name, name)

    def all_new(old: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(new, old))

    def inner(items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(rename_tensors(i, names) for i in items)

    match item:
        case View():
            return replace(item, output=new(item.output), input=new(item.input))
        case Branch(condition, outputs, then, other, source):
            return Branch(new(condition), all_new(outputs), inner(then), inner(other), source)
        case Repeat():
            condition = None if item.condition is None else new(item.condition)
            carries = tuple(
                Carry(new(c.state), new(c.initial), new(c.next), new(c.last)) for c in item.carries
            )
            return Repeat(
                item.counter, item.trips, carries, all_new(item.filled), inner(item.body),
                condition, item.source,
            )  # fmt: skip
        case Scatter():
            stage = rename_stage(item.stage, names)
            return Scatter(stage, new(item.initial), all_new(item.inputs), item.source)
        case Algorithm():
            inputs, outputs = all_new(item.inputs), all_new(item.outputs)
            return replace(item, inputs=inputs, outputs=outputs)
        case ReadSize():
            return replace(item, tensor=new(item.tensor))
        case Kernel():
            stages = tuple(rename_stage(stage, names) for stage in item.stages)
            inputs, outputs = all_new(item.inputs), all_new(item.outputs)
            return replace(item, inputs=inputs, outputs=outputs, stages=stages)


def rename_stage(stage: Stage, names: Mapping[str, str]) -> Stage:
    """``stage`` with the tensors in ``names`` called as these say."""

    def visit(node: Scalar) -> Scalar:
        if isinstance(node, Read) and node.tensor in names:
            return replace(node, tensor=names[node.tensor])
        return node

    output = names.get(stage.output, stage.output)
    return replace(stage, output=output, body=transform(stage.body, visit))
