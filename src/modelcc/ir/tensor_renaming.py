"""Renaming tensors in items of the tensor level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelcc.ir.fields import NodeParts
from modelcc.ir.region import Carry
from modelcc.ir.scalar_tree import transform
from modelcc.ir.tensor import Item, Read, Scalar, Stage

_NAMES = NodeParts[str]("TensorName", Carry)
_STAGES = NodeParts[Stage]("Stage")
_ITEMS = NodeParts[tuple[Item, ...]]("tuple[I, ...]")


def rename_tensors(item: Item, names: Mapping[str, str]) -> Item:
    """``item``, and its inner items, with tensors renamed by ``names``."""

    def new(name: str) -> str:
        return names.get(name, name)

    def inner(items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple([rename_tensors(each, names) for each in items])

    renamed = _STAGES.changed(_NAMES.changed(item, new), lambda stage: rename_stage(stage, names))
    return _ITEMS.changed(renamed, inner)


def rename_stage(stage: Stage, names: Mapping[str, str]) -> Stage:
    """``stage`` with tensors renamed by ``names``."""

    def visit(node: Scalar) -> Scalar:
        if isinstance(node, Read) and node.tensor in names:
            return replace(node, tensor=names[node.tensor])
        return node

    output = names.get(stage.output, stage.output)
    return replace(stage, output=output, body=transform(stage.body, visit))
