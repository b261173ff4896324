"""Attention of the standard is attention, whatever its definition scales and chooses first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from modelcc.driver import compile_model
from modelcc.ir.graph import Graph
from modelcc.ir.types import Array
from modelcc.ops.attention import Attention
from modelcc.ops.elementwise import Mul
from modelcc.pipeline import StageRun
from tests.frontends.onnx.one_node import assert_alike, one_node
from tests.machines import chosen_options

LENGTH, SIZE = 5, 16
LATER = np.tri(LENGTH, dtype=np.bool_)
NOTHING = np.ones((LENGTH, LENGTH), np.bool_)
NOTHING[2] = False


def operands(heads: tuple[int, int], flat: bool, *more: Array) -> list[Array]:
    generator = np.random.default_rng(0)
    counts = (heads[0], heads[1], heads[1])
    if flat:
        shapes = [(2, LENGTH, count * SIZE) for count in counts]
    else:
        shapes = [(2, count, LENGTH, SIZE) for count in counts]
    return [*(generator.standard_normal(s).astype(np.float32) for s in shapes), *more]


CASES: list[tuple[tuple[int, int], bool, list[Array], Mapping[str, Any]]] = [
    ((4, 4), False, [], {}),
    ((4, 4), False, [], {"scale": 0.3, "is_causal": 1}),
    ((4, 2), False, [], {"is_causal": 1}),
    ((4, 4), True, [], {"q_num_heads": 4, "kv_num_heads": 4}),
    ((4, 2), True, [], {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}),
    ((4, 4), False, [LATER], {}),
    ((4, 4), False, [NOTHING], {}),
]


def final_graph(model: ModelProto) -> Graph:
    """After all passes on graphs."""
    graphs: list[Graph] = []

    def note(run: StageRun) -> None:
        if isinstance(run.after, Graph):
            graphs.append(run.after)

    compile_model(model, chosen_options(), observer=note)
    return graphs[-1]


@pytest.mark.parametrize(("heads", "flat", "more", "attributes"), CASES)
@pytest.mark.parametrize("opset", [23, 24])
def test_nothing_is_scaled_before(
    heads: tuple[int, int], flat: bool, more: list[Array], attributes: dict[str, Any], opset: int
) -> None:
    arrays = operands(heads, flat, *more)
    shapes = [array.shape for array in arrays]
    model = one_node("Attention", shapes, arrays, [TensorProto.FLOAT], attributes, opset)
    ops = [node.op for node in final_graph(model).nodes]
    (attention,) = [op for op in ops if isinstance(op, Attention)]
    assert attention.causal == bool(attributes.get("is_causal", 0))
    assert not any(isinstance(op, Mul) for op in ops)
    assert_alike(model, {f"i{k}": array for k, array in enumerate(arrays)})


def test_causal_attention_of_named_lengths() -> None:
    """Its definition makes the mask of positions."""
    arrays = operands((4, 4), False)
    shapes = [(2, 4, "s", SIZE)] * 3
    model = one_node("Attention", shapes, arrays, [TensorProto.FLOAT], {"is_causal": 1}, 23)
    assert [node.op for node in final_graph(model).nodes] == [Attention(0.25, causal=True)]
    assert_alike(model, {f"i{k}": array for k, array in enumerate(arrays)})
