"""Counts and lengths that nobody should give, at run time: a result by the standard, or an error.

Inputs end where a page begins that nobody may read, as in :mod:`tests.test_hostile_indices`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import modelcc
from modelcc.runtime.errors import InputError, RunError
from tests.machines import chosen_options
from tests.test_hostile_indices import guarded

F, INT = np.float32, np.int64
NAN = float("nan")
TOP = "(float[a, n] x, int64[1] k) => (float[a, m] y, int64[a, m] j) { y, j = TopK(x, k) }"
COLUMNS = TOP.replace("TopK", "TopK<axis = 0>").replace("[a, m]", "[m, n]")
TILE = "(float[a, n] x, int64[2] t) => (float[p, q] y) { y = Tile(x, t) }"
PAD = "(float[n] x, int64[2] p) => (float[m] y) { y = Pad(x, p) }"
HOT = "(int64[n] x, int64 d, float[2] v) => (float[n, m] y) { y = OneHot(x, d, v) }"
SHAPE = "(int64[2] s) => (float[a, b] y) { y = ConstantOfShape(s) }"
EXPAND = "(float[1, n] x, int64[2] s) => (float[a, b] y) { y = Expand(x, s) }"
SPLIT = "(float[n] x, int64[2] s) => (float[a] y, float[b] z) { y, z = Split<axis = 0>(x, s) }"
SLICE = (
    "(float[n] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => (float[m] y) "
    "{ y = Slice(x, s, e, a, t) }"
)
BOXES = (
    "(float[1, n, 4] b, float[1, 1, n] s, int64[1] k, float[1] t) => (int64[m, 3] y) "
    "{ y = NonMaxSuppression(b, s, k, t) }"
)
DFT = "(float[1, n, 1] x) => (float[1, n, 2] y) { y = DFT<axis = 1>(x) }"
HALF = "(float[1, n, 1] x) => (float[1, m, 2] y) { y = DFT<axis = 1, onesided = 1>(x) }"
RESIZE = (
    "(float[1, 1, h, w] x) => (float[a, b, c, d] y) { s = Constant<value_floats = [1.0, 1.0, 2.0, "
    "1.7]>() y = Resize(x, , s) }"
)
ROWS = "(float[n, 3] x, int64[k, 1] i, float[k, 3] u) => (float[n, 3] y) { y = ScatterND(x, i, u) }"
PRODUCT = "(uint8[m, k] a, int8[k, n] b) => (int32[m, n] y) { y = MatMulInteger(a, b) }"


def ints(*values: int) -> np.ndarray:
    return np.array(values, INT)


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=F).reshape(shape)


def run(graph: str, feeds: dict[str, Any], threads: int = 1) -> list[np.ndarray]:
    opset = 17 if "DFT" in graph else 18
    net = modelcc.compile(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}'),
        options=chosen_options(threads=threads),
        cache=None,
    )
    return list(net.run({name: guarded(value) for name, value in feeds.items()}).values())


REFUSED = {
    "DFT of 0": (DFT, {"x": ramp(1, 0, 1)}),
    "TopK negative": (TOP, {"x": ramp(2, 5), "k": ints(-1)}),
    "TopK above": (TOP, {"x": ramp(2, 5), "k": ints(6)}),
    "TopK far above": (TOP, {"x": ramp(2, 5), "k": ints(2**62)}),
    "TopK columns above": (COLUMNS, {"x": ramp(5, 40), "k": ints(6)}),
    "TopK of nothing": (TOP, {"x": ramp(2, 0), "k": ints(1)}),
    "Tile negative": (TILE, {"x": ramp(2, 5), "t": ints(2, -1)}),
    "Tile far": (TILE, {"x": ramp(2, 5), "t": ints(2**40, 2**40)}),
    "Pad below nothing": (PAD, {"x": ramp(5), "p": ints(-3, -3)}),
    "Pad far": (PAD, {"x": ramp(5), "p": ints(2**62, 2**62)}),
    "OneHot negative": (HOT, {"x": ints(0, 1), "d": np.array(-2), "v": ramp(2)}),
    "ConstantOfShape negative": (SHAPE, {"s": ints(2, -1)}),
    "ConstantOfShape far": (SHAPE, {"s": ints(2**40, 2**40)}),
    "Expand negative": (EXPAND, {"x": ramp(1, 3), "s": ints(-1, 3)}),
    "Split negative": (SPLIT, {"x": ramp(5), "s": ints(-1, 6)}),
    "Split beyond": (SPLIT, {"x": ramp(5), "s": ints(4, 4)}),
    "Slice by 0": (SLICE, {"x": ramp(5), "s": ints(0), "e": ints(5), "a": ints(0), "t": ints(0)}),
    "Slice of no axis": (
        SLICE, {"x": ramp(5), "s": ints(0), "e": ints(5), "a": ints(1), "t": ints(1)}
    ),
}  # fmt: skip


@pytest.mark.share(2, "name", "threads")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", REFUSED)
def test_counts_that_cannot_be_are_refused(name: str, threads: int) -> None:
    with pytest.raises((RunError, InputError, MemoryError)):
        run(*REFUSED[name], threads)


SUPPRESSED = {
    "b": np.array([[[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [NAN] * 4]], F),
    "s": np.array([[[0.5, 0.9, NAN, 0.7]]], F),
    "t": np.array([0.5], F),
}
ODD = np.array([[1, NAN, 3, NAN], [NAN, -1, np.inf, 0]], F)
GIVEN: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "TopK of 0": (TOP, {"x": ramp(2, 5), "k": ints(0)}, [ramp(2, 0), ramp(2, 0)]),
    "TopK 0 of nothing": (TOP, {"x": ramp(2, 0), "k": ints(0)}, [ramp(2, 0), ramp(2, 0)]),
    "TopK of no rows": (TOP, {"x": ramp(0, 5), "k": ints(2)}, [ramp(0, 2), ramp(0, 2)]),
    "TopK of no columns": (COLUMNS, {"x": ramp(5, 0), "k": ints(2)}, [ramp(2, 0), ramp(2, 0)]),
    "TopK of NaN": (
        TOP, {"x": ODD, "k": ints(3)}, [np.array([[NAN, NAN, 3], [NAN, np.inf, 0]]),
                                        np.array([[1, 3, 2], [0, 2, 3]])],
    ),
    "TopK of NaN in columns": (
        COLUMNS, {"x": ODD.T.copy(), "k": ints(2)},
        [np.array([[NAN, NAN], [NAN, np.inf]]), np.array([[1, 0], [3, 2]])],
    ),
    "Tile by 0": (TILE, {"x": ramp(2, 5), "t": ints(2, 0)}, [ramp(4, 0)]),
    "Tile of nothing": (TILE, {"x": ramp(0, 5), "t": ints(3, 2)}, [ramp(0, 10)]),
    "Pad away": (PAD, {"x": ramp(5), "p": ints(-2, -3)}, [ramp(0)]),
    "Pad nothing": (PAD, {"x": ramp(0), "p": ints(1, 2)}, [np.zeros(3)]),
    "OneHot of nothing": (HOT, {"x": ints(), "d": np.array(3), "v": ramp(2)}, [ramp(0, 3)]),
    "OneHot beyond": (
        HOT, {"x": ints(-4, -1, 3, 2**40), "d": np.array(3), "v": ramp(2)},
        [np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])],
    ),
    "Slice far steps": (
        SLICE, {"x": ramp(5), "s": ints(0), "e": ints(5), "a": ints(0), "t": ints(2**62)},
        [ramp(1)],
    ),
    "Slice of nothing": (
        SLICE, {"x": ramp(0), "s": ints(0), "e": ints(5), "a": ints(0), "t": ints(1)}, [ramp(0)]
    ),
    "no boxes wanted": (BOXES, {**SUPPRESSED, "k": ints(-1)}, [ramp(0, 3)]),
    "0 boxes wanted": (BOXES, {**SUPPRESSED, "k": ints(0)}, [ramp(0, 3)]),
    "boxes and scores of NaN": (
        BOXES, {**SUPPRESSED, "k": ints(2**62)}, [np.array([[0, 0, 1], [0, 0, 3], [0, 0, 2]])]
    ),
    "no boxes": (
        BOXES, {"b": ramp(1, 0, 4), "s": ramp(1, 1, 0), "k": ints(5), "t": np.array([0.5], F)},
        [ramp(0, 3)],
    ),
    "DFT of 1": (DFT, {"x": np.array([[[3]]], F)}, [np.array([[[3, 0]]])]),
    "DFT of 1, half": (HALF, {"x": np.array([[[3]]], F)}, [np.array([[[3, 0]]])]),
    "Resize of nothing": (RESIZE, {"x": ramp(1, 1, 0, 3)}, [ramp(1, 1, 0, 5)]),
    "duplicates": (
        ROWS, {"x": np.zeros((4, 3), F), "i": ints(2, 2, -2)[:, None], "u": ramp(3, 3)},
        [np.array([[0] * 3, [0] * 3, [6, 7, 8], [0] * 3])],
    ),
    "no updates": (ROWS, {"x": ramp(4, 3), "i": ramp(0, 1).astype(INT), "u": ramp(0, 3)},
                   [ramp(4, 3)]),
    "no updates of nothing": (
        ROWS, {"x": ramp(0, 3), "i": ramp(0, 1).astype(INT), "u": ramp(0, 3)}, [ramp(0, 3)]
    ),
    "product of no depth": (
        PRODUCT, {"a": np.zeros((3, 0), np.uint8), "b": np.zeros((0, 40), np.int8)},
        [np.zeros((3, 40))],
    ),
    "product of no columns": (
        PRODUCT, {"a": np.zeros((3, 5), np.uint8), "b": np.zeros((5, 0), np.int8)}, [ramp(3, 0)]
    ),
}  # fmt: skip


@pytest.mark.share(2, "name", "threads")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", GIVEN)
def test_odd_counts_and_lengths_give_what_the_standard_says(name: str, threads: int) -> None:
    graph, feeds, expected = GIVEN[name]
    for found, wanted in zip(run(graph, feeds, threads), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
