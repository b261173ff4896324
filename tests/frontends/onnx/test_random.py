"""Random numbers: their distribution, and that they follow from the seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelcc.frontends.onnx import import_onnx
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import parsed


def drawn(node: str, x: Array | None = None, extents: str = "4, 5") -> Array:
    inputs = "" if x is None else f"float[{extents}] x"
    graph = import_onnx(parsed(f"g ({inputs}) => (y) {{ y = {node} }}"))
    feeds: dict[str, Any] = {} if x is None else {"x": x}
    (result,) = interpret(graph, feeds).values()
    return result


def test_uniform_numbers_lie_between_their_bounds() -> None:
    y = drawn("RandomUniform <shape = [40, 50], low = -1.0, high = 3.0, seed = 7.0> ()")
    assert y.shape == (40, 50)
    assert y.dtype == np.float32
    assert -1 <= y.min() < -0.9 < 2.9 < y.max() <= 3
    assert abs(y.mean() - 1) < 0.1


def test_normal_numbers_have_their_mean_and_deviation() -> None:
    y = drawn("RandomNormal <shape = [2000], mean = 2.0, scale = 0.5, dtype = 11> ()")
    assert y.dtype == np.float64
    assert abs(y.mean() - 2) < 0.05
    assert abs(y.std() - 0.5) < 0.05


def test_shape_and_type_are_those_of_another_tensor() -> None:
    x = np.zeros((4, 5), np.float32)
    for name in ("RandomUniformLike", "RandomNormalLike"):
        y = drawn(f"{name} (x)", x)
        assert (y.shape, y.dtype) == (x.shape, x.dtype)


def test_the_seed_decides() -> None:
    one, same, other = (
        drawn(f"RandomUniform <shape = [9], seed = {seed}> ()") for seed in (1.0, 1.0, 2.0)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_draws_are_as_frequent_as_their_probabilities() -> None:
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0]], np.float32)
    with np.errstate(divide="ignore"):
        logarithms = np.log(p)
    y = drawn("Multinomial <sample_size = 4000, seed = 3.0> (x)", logarithms, "2, 3")
    assert y.dtype == np.int32
    shares = np.stack([np.bincount(row, minlength=3) / 4000 for row in y])
    np.testing.assert_allclose(shares, p, atol=0.03)
