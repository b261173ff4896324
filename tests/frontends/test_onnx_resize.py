"""Resize with scales, sizes and regions that are computed at run time: one compiled model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser
from onnx.reference import ReferenceEvaluator

import modelcc
from tests.frontends.onnx_models import run_onnxruntime


def _model(attributes: str, inputs: str, operands: str, opset: int = 19) -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]>\n'
        f"main (float[n, 2, h, w] x, {inputs}) => (float[a, b, c, d] y) "
        f"{{ y = Resize <{attributes}> ({operands}) }}"
    )


def _image(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape).astype(np.float32)


SCALES = ((1.0, 1.0, 2.0, 3.0), (1.0, 1.0, 0.6, 1.7), (1.0, 1.0, 0.37, 0.291))


@pytest.mark.parametrize(
    "attributes",
    [
        'mode: string = "nearest"',
        'mode: string = "cubic"',
        'mode: string = "linear", antialias: int = 1',
    ],
)
def test_one_model_for_all_scales(attributes: str) -> None:
    model = _model(attributes, "float[4] scales", 'x, "", scales')
    net = modelcc.compile(model, threads=1, cache=None)
    rng = np.random.default_rng(1)
    for shape in ((1, 2, 5, 7), (2, 2, 9, 4)):
        for scales in SCALES:
            feeds: dict[str, Any] = {"x": _image(rng, *shape), "scales": np.float32(scales)}
            expected = run_onnxruntime(model, feeds)["y"]
            np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)


def test_corners_are_aligned_by_scaled_extents_as_in_the_standards_reference() -> None:
    attributes = 'mode: string = "linear", coordinate_transformation_mode: string = "align_corners"'
    model = _model(attributes, "float[4] scales", 'x, "", scales')
    net = modelcc.compile(model, threads=1, cache=None)
    rng = np.random.default_rng(1)
    for scales in SCALES:
        feeds: dict[str, Any] = {"x": _image(rng, 1, 2, 5, 7), "scales": np.float32(scales)}
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_proportions_are_kept_at_every_size(policy: str) -> None:
    attributes = f'axes: ints = [2, 3], keep_aspect_ratio_policy: string = "{policy}"'
    model = _model(attributes, "int64[2] sizes", 'x, "", "", sizes')
    net = modelcc.compile(model, threads=1, cache=None)
    rng = np.random.default_rng(2)
    for sizes in ((7, 8), (3, 9), (2, 2)):
        feeds: dict[str, Any] = {"x": _image(rng, 1, 2, 5, 6), "sizes": np.array(sizes)}
        expected = run_onnxruntime(model, feeds)["y"]
        np.testing.assert_array_equal(net(feeds), expected)


def test_a_region_given_at_run_time() -> None:
    mode = 'mode: string = "linear", coordinate_transformation_mode: string = "tf_crop_and_resize"'
    attributes = f"{mode}, axes: ints = [2, 3], extrapolation_value: float = 9.0"
    model = _model(attributes, "float[4] roi, int64[2] sizes", 'x, roi, "", sizes')
    net = modelcc.compile(model, threads=1, cache=None)
    rng = np.random.default_rng(3)
    for roi in ((0.1, 0.2, 0.8, 0.9), (-0.25, 0.0, 1.5, 1.0)):
        for sizes in ((4, 3), (1, 6)):
            feeds: dict[str, Any] = {
                "x": _image(rng, 1, 2, 5, 6), "roi": np.float32(roi), "sizes": np.array(sizes),
            }  # fmt: skip
            (expected,) = ReferenceEvaluator(model).run(None, feeds)
            np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)
