"""Nearest neighbours against NumPy: each element several times, in vectors and what is left."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import modelcc
from modelcc.ir.index import Sym, floordiv
from modelcc.schedule.lanes import repeats
from tests.machines import chosen_options

TYPES = {"float": np.float32, "double": np.float64, "uint8": np.uint8}
WIDTHS = (1, 2, 7, 8, 15, 16, 31, 32, 33, 100)


def _model(dtype: str, height: str, width: str, times: float) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g ({dtype}[1, 2, {height}, {width}] x) => '
        f"({dtype}[a, b, c, d] y) {{ s = Constant<value_floats = [1.0, 1.0, {times}, {times}]>() "
        'y = Resize<coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">'
        "(x, , s) }"
    )


@pytest.mark.parametrize("times", [2, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("dtype", TYPES)
def test_whole_multiples(dtype: str, times: int) -> None:
    options = chosen_options(threads=1)
    net = modelcc.compile(_model(dtype, "h", "w", times), options=options, cache=None)
    fixed = modelcc.compile(_model(dtype, "3", "100", times), options=options, cache=None)
    for width in WIDTHS:
        x = np.arange(2 * 3 * width).astype(TYPES[dtype]).reshape(1, 2, 3, width)
        expected = x.repeat(times, 2).repeat(times, 3)
        np.testing.assert_array_equal(net(x), expected, f"{width}")
        if width == 100:
            np.testing.assert_array_equal(fixed(x), expected)


def test_vectors_that_repeat() -> None:
    i, n = Sym("i"), Sym("n")
    assert repeats(floordiv(i, 2) + n, "i", 16) == 2
    assert repeats(floordiv(i, 8), "i", 16) == 8
    assert repeats(floordiv(i, 16), "i", 16) is None  # one element for all lanes
    assert repeats(floordiv(i, 3), "i", 16) is None
    assert repeats(floordiv(i + 1, 2), "i", 16) is None
    assert repeats(2 * floordiv(i, 2), "i", 16) is None
    assert repeats(i, "i", 16) is None
