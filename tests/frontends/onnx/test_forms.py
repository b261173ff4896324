"""Forms of operators that onnxruntime takes: ranks, types, broadcasts, sizes that are named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import modelcc
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import assert_agrees, floats, one_node, run_onnxruntime


def bytes_(*shape: int, seed: int = 0, dtype: type = np.uint8) -> Array:
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 5)]),
        ("...,...", [(2, 3), (1, 3)]),
        ("ij,ij->ij", [(2, 3), (2, 1)]),
        ("ij,jk->ik", [(2, 3), (1, 4)]),
    ],
)
def test_products_broadcast(equation: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [floats(*shape, seed=i) for i, shape in enumerate(shapes)]
    assert_agrees(*one_node("Einsum", operands, 13, equation=equation))


def test_normalisation_of_a_vector() -> None:
    operands = [floats(5), *(floats(1, seed=i, low=0.5) for i in range(1, 5))]
    assert_agrees(*one_node("BatchNormalization", operands, 15))


@pytest.mark.parametrize("scale", [2.0, 0.5, 1.7])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_integers_are_interpolated(dtype: type, scale: float) -> None:
    scales = np.array([1, 1, scale, scale], np.float32)
    image = bytes_(1, 2, 4, 5, dtype=dtype)
    model, feeds = one_node("Resize", [image, None, scales], 18, (2,), mode="linear")
    assert_agrees(model, feeds)
    (y,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    np.testing.assert_array_equal(y, run_onnxruntime(model, feeds)["y0"])


def test_interpolated_bytes_stay_in_range() -> None:
    image, scales = np.zeros((1, 1, 4, 4), np.uint8), np.array([1, 1, 2, 2], np.float32)
    image[..., 2:] = 255
    model, feeds = one_node("Resize", [image, None, scales], 18, (2,), mode="cubic")
    (y,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    assert y.min() == 0 and y.max() == 255 and y[0, 0, 0, 1] == 0 and y[0, 0, 0, 6] == 255


def named(
    op: str, operands: Sequence[Array], constant: Sequence[int], outputs: int
) -> modelcc.Model:
    """A compiled node whose first operand has named dimensions."""
    model, _ = one_node(op, operands, 15, constant, outputs)
    for i, dim in enumerate(model.graph.input[0].type.tensor_type.shape.dim):
        dim.dim_param = f"d{i}"
    return modelcc.compile(model, threads=1, cache=None)


def test_dropout_of_named_sizes() -> None:
    operands: list[Array] = [np.ones((2, 3), np.float32), np.array(0.25, np.float32)]
    net = named("Dropout", [*operands, np.array(True)], (1, 2), 2)
    for shape in ((200, 300), (3, 1)):
        x = floats(*shape)
        y, mask = net.run({"x0": x}).values()
        np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-6)
    y, mask = net.run({"x0": floats(200, 300)}).values()
    assert abs(mask.mean() - 0.75) < 0.01
    assert abs((mask[1:] == mask[:-1]).mean() - 0.625) < 0.01


def test_random_numbers_of_named_sizes() -> None:
    x = np.zeros((300, 200), np.float32)
    (y,) = named("RandomUniformLike", [x], (), 1).run({"x0": x}).values()
    assert 0 <= y.min() < 0.001 and 0.999 < y.max() < 1 and abs(y.mean() - 0.5) < 0.01
    (y,) = named("RandomNormalLike", [x], (), 1).run({"x0": x}).values()
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02 and abs((y**3).mean()) < 0.06


def test_a_matrix_with_scales_of_its_rows() -> None:
    """onnxruntime has none; the standard's own evaluator multiplies what it dequantises."""
    for scales in ((2, 3, 1), (2, 1, 1), (3,)):
        a, b = bytes_(2, 3, 4), bytes_(2, 4, 5, seed=1)
        a_scale = floats(*scales, low=0.01, high=0.05)
        operands = [a, a_scale, np.full(scales, 3, np.uint8), b, np.float32(0.02), np.uint8(2)]
        model, feeds = one_node("QLinearMatMul", [*operands, np.float32(0.9), np.uint8(1)], 21)
        rows = a_scale[:, None] if a_scale.ndim == 1 else a_scale
        exact = ((a - 3.0) * rows) @ ((b - 2.0) * 0.02) / 0.9 + 1
        (y,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
        assert np.abs(y - np.clip(exact, 0, 255)).max() <= 0.5001
