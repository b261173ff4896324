"""Regions pooled with as many points as their sizes ask for, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import modelcc
from modelcc.driver import compile_model
from modelcc.runtime.session import Session
from tests.frontends.onnx.onnx_models import floats, one_node, run_onnxruntime
from tests.machines import chosen_options

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

SHAPES = [(2, 19, 8, 10), (1, 70, 1, 9), (2, 3, 1, 1), (2, 21, 40, 33)]
"""The last are so large that nine boxes are not worth a copy with channels last."""


def named_extents(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with names in place of the extents of its images and boxes."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for value, names in zip(changed.graph.input, ("NCHW", "K", "K"), strict=False):
        for dimension, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
            dimension.dim_param = name
    changed.graph.output[0].ClearField("type")
    return changed


@pytest.mark.share(4, "shape", "coordinates", "mode", "points", "named")
@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
@pytest.mark.parametrize("points", [0, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
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
            reversed_ = np.any(boxes[:, 2:] < boxes[:, :2], axis=1)
            (found,) = net.run({**feeds, "x1": boxes}).values()
            assert not found[reversed_].any()
            boxes = np.where(reversed_[:, None], np.roll(boxes, 2, 1), boxes)
            boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2])
        given = {**feeds, "x1": boxes}
        (found,) = net.run(given).values()
        (expected,) = run_onnxruntime(model, given).values()
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5, err_msg=kind)


@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
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


@pytest.mark.share(3, "extents", "corner", "mode", "target")
@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9])
@pytest.mark.parametrize("extents", [(8, 9), (40, 30)], ids=str)
def test_boxes_without_a_place(
    extents: tuple[int, int], corner: float, mode: str, target: str
) -> None:
    """They end soon, leave their neighbours alone, and what is not in the image is 0."""
    boxes = np.array([[1, 1, 6, 5], [corner, 1, 6, 5], [1, 1, 6, corner], [corner] * 4, [2] * 4])
    feeds = [floats(1, 5, *extents), boxes.astype(np.float32), np.zeros(5, np.int64)]
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
    attributes: dict[str, Any] = {"output_height": 2, "output_width": 2}
    if op == "MaxRoiPool":
        more, attributes = [np.hstack([[[0]], boxes]).astype(np.float32)], {"pooled_shape": [2, 2]}
    model, feeds = one_node(op, [floats(1, 2, 8, 9), *more], opset=16, **attributes)
    net = modelcc.compile(named_extents(model), threads=1, cache=None)
    for shape in ((1, 2, 0, 9), (1, 2, 8, 0), (0, 2, 8, 9)):
        with pytest.raises(modelcc.RunError, match="is outside of what has no elements"):
            net.run({**feeds, "x0": floats(*shape)})
    (found,) = net.run({**feeds, "x0": floats(1, 0, 8, 9)}).values()
    assert found.shape == (1, 0, 2, 2)


Kind = tuple[str, list[np.ndarray], dict[str, Any]]


def regions(op: str, shape: tuple[int, ...], count: int, dtype: str = "f4") -> Kind:
    """An operator, its inputs and its attributes: ``count`` boxes of images of this shape."""
    boxes = boxes_of("inside and across", count, *shape[2:]).astype(dtype)
    numbers, x = np.arange(count) % shape[0], floats(*shape).astype(dtype)
    if op == "MaxRoiPool":
        hulls = np.hstack([numbers[:, None], boxes]).astype(dtype)
        return op, [x, hulls], {"pooled_shape": [3, 4]}
    return op, [x, boxes, numbers], {"output_height": 3, "output_width": 4}


OPS = ["RoiAlign", "MaxRoiPool"]


@pytest.mark.share(2, "op", "threads", "target")
@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("op", "dtype"), [("RoiAlign", "f4"), ("RoiAlign", "f8"), ("MaxRoiPool", "f4")]
)
def test_sizes_of_a_run_decide_how_images_are_read(
    op: str, dtype: str, threads: int, target: str
) -> None:
    """Some of these are read as they are, the others with channels last."""
    _, feeds, attributes = regions(op, (2, 21, 9, 11), 3, dtype)
    model = named_extents(one_node(op, feeds, opset=16, **attributes)[0])
    net = modelcc.compile(model, target, threads=threads, cache=None)
    sizes = ((2, 21, 40, 33), (2, 21, 9, 11), (1, 70, 60, 50), (3, 16, 30, 1), (1, 5, 23, 29))
    for shape in sizes:
        for count in (1, 3, 12, 40):
            given = {f"x{i}": value for i, value in enumerate(regions(op, shape, count, dtype)[1])}
            (found,) = net.run(given).values()
            (expected,) = run_onnxruntime(model, given).values()
            np.testing.assert_allclose(found, expected, 1e-4, 1e-5, err_msg=f"{count} of {shape}")


@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
@pytest.mark.parametrize("op", OPS)
def test_threads_do_not_change_results(op: str, named: bool) -> None:
    _, feeds, attributes = regions(op, (2, 21, 40, 33), 3)
    model, given = one_node(op, feeds, opset=16, **attributes)
    model = named_extents(model) if named else model
    one, two = (
        next(iter(modelcc.compile(model, threads=threads, cache=None).run(given).values()))
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
@pytest.mark.parametrize("op", OPS)
def test_few_boxes_do_not_copy_images(op: str, named: bool) -> None:
    """Memory for a copy is taken for as many boxes as see about all pixels."""
    shape = (1, 64, 60, 70)
    bytes_of_images = 4 * int(np.prod(shape))
    for count, copied in ((1, False), (8, False), (100, True)):
        _, feeds, attributes = regions(op, shape, count)
        model, _ = one_node(op, feeds, opset=16, **attributes)
        given = named_extents(model) if named else model
        session = Session(compile_model(given, chosen_options(threads=1)).artifact)
        arena = session.arena_size(*(np.shape(value) for value in feeds))
        assert (arena > bytes_of_images) == copied
