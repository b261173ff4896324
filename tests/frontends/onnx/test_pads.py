"""Pads that are computed at run time: every mode, and pads that cut off."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import parser

import modelcc
from tests.frontends.onnx.onnx_models import run_onnxruntime

PAD: Any = np.pad
"""By any mode, which its types have one by one."""


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("dtype", ["float", "uint8"])
def test_pads_at_run_time(mode: str, dtype: str) -> None:
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 19]> main ({dtype}[2, n, 21] x, int64[6] pads) '
        f'=> ({dtype}[a, b, c] y) {{ y = Pad <mode: string = "{mode}"> (x, pads) }}'
    )
    net = modelcc.compile(model, threads=1, cache=None)
    kind = np.float32 if dtype == "float" else np.uint8
    for n in (4, 17):
        x = np.arange(2 * n * 21).reshape(2, n, 21).astype(kind)
        for before, after in product((0, 1, 3), (0, 2, 11)):
            feeds: dict[str, Any] = {"x": x, "pads": np.array([0, 1, before, 1, 3, after])}
            np.testing.assert_array_equal(net(feeds), run_onnxruntime(model, feeds)["y"])


@pytest.mark.parametrize(("before", "after"), [(-3, 5), (5, -3), (-2, -19), (-21, 4), (0, -21)])
def test_pads_that_cut_off(before: int, after: int) -> None:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 19]> main (float[n, 21] x, int64[4] pads) '
        "=> (float[a, b] y) { y = Pad (x, pads) }"
    )
    net = modelcc.compile(model, threads=1, cache=None)
    x = np.arange(1, 5 * 21 + 1, dtype=np.float32).reshape(5, 21)
    cut = x[1:, max(-before, 0) : 21 + min(after, 0)]
    expected = np.pad(cut, ((0, 2), (max(before, 0), max(after, 0))))
    found = net({"x": x, "pads": np.array([-1, before, 2, after])})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("shape", ["2, 5, 3", "b, h, w"])
def test_rows_that_stay_whole_and_rows_that_do_not(mode: str, shape: str) -> None:
    """Whether the last axis is padded is decided by each call of one compiled model."""
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 19]> main (float[{shape}] x, int64[6] pads) '
        f'=> (float[c, d, e] y) {{ y = Pad <mode: string = "{mode}"> (x, pads) }}'
    )
    net = modelcc.compile(model, threads=1, cache=None)
    x = np.arange(1, 31, dtype=np.float32).reshape(2, 5, 3)
    rows = [(0, 0, 0), (1, 1, 0), (0, 4, 0), (1, 0, 0), (0, 0, 2), (1, 2, 1), (0, -2, 0)]
    rows += [(0, -4, 0), (-1, 3, 0), (0, 0, -1), (-1, -1, -2)]
    compared = 0
    for before, after in product(rows, rows):
        sizes = np.array(x.shape) + np.minimum(before, 0) + np.minimum(after, 0)
        low = 1 if mode == "constant" else 1 + np.maximum(np.maximum(before, after), 0)
        if np.any(sizes < low):
            continue
        cut = x[tuple(slice(max(-b, 0), x.shape[n] - max(-a, 0))
                      for n, (b, a) in enumerate(zip(before, after, strict=True)))]  # fmt: skip
        widths = list(zip(np.maximum(before, 0), np.maximum(after, 0), strict=True))
        found = net({"x": x, "pads": np.array([*before, *after])})
        expected: NDArray[np.float32] = PAD(cut, widths, mode)
        np.testing.assert_array_equal(found, expected, f"{before} {after}")
        compared += 1
    assert compared > 20


def test_tensors_without_elements() -> None:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 19]> main (float[b, h, w] x, int64[6] pads, float v) '
        "=> (float[c, d, e] y) { y = Pad (x, pads, v) }"
    )
    net = modelcc.compile(model, threads=1, cache=None)
    amounts = ([0] * 6, [0, 1, 0, 0, 2, 0], [1, 0, 0, 0, 0, 0], [1] * 6)
    for shape, pads in product(((0, 5, 3), (2, 0, 3), (2, 5, 0), (0, 0, 0)), amounts):
        found = net({"x": np.zeros(shape, np.float32), "pads": np.array(pads), "v": np.float32(7)})
        assert isinstance(found, np.ndarray)
        assert found.shape == tuple(np.array(shape) + pads[:3] + pads[3:])
        assert np.all(found == 7)


@pytest.mark.parametrize(("before", "after"), [(-25, 9), (9, -25)])
def test_pads_that_cut_off_more_than_there_is(before: int, after: int) -> None:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 19]> main (float[n] x, int64[2] pads) '
        "=> (float[a] y) { y = Pad (x, pads) }"
    )
    net = modelcc.compile(model, threads=1, cache=None)
    x = np.ones(21, np.float32)
    np.testing.assert_array_equal(net({"x": x, "pads": np.array([before, after])}), np.zeros(5))
