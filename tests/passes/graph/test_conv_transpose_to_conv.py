"""Transposed convolutions of step 1 as convolutions, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, helper

import modelcc
from modelcc.frontends.onnx.convert import import_onnx
from modelcc.ir.types import Array
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.passes.graph.conv_transpose_to_conv import ConvTransposeToConv
from tests.small_models import model


def transposed(
    weight: tuple[int, ...], attributes: Mapping[str, Any], constant: bool = False
) -> ModelProto:
    """One of an image of 4 channels; ``weight`` is [4, outputs of a group, *window]."""
    image = (2, 4, *(7,) * (len(weight) - 2))
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
    outputs = weight[1] * attributes.get("group", 1)
    arrays: dict[str, Array] = {"b": np.linspace(-1, 1, outputs, dtype=np.float32)}
    rng = np.random.default_rng(0)
    inputs: dict[str, tuple[int | str, ...]] = {"x": image}
    if constant:
        arrays["w"] = rng.standard_normal(weight).astype(np.float32)
    else:
        inputs["w"] = weight
    return model([node], inputs, {"y": ("n", "c", *"hwd"[: len(weight) - 2])}, arrays)


CASES: Mapping[str, tuple[tuple[int, ...], Mapping[str, Any]]] = {
    "plain": ((4, 3, 3, 3), {}),
    "uneven": ((4, 3, 3, 2), {"pads": [0, 1, 2, 0]}),
    "groups": ((4, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "depthwise": ((4, 1, 3, 3), {"group": 4}),
    "dilated": ((4, 2, 3, 2), {"dilations": [2, 3], "pads": [1, 0, 3, 2]}),
    "line": ((4, 5, 4), {"pads": [1, 2]}),
    "volume": ((4, 2, 2, 1, 3), {}),
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_it_computes_the_same(name: str, constant: bool) -> None:
    weight, attributes = CASES[name]
    given = transposed(weight, attributes, constant)
    graph = ConvTransposeToConv()(import_onnx(given))
    kinds = [type(node.op) for node in graph.nodes]
    assert Conv in kinds and ConvTranspose not in kinds
    rng = np.random.default_rng(1)
    shapes = {"x": (2, 4, *(7,) * (len(weight) - 2)), "w": weight}
    feeds = {i.name: rng.standard_normal(shapes[i.name], np.float32) for i in given.graph.input}
    wanted = onnxruntime.InferenceSession(given.SerializeToString()).run(None, feeds)[0]
    for what in (graph, given.SerializeToString()):
        found = modelcc.compile(what, threads=1, cache=None)(**feeds)
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("weight", "attributes"),
    [((4, 3, 3, 3), {"strides": [2, 1]}), ((4, 3, 2, 2), {"pads": [2, 0, 0, 0]})],
)
def test_others_stay(weight: tuple[int, ...], attributes: Mapping[str, Any]) -> None:
    """A larger step leaves gaps, and cropping beyond the window drops pixels of the image."""
    graph = import_onnx(transposed(weight, attributes))
    assert any(isinstance(node.op, ConvTranspose) for node in ConvTransposeToConv()(graph).nodes)


def test_filters_that_a_call_gives_may_stay() -> None:
    graph = import_onnx(transposed((4, 3, 3, 3), {}))
    kept = ConvTransposeToConv(computed=False)(graph)
    assert any(isinstance(node.op, ConvTranspose) for node in kept.nodes)
