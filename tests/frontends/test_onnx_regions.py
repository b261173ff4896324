"""Regions pooled with as many points as their sizes ask for, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import modelcc
from tests.frontends.onnx_models import floats, one_node, run_onnxruntime

BOXES = np.array([[0, 0, 9, 9], [1, 2, 5, 4], [3, 3, 3, 3.5], [1, 1, 40, 30]], np.float32)
NUMBERS = np.array([0, 1, 0, 1])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_points_by_the_sizes_of_regions(mode: str, coordinates: str) -> None:
    model, feeds = one_node(
        "RoiAlign", [floats(2, 3, 8, 10), BOXES, NUMBERS], opset=16, output_height=2,
        output_width=3, spatial_scale=0.5, mode=mode,
        coordinate_transformation_mode=coordinates,
    )  # fmt: skip
    (found,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    (expected,) = run_onnxruntime(model, feeds).values()
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


def test_any_number_of_regions() -> None:
    model, feeds = one_node(
        "RoiAlign", [floats(2, 3, 8, 10), BOXES, NUMBERS], opset=16, output_height=2,
        output_width=2,
    )  # fmt: skip
    for value in model.graph.input[1:]:
        value.type.tensor_type.shape.dim[0].dim_param = "regions"
    model.graph.output[0].ClearField("type")
    net = modelcc.compile(model, threads=1, cache=None)
    for count in (4, 1, 0):
        names = list(feeds)
        cut = {**feeds, **{n: feeds[n][:count] for n in names[1:]}}
        (found,) = net.run(cut).values()
        if count:
            (expected,) = run_onnxruntime(model, cut).values()
            np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
        assert found.shape == (count, 3, 2, 2)
