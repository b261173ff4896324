"""Hardmax along rows of named lengths against NumPy: NaN, equals, nothing greater, no elements."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.parser
import pytest

import modelcc


@pytest.mark.parametrize(("name", "dtype"), [("float", "f4"), ("float16", "f2"), ("double", "f8")])
def test_rows_of_any_length(name: str, dtype: str) -> None:
    head = '<ir_version: 8, opset_import: ["" : 18]>'
    body = f"g ({name}[a, n] x) => ({name}[a, n] y) {{ y = Hardmax<axis = -1>(x) }}"
    net = modelcc.compile(onnx.parser.parse_model(f"{head} {body}"), cache=None)
    random = np.random.default_rng(0)
    for length, rows in itertools.product((0, 1, 7, 8, 9, 63, 64, 65, 128, 200), (0, 1, 5, 600)):
        x = random.integers(-3, 4, (rows, length)).astype(dtype)
        x[::3, length // 2 :: 5] = np.nan
        x[1::5] = -np.inf
        expected = np.zeros_like(x)
        if x.size:
            expected[np.arange(rows), x.argmax(1)] = 1
        np.testing.assert_array_equal(net.run({"x": x})["y"], expected)
