"""Elements that are put back to where a pool took them from, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import modelcc
from tests.frontends.onnx.onnx_models import floats, one_node, run_onnxruntime


def _places(rows: int, columns: int) -> np.ndarray:
    """Where a pool of 2 x 2 may have found the greatest elements of six planes."""
    rng = np.random.default_rng(rows)
    corners = np.arange(6 * rows)[:, None] * (4 * columns) + 2 * np.arange(columns)
    steps = rng.integers(0, 2, (2, 6 * rows, columns))
    return (corners + 2 * columns * steps[0] + steps[1]).reshape(2, 3, rows, columns)


@pytest.mark.parametrize("names", ["", "2", "3", "23", "0123"])
def test_any_extents(names: str) -> None:
    model, _ = one_node(
        "MaxUnpool", [floats(2, 3, 4, 5), _places(4, 5)], 20, kernel_shape=[2, 2], strides=[2, 2]
    )
    for value in model.graph.input:
        for axis in map(int, names):
            value.type.tensor_type.shape.dim[axis].dim_param = "NCHW"[axis]
    model.graph.output[0].ClearField("type")
    net = modelcc.compile(model, threads=1, cache=None)
    sizes = [(4, 5), (9 if "2" in names else 4, 7 if "3" in names else 5)]
    for rows, columns in [*sizes, (0, 5)] if "2" in names else sizes:
        given = {"x0": floats(2, 3, rows, columns), "x1": _places(rows, columns)}
        (found,) = net.run(given).values()
        assert found.shape == (2, 3, 2 * rows, 2 * columns)
        if rows:
            np.testing.assert_array_equal(found, run_onnxruntime(model, given)["y0"])


def test_the_last_of_several_at_one_place_remains() -> None:
    places = np.array([[[[0, 5, 5], [5, 0, 23]]]])
    model, feeds = one_node(
        "MaxUnpool", [floats(1, 1, 2, 3), places], 20, kernel_shape=[2, 2], strides=[2, 2]
    )
    (found,) = modelcc.compile(model, threads=2, cache=None).run(feeds).values()
    np.testing.assert_array_equal(found, run_onnxruntime(model, feeds)["y0"])
