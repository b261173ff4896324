"""Tiles in numbers that are computed at run time."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import parser

import modelcc
from tests.frontends.onnx.onnx_models import run_onnxruntime


@pytest.mark.parametrize("dtype", ["float", "uint8", "int64"])
@pytest.mark.parametrize("shape", ["2, 3, 5", "b, h, w"])
def test_tiles_at_run_time(shape: str, dtype: str) -> None:
    """Which axes are repeated, and so how long blocks are, is decided by each call."""
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 19]> main ({dtype}[{shape}] x, int64[3] r) '
        f"=> ({dtype}[c, d, e] y) {{ y = Tile (x, r) }}"
    )
    net = modelcc.compile(model, threads=1, cache=None)
    for extents in ((2, 3, 5),) if shape[0] == "2" else ((2, 3, 5), (1, 7, 1), (4, 0, 2)):
        x = np.arange(np.prod(extents)).reshape(extents).astype(dtype.replace("float", "float32"))
        for repeats in product((0, 1, 2, 3), repeat=3):
            feeds: dict[str, Any] = {"x": x, "r": np.array(repeats)}
            found, expected = net(feeds), run_onnxruntime(model, feeds)["y"]
            np.testing.assert_array_equal(found, expected, f"{extents} {repeats}")


def test_tiles_between_others() -> None:
    """What reads tiles need not be the last step."""
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 19]> main (float[n, m] x, int64[2] r, float[1] v) '
        "=> (float[a, b] y, int64[2] s) { z = Neg (x) t = Tile (z, r) "
        "y = Add (t, v) s = Shape (t) }"
    )
    net = modelcc.compile(model, threads=1, cache=None)
    for repeats in product((0, 1, 3), repeat=2):
        feeds: dict[str, Any] = {
            "x": np.arange(35, dtype=np.float32).reshape(5, 7), "r": np.array(repeats),
            "v": np.array([0.5], np.float32),
        }  # fmt: skip
        expected = run_onnxruntime(model, feeds)
        for name, found in net.run(feeds).items():
            np.testing.assert_array_equal(found, expected[name])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_tiles_along_one_axis(axis: int) -> None:
    """Before opset 6 ``tiles`` is how often one axis is repeated."""
    model = parser.parse_model(
        '<ir_version: 3, opset_import: ["" : 5]> main (float[n, 4] x, int64[1] tiles) '
        f"=> (float[a, b] y) {{ axis = Constant <value = int64[1] {{{axis}}}> () "
        "y = Tile (x, tiles, axis) }"
    )
    net = modelcc.compile(model, threads=1, cache=None)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for tiles in (0, 1, 3):
        repeats = [tiles if a == axis % 2 else 1 for a in range(2)]
        found = net({"x": x, "tiles": np.array([tiles])})
        np.testing.assert_array_equal(found, np.tile(x, repeats))
