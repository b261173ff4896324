"""Regions pooled with as many points as their sizes ask for, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
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


def boxes_of(kind: str, count: int, height: int, width: int) -> np.ndarray:
    """Boxes (x1, y1, x2, y2) that lie as ``kind`` says."""
    rng, far = np.random.default_rng(len(kind)), max(height, width)
    first = rng.uniform(0, 0.7, (count, 2)) * [width, height]
    second = first + rng.random((count, 2)) * [width, height]
    found = {
        "inside and across": np.hstack([first, second]),
        "reversed": np.hstack([second, first]),
        "empty": np.hstack([first, first]),
        "far outside": rng.uniform(-3 * far, 4 * far, (count, 4)),
        "on pixels": rng.integers(-3, far + 3, (count, 4)),
        "between pixels": rng.integers(-6, 2 * far + 6, (count, 4)) / 2,
    }[kind]
    return found.astype(np.float32)


KINDS = ("inside and across", "reversed", "empty", "far outside", "on pixels", "between pixels")


def named_extents(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with names in place of the extents of its images and boxes."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for value, names in zip(changed.graph.input, ("NCHW", "K", "K"), strict=False):
        for dimension, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
            dimension.dim_param = name
    changed.graph.output[0].ClearField("type")
    return changed


@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
@pytest.mark.parametrize("points", [0, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("shape", [(2, 19, 8, 10), (1, 70, 1, 9), (2, 3, 1, 1)], ids=str)
def test_boxes_anywhere(
    shape: tuple[int, ...], coordinates: str, mode: str, points: int, named: bool
) -> None:
    numbers = np.arange(9) % shape[0]
    model, feeds = one_node(
        "RoiAlign", [floats(*shape), boxes_of("empty", 9, *shape[2:]), numbers], opset=16,
        output_height=3, output_width=4, sampling_ratio=points, spatial_scale=0.7, mode=mode,
        coordinate_transformation_mode=coordinates,
    )  # fmt: skip
    net = modelcc.compile(named_extents(model) if named else model, threads=1, cache=None)
    for kind in KINDS:
        boxes = boxes_of(kind, 9, *shape[2:])
        if points == 0 and coordinates == "half_pixel":
            # A reversed box has no points: onnxruntime refuses it, or ends with a fault.
            reversed_ = (boxes[:, 2:] < boxes[:, :2]).any(1)
            (found,) = net.run({**feeds, "x1": boxes}).values()
            assert not found[reversed_].any()
            boxes = np.where(reversed_[:, None], np.roll(boxes, 2, 1), boxes)
            boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2])
        given = {**feeds, "x1": boxes}
        (found,) = net.run(given).values()
        (expected,) = run_onnxruntime(model, given).values()
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5, err_msg=kind)


@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
@pytest.mark.parametrize("shape", [(2, 19, 8, 10), (1, 70, 1, 9), (2, 3, 1, 1)], ids=str)
def test_greatest_elements_of_boxes_anywhere(shape: tuple[int, ...], named: bool) -> None:
    numbers = (np.arange(9) % shape[0]).astype(np.float32)[:, None]
    model, feeds = one_node(
        "MaxRoiPool", [floats(*shape), np.hstack([numbers, boxes_of("empty", 9, *shape[2:])])],
        opset=16, pooled_shape=[3, 4], spatial_scale=0.5,
    )  # fmt: skip
    net = modelcc.compile(named_extents(model) if named else model, threads=1, cache=None)
    for kind in KINDS:
        given = {**feeds, "x1": np.hstack([numbers, boxes_of(kind, 9, *shape[2:])])}
        (found,) = net.run(given).values()
        (expected,) = run_onnxruntime(model, given).values()
        np.testing.assert_array_equal(found, expected, err_msg=kind)


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9])
def test_boxes_without_a_place(corner: float, mode: str, target: str) -> None:
    """They end soon, leave their neighbours alone, and what is not in the image is 0."""
    boxes = np.array([[1, 1, 6, 5], [corner, 1, 6, 5], [1, 1, 6, corner], [corner] * 4, [2] * 4])
    feeds = [floats(1, 5, 8, 9), boxes.astype(np.float32), np.zeros(5, np.int64)]
    model, given = one_node(
        "RoiAlign", feeds, opset=16, output_height=2, output_width=2, mode=mode,
    )  # fmt: skip
    (found,) = modelcc.compile(model, target, threads=2, cache=None).run(given).values()
    (alone,) = run_onnxruntime(model, {**given, "x1": feeds[1][[0] * 5]}).values()
    np.testing.assert_allclose(found[0], alone[0], 1e-4, 1e-5)
    np.testing.assert_array_equal(found[3], 0)
    assert np.isfinite(found[0]).all()
    hulls = np.hstack([np.zeros((5, 1)), boxes]).astype(np.float32)
    model, given = one_node("MaxRoiPool", [feeds[0], hulls], opset=16, pooled_shape=[2, 2])
    (found,) = modelcc.compile(model, target, threads=2, cache=None).run(given).values()
    (alone,) = run_onnxruntime(model, {**given, "x1": hulls[[0] * 5]}).values()
    np.testing.assert_array_equal(found[0], alone[0])
    assert np.isfinite(found).all()


@pytest.mark.parametrize("op", ["RoiAlign", "MaxRoiPool"])
def test_images_without_pixels(op: str) -> None:
    boxes = np.array([[0, 1, 6, 5]], np.float32)
    more: list[np.ndarray] = [boxes, np.zeros(1, np.int64)]
    attributes: dict[str, object] = {"output_height": 2, "output_width": 2}
    if op == "MaxRoiPool":
        more, attributes = [np.hstack([[[0]], boxes]).astype(np.float32)], {"pooled_shape": [2, 2]}
    model, feeds = one_node(op, [floats(1, 2, 8, 9), *more], opset=16, **attributes)
    net = modelcc.compile(named_extents(model), threads=1, cache=None)
    for shape in ((1, 2, 0, 9), (1, 2, 8, 0), (0, 2, 8, 9)):
        with pytest.raises(modelcc.RunError, match="is outside of what has no elements"):
            net.run({**feeds, "x0": floats(*shape)})
    (found,) = net.run({**feeds, "x0": floats(1, 0, 8, 9)}).values()
    assert found.shape == (1, 0, 2, 2)
