"""Resize with scales, sizes and regions that are computed at run time: one compiled model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser
from onnx.reference import ReferenceEvaluator

import modelcc
from tests.frontends.onnx.onnx_models import run_onnxruntime


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
            feeds = {"x": _image(rng, *shape), "scales": np.array(scales, "f")}
            expected = run_onnxruntime(model, feeds)["y"]
            np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)


def test_corners_are_aligned_by_scaled_extents_as_in_the_standards_reference() -> None:
    attributes = 'mode: string = "linear", coordinate_transformation_mode: string = "align_corners"'
    model = _model(attributes, "float[4] scales", 'x, "", scales')
    net = modelcc.compile(model, threads=1, cache=None)
    rng = np.random.default_rng(1)
    for scales in SCALES:
        feeds = {"x": _image(rng, 1, 2, 5, 7), "scales": np.array(scales, "f")}
        (expected,) = map(np.asarray, ReferenceEvaluator(model).run(None, feeds))
        np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_proportions_are_kept_at_every_size(policy: str) -> None:
    attributes = f'axes: ints = [2, 3], keep_aspect_ratio_policy: string = "{policy}"'
    model = _model(attributes, "int64[2] sizes", 'x, "", "", sizes')
    net = modelcc.compile(model, threads=1, cache=None)
    rng = np.random.default_rng(2)
    for sizes in ((7, 8), (3, 9), (2, 2)):
        feeds = {"x": _image(rng, 1, 2, 5, 6), "sizes": np.array(sizes)}
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
            feeds = {
                "x": _image(rng, 1, 2, 5, 6), "roi": np.array(roi, "f"), "sizes": np.array(sizes),
            }  # fmt: skip
            (expected,) = map(np.asarray, ReferenceEvaluator(model).run(None, feeds))
            np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.share(2, "kind", "coordinates")
@pytest.mark.parametrize("kind", ["scales", "sizes"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
def test_linear_along_rows_and_columns(coordinates: str, kind: str) -> None:
    attributes = (
        f'mode: string = "linear", coordinate_transformation_mode: string = "{coordinates}"'
    )
    by_scales = kind == "scales"
    operands = 'x, "", scales' if by_scales else 'x, "", "", sizes'
    model = _model(attributes, "float[4] scales" if by_scales else "int64[4] sizes", operands)
    net = modelcc.compile(model, threads=1, cache=None)
    rng = np.random.default_rng(4)
    for shape in ((1, 2, 40, 33), (2, 2, 5, 64)):
        for factors in ((2, 2), (0.1, 2), (0.05, 0.25), (1.5, 1), (1, 3.5), (1, 1)):
            sizes = (*shape[:2], *(int(e * f) for e, f in zip(shape[2:], factors, strict=True)))
            given = np.array([1, 1, *factors], np.float32) if by_scales else np.array(sizes)
            feeds = {"x": _image(rng, *shape), kind: given}
            if min(sizes) < 1 or (coordinates == "align_corners" and by_scales):
                continue  # onnxruntime aligns the corners of whole elements
            expected = run_onnxruntime(model, feeds)["y"]
            np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_all_axes_by_scales_at_run_time(mode: str) -> None:
    model = _model(f'mode: string = "{mode}"', "float[4] scales", 'x, "", scales')
    net = modelcc.compile(model, threads=1, cache=None)
    rng = np.random.default_rng(5)
    for scales in ((2, 1.5, 1, 2), (1, 2, 0.5, 1), (0.5, 0.5, 0.25, 0.25), (2, 1, 2, 1)):
        feeds = {"x": _image(rng, 2, 2, 8, 12), "scales": np.array(scales, "f")}
        (expected,) = map(np.asarray, ReferenceEvaluator(model).run(None, feeds))
        np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_channels_that_stay_are_not_mixed(mode: str) -> None:
    model = _model(f'mode: string = "{mode}"', "float[4] scales", 'x, "", scales')
    net = modelcc.compile(model, threads=1, cache=None)
    image = _image(np.random.default_rng(6), 2, 2, 5, 6)
    image[0, 1] = np.inf
    y = net({"x": image, "scales": np.array([1, 1, 2, 2], np.float32)})
    assert np.isfinite(y[0, 0]).all()
    assert np.isfinite(y[1]).all()


def test_integers_by_scales_at_run_time() -> None:
    head = '<ir_version: 8, opset_import: ["" : 19]>'
    model = parser.parse_model(
        f"{head} main (uint8[1, 3, h, w] x, float[4] scales) => (uint8[a, b, c, d] y) "
        '{ y = Resize <mode: string = "nearest"> (x, "", scales) }'
    )
    net = modelcc.compile(model, threads=1, cache=None)
    for height, width in ((4, 100), (33, 7)):
        image = np.random.default_rng(7).integers(0, 255, (1, 3, height, width), np.uint8)
        for scales in SCALES:
            feeds = {"x": image, "scales": np.array(scales, "f")}
            np.testing.assert_array_equal(net(feeds), run_onnxruntime(model, feeds)["y"])


@pytest.mark.share(3, "size", "mode")
@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 1), (1, 3), (7, 5)])
@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_images_smaller_than_any_tile(mode: str, size: tuple[int, int]) -> None:
    """Loops over tiles of rows never run then, and nothing is wrong in them."""
    height, width = size
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 19]>\n'
        f"main (float[1, 1, {height}, {width}] x, float[4] s) => (float[1, 1, c, d] y) "
        f'{{ y = Resize <mode = "{mode}"> (x, "", s) }}'
    )
    net = modelcc.compile(model, threads=1, cache=None)
    rng = np.random.default_rng(1)
    for scales in ((1.0, 1.0, 2.0, 2.0), (1.0, 1.0, 1.0, 3.0)):
        feeds = {"x": _image(rng, 1, 1, *size), "s": np.array(scales, "f")}
        expected = run_onnxruntime(model, feeds)["y"]
        np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)
