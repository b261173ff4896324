"""Transforms, grids and columns whose extents are computed at run time, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import modelcc
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import floats, parsed, run_onnxruntime

Feeds = dict[str, Array]


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def number(value: int) -> Array:
    return np.array(value, np.int64)


CASES: dict[str, tuple[str, int, Sequence[Feeds]]] = {
    "transform along any axis": (
        "main (float[a, b, c, 1] x, int64 axis) => (float[p, q, r, 2] y) "
        '{ y = DFT<onesided = 1>(x, "", axis) }',
        20,
        [{"x": floats(2, 5, 6, 1), "axis": number(axis)} for axis in (1, 2, -2)],
    ),
    "transform of any length": (
        "main (float[a, n, 2] x, int64 length) => (float[p, q, 2] y) "
        "{ axis = Constant<value_int = 1>() y = DFT(x, length, axis) }",
        20,
        [{"x": floats(2, n, 2), "length": number(k)} for n, k in ((6, 6), (5, 9), (9, 4))],
    ),
    "inverse transform": (
        "main (float[a, n, 2] x) => (float[p, q, 2] y) "
        '{ axis = Constant<value_int = 1>() y = DFT<inverse = 1>(x, "", axis) }',
        20,
        [{"x": floats(2, n, 2)} for n in (1, 6, 7)],
    ),
    "frames of any step": (
        "main (float[a, n, 1] x, int64 step, float[k] w) => (float[p, q, r, 2] y) "
        "{ y = STFT<onesided = 1>(x, step, w) }",
        17,
        [
            {"x": floats(2, n, 1), "step": number(s), "w": floats(k)}
            for n, s, k in ((20, 4, 8), (33, 5, 7))
        ],
    ),
    "columns of any image": (
        "main (float[a, b, c] x, int64[2] image, int64[2] block) => (float[p, q, r, s] y) "
        "{ y = Col2Im<strides = [2, 1], pads = [1, 0, 0, 1]>(x, image, block) }",
        18,
        [
            {"x": floats(2, 12, 15), "image": ints(5, 6), "block": ints(2, 3)},
            {"x": floats(1, 4, 27), "image": ints(4, 8), "block": ints(1, 1)},
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str) -> None:
    body, opset, sets = CASES[name]
    model = parsed(body, opset)
    net = modelcc.compile(model, threads=1, cache=None)
    for feeds in sets:
        np.testing.assert_allclose(
            net(feeds), run_onnxruntime(model, feeds)["y"], rtol=1e-4, atol=1e-5
        )


GRID = """main (float[n, 2, 3] theta, int64[4] size) => (float[n, h, w, 2] y)
    { y = AffineGrid<align_corners = ALIGN>(theta, size) }"""


@pytest.mark.parametrize("aligned", [0, 1])
def test_grids_of_any_size(aligned: int) -> None:
    model = parsed(GRID.replace("ALIGN", str(aligned)), 20)
    net = modelcc.compile(model, threads=1, cache=None)
    for n, h, w in ((1, 4, 5), (2, 3, 2)):
        feeds = {"theta": floats(n, 2, 3), "size": ints(n, 3, h, w)}
        (expected,) = map(np.asarray, ReferenceEvaluator(model).run(None, feeds))
        np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)


MEL = """main (int64 bins, int64 length, int64 rate, float low, float high) => (float[r, c] y)
    { y = MelWeightMatrix(bins, length, rate, low, high) }"""


def test_mel_filters_of_any_form() -> None:
    model = parsed(MEL)
    net = modelcc.compile(model, threads=1, cache=None)
    for bins, length, rate, low, high in ((8, 16, 8192, 0, 4096), (20, 400, 16000, 60, 7600)):
        feeds = {
            "bins": number(bins), "length": number(length), "rate": number(rate),
            "low": np.float32(low), "high": np.float32(high),
        }  # fmt: skip
        (expected,) = map(np.asarray, ReferenceEvaluator(model).run(None, feeds))
        np.testing.assert_allclose(net(feeds), expected, rtol=1e-4, atol=1e-5)
