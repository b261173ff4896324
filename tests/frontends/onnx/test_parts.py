"""Concatenations and splits of many parts, each of which has a named extent, against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import modelcc
from modelcc.frontends.kit.parts import GROUP
from modelcc.frontends.kit.shapes import LIMIT
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.types import Array
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.shape import Concat, Slice

MANY = 120
"""Parts whose places have so many names that they are put together by groups."""

Extent = str | int

Naming = Callable[[int], Extent]
"""The extent of each part."""


def own(k: int) -> Extent:
    """A name for each part."""
    return f"n{k}"


def every_other(k: int) -> Extent:
    """A number for every other part."""
    return f"n{k}" if k % 2 else 3


def shared(k: int) -> Extent:
    """Few names for many parts."""
    return f"n{k % 50}"


def shape_of(k: int, axis: int, name: Naming) -> list[Extent]:
    extent = name(k)
    return [extent, 2] if axis == 0 else [2, extent]


def sized(shape: list[Extent], sizes: dict[str, int]) -> list[int]:
    return [sizes[extent] if isinstance(extent, str) else extent for extent in shape]


def model(count: int, axis: int, name: Naming, sequence: bool) -> ModelProto:
    """``count`` inputs that are joined, halved, and taken apart again."""
    inputs = [f"x{k}" for k in range(count)]
    outputs = [f"y{k}" for k in range(count)]
    specs = [(k, shape_of(k, axis, name)) for k in range(count)]
    sizes = [
        helper.make_node("Shape", [x], [f"{x}.size"], start=axis, end=axis + 1) for x in inputs
    ]
    joined = (
        [
            helper.make_node("SequenceConstruct", inputs, ["all"]),
            helper.make_node("ConcatFromSequence", ["all"], ["joined"], axis=axis),
        ]
        if sequence
        else [helper.make_node("Concat", inputs, ["joined"], axis=axis)]
    )
    nodes = [
        *sizes,
        helper.make_node("Concat", [f"{x}.size" for x in inputs], ["sizes"], axis=0),
        *joined,
        helper.make_node("Relu", ["joined"], ["whole"]),
        helper.make_node("Split", ["whole", "sizes"], outputs, axis=axis),
    ]
    float_ = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(f"x{k}", float_, shape) for k, shape in specs],
        [
            helper.make_tensor_value_info("whole", float_, [None, None]),
            *(helper.make_tensor_value_info(f"y{k}", float_, shape) for k, shape in specs),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", [own, every_other, shared])
def test_many_named_parts_are_joined_and_taken_apart(axis: int, name: Naming) -> None:
    count = 2 * MANY if name is shared else MANY
    net = modelcc.compile(
        model(count, axis, name, sequence=axis == 1), threads=1, cache=None, optimize=0
    )
    generator = np.random.default_rng(0)
    for most in (1, 3):
        extents = {f"n{k}": int(generator.integers(1, most + 1)) for k in range(count)}
        shapes = [sized(shape_of(k, axis, name), extents) for k in range(count)]
        parts: list[Array] = [generator.standard_normal(s).astype(np.float32) for s in shapes]
        whole, *found = net(**{f"x{k}": part for k, part in enumerate(parts)})
        np.testing.assert_array_equal(whole, np.maximum(np.concatenate(parts, axis), 0))
        for one, part in zip(found, parts, strict=True):
            np.testing.assert_array_equal(one, np.maximum(part, 0))


def test_few_parts_are_joined_and_taken_apart_at_once() -> None:
    graph = import_onnx(model(GROUP + 4, 0, own, sequence=False))
    ops = [type(node.op) for node in graph.nodes]
    assert ops.count(Concat) == 1
    assert ops.count(Slice) == GROUP + 4


def test_sizes_of_thousands_of_parts_are_known() -> None:
    """None of them is read at run time, with the whole extent for its bound."""
    graph = import_onnx(model(LIMIT + 1, 0, own, sequence=False))
    assert not any(isinstance(node.op, ReadSize) for node in graph.nodes)
