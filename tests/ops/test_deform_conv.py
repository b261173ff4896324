"""Deformable convolutions against onnxruntime: near and far offsets, any number of channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto, numpy_helper

import modelcc
from modelcc.driver import compile_model
from modelcc.ir.loop import Assign, Let, Load, MulAdd
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Program
from modelcc.pipeline import StageRun
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options

OPTIONS = chosen_options(threads=1)
KERNEL, SIZE = 3, 7


@dataclass(frozen=True)
class Layer:
    """``channels`` to ``outputs``, in groups of weights and of offsets."""

    channels: int
    outputs: int
    groups: int = 1
    offset_groups: int = 1
    stride: int = 1
    dilation: int = 1

    @property
    def extent(self) -> int:
        """Rows and columns of the result, the image being padded by 1."""
        return (SIZE + 1 - (KERNEL - 1) * self.dilation) // self.stride + 1


LAYERS = {
    "blocks": Layer(32, 16),
    "few": Layer(3, 5, stride=2),
    "groups": Layer(16, 32, groups=2, offset_groups=2),
    "narrow groups": Layer(12, 6, groups=3, offset_groups=6),
    "other groups": Layer(24, 8, groups=4, offset_groups=3, dilation=2),
}


def model_of(layer: Layer, named: bool, weights: np.ndarray | None) -> ModelProto:
    """x, w, offsets o, bias b and mask m; ``weights`` are a constant if given."""
    taps, plane = KERNEL * KERNEL * layer.offset_groups, f"{layer.extent},{layer.extent}"
    image, batch = f"{SIZE},{SIZE}", "1"
    if named:
        plane, image, batch = "p,q", "h,w", "n"
    shape = [layer.outputs, layer.channels // layer.groups, KERNEL, KERNEL]
    given = "" if weights is not None else f"float[{','.join(map(str, shape))}] w, "
    attributes = (
        f"pads=[1,1,1,1], strides=[{layer.stride},{layer.stride}], group={layer.groups},"
        f" dilations=[{layer.dilation},{layer.dilation}], offset_group={layer.offset_groups}"
    )
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 19]>
        g (float[{batch},{layer.channels},{image}] x, {given}float[{batch},{2 * taps},{plane}] o,
           float[{layer.outputs}] b, float[{batch},{taps},{plane}] m) => (float[i,j,k,l] y) {{
          y = DeformConv<{attributes}>(x, w, o, b, m)
        }}"""
    )
    if weights is not None:
        model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def feeds_of(layer: Layer, reach: float, batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    taps = KERNEL * KERNEL * layer.offset_groups
    plane = (layer.extent, layer.extent)
    return {
        "x": rng.standard_normal((batch, layer.channels, SIZE, SIZE)).astype(np.float32),
        "o": (reach * rng.standard_normal((batch, 2 * taps, *plane))).astype(np.float32),
        "b": rng.standard_normal(layer.outputs).astype(np.float32),
        "m": rng.random((batch, taps, *plane)).astype(np.float32),
    }


def weights_of(layer: Layer) -> np.ndarray:
    shape = (layer.outputs, layer.channels // layer.groups, KERNEL, KERNEL)
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.share(2, "layer", "named", "constant")
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_near_and_far_offsets(layer: Layer, named: bool, constant: bool) -> None:
    weights = weights_of(layer)
    model = model_of(layer, named, weights if constant else None)
    net = modelcc.compile(model, options=OPTIONS, cache=None)
    for reach in (0.0, 1.0, 8.0, 1e8):
        feeds = feeds_of(layer, reach, 2 if named else 1)
        feeds |= {} if constant else {"w": weights}
        expected = run_onnxruntime(model, feeds)["y"]
        found: Any = net(feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_products_of_groups_read_whole_vectors() -> None:
    """Weights that come at run time are packed for them, with groups as without."""
    programs: list[Program] = []

    def note(run: StageRun) -> None:
        if isinstance(run.after, Program):
            programs.append(run.after)

    compile_model(model_of(Layer(64, 64, groups=4), True, None), OPTIONS, observer=note)
    for function in programs[-1].functions:
        found = list(statements(function.body))
        if any(isinstance(s, Assign) and isinstance(s.value, MulAdd) for s in found):
            loads = [s.value for s in found if isinstance(s, Let) and isinstance(s.value, Load)]
            assert all(load.stride == 1 for load in loads if load.lanes > 1)


def test_whole_steps_to_the_border_and_beyond() -> None:
    """Pixels whose weight is exactly 0 or 1, on and outside of the border."""
    layer = LAYERS["blocks"]
    model = model_of(layer, True, weights_of(layer))
    net = modelcc.compile(model, options=OPTIONS, cache=None)
    for step in (-SIZE, -1.0, -0.5, 1.0, SIZE - 1.0, SIZE, 0.5 - SIZE):
        feeds = feeds_of(layer, 0.0, 1)
        feeds["o"] = np.full_like(feeds["o"], step)
        expected = run_onnxruntime(model, feeds)["y"]
        found: Any = net(feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_no_images() -> None:
    layer = LAYERS["blocks"]
    model = model_of(layer, True, weights_of(layer))
    found: Any = modelcc.compile(model, options=OPTIONS, cache=None)(feeds_of(layer, 1.0, 0))
    assert found.shape == (0, layer.outputs, layer.extent, layer.extent)
