"""TopK of one element against NumPy: rows of any length, equals, NaN, zeros of both signs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx.parser
import pytest

import modelcc

TYPES = (
    ("float", "f4"), ("float16", "f2"), ("double", "f8"), ("int64", "i8"), ("int32", "i4"),
    ("uint8", "u1"), ("int8", "i1"), ("uint64", "u8"),
)  # fmt: skip
LENGTHS = (1, 7, 8, 9, 63, 64, 65, 128, 200, 4095, 4096)


def _rows(length: int, rows: int, dtype: str) -> Any:
    random = np.random.default_rng(length)
    x = random.integers(0 if dtype[0] == "u" else -3, 4, (rows, length)).astype(dtype)
    if dtype[0] != "f":
        limits = np.iinfo(x.dtype)
        x[::3], x[1::5, -1], x[2::5, -1] = x[::3] + limits.min, limits.max, limits.min
        return x
    x[::4, length // 2 :: 5] = np.nan
    x[1::4, length // 3 :: 2] = -np.inf
    x[2::8], x[3::8], x[3::16, 0] = np.inf, np.nan, np.inf
    x[4::7] = np.copysign(0, random.random(x[4::7].shape) - 0.5)  # equal
    return x


def _expected(x: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    """NaN is the greatest; of equals the first."""
    place = np.argmax(x, axis) if largest else np.argsort(x, axis, "stable").take(0, axis)
    place = np.expand_dims(place, axis)
    return np.take_along_axis(x, place, axis), place


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("name", "dtype"), TYPES)
def test_rows_of_any_length(name: str, dtype: str, largest: int) -> None:
    """Also where k, too, is found at run time, and along columns."""
    graphs = [
        (f"g ({name}[a, n] x) => ({name}[a, 1] y, int64[a, 1] j) {{ k = Constant<value_ints = [1]>"
         f"() y, j = TopK<largest = {largest}>(x, k) }}", 1),
        (f"g ({name}[a, n] x, int64[1] k) => ({name}[a, b] y, int64[a, b] j) "
         f"{{ y, j = TopK<largest = {largest}>(x, k) }}", 1),
        (f"g ({name}[n, a] x, int64[1] k) => ({name}[c, a] y, int64[c, a] j) "
         f"{{ y, j = TopK<axis = 0, largest = {largest}>(x, k) }}", 0),
    ]  # fmt: skip
    for graph, axis in graphs:
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {graph}')
        net = modelcc.compile(model, threads=1, cache=None)
        for length, rows in itertools.product(LENGTHS, (0, 1, 40)):
            x = _rows(length, rows, dtype)
            x = np.ascontiguousarray(x if axis else x.T)
            found = net.run({"x": x} | ({"k": np.array([1])} if "int64[1] k" in graph else {}))
            values, places = _expected(x, axis, bool(largest))
            np.testing.assert_array_equal(found["j"], places, f"{length} {rows}")
            np.testing.assert_array_equal(found["y"], values)
            if dtype[0] == "f":
                np.testing.assert_array_equal(np.signbit(found["y"]), np.signbit(values))


@pytest.mark.parametrize("length", [1, 7, 8, 21, 64, 100])
def test_rows_of_a_known_length(length: int) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[a, {length}] x) => '
        "(float[a, 1] y, int64[a, 1] j) { k = Constant<value_ints = [1]>() y, j = TopK(x, k) }"
    )
    x = _rows(length, 40, "f4")
    found = modelcc.compile(model, threads=1, cache=None).run({"x": x})
    for name, value in zip("yj", _expected(x, 1, True), strict=True):
        np.testing.assert_array_equal(found[name], value)
