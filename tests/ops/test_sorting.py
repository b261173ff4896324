"""Sorted results of many elements, on values made to break an order: against NumPy and others."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import modelcc
from modelcc.driver import compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import Sym
from modelcc.ir.types import DTYPES, Array, TensorType, dtype_of
from modelcc.ops.shortlist import MOST
from modelcc.ops.top_k import TopK
from modelcc.ops.unique import Unique
from modelcc.runtime.session import Session
from tests.machines import chosen_options

N = 1500
DTYPES_WITH_ORDER = [
    *("f64", "f32", "f16", "bf16"),
    *("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
]
KS = (0, 1, MOST, MOST + 1, 700, N)


def rows(dtype: str) -> Mapping[str, Array]:
    """Rows of N numbers, by what is odd about them."""
    kind, rng = DTYPES[dtype].numpy, np.random.default_rng(5)
    if DTYPES[dtype].is_float:
        spread = rng.standard_normal(N) * 10.0 ** rng.integers(-6, 5, N)
        odd = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1, -1], N)
        few = rng.integers(-2, 3, N) * 0.5
    else:
        limits = np.iinfo(kind)
        spread = rng.integers(limits.min, limits.max, N, kind, endpoint=True)
        odd = rng.choice(np.array([limits.min, limits.max, 0, 1, limits.max // 2], kind), N)
        few = rng.integers(0, 3, N)
    ordered = np.sort(spread)
    found = {
        "spread": spread, "odd": odd, "few": few, "equal": np.ones(N),
        "ascending": ordered, "descending": ordered[::-1],
    }  # fmt: skip
    with np.errstate(all="ignore"):
        return {name: row.astype(kind) for name, row in found.items()}


def same(found: object, wanted: Array, what: str) -> None:
    """Equal, NaN where there is NaN; also for types of which NumPy does not know that."""
    plain = [np.asarray(a) for a in (found, wanted)]
    assert plain[0].dtype == plain[1].dtype
    floats = DTYPES_WITH_ORDER[:4]
    if dtype_of(wanted).name in floats:
        plain = [a.astype(np.float64) for a in plain]
    np.testing.assert_array_equal(*plain, what)


@pytest.mark.parametrize(
    ("dtype", "axis"), [("f32", 0), ("i8", 0), *((d, 1) for d in DTYPES_WITH_ORDER)]
)
def test_the_best_of_a_row(dtype: str, axis: int) -> None:
    x = np.stack(list(rows(dtype).values()), 1 - axis)
    ops = [TopK(k, axis, largest) for k, largest in product(KS, (True, False))]
    build = GraphBuilder("best")
    name = build.input("x", TensorType(x.shape, DTYPES[dtype]))
    outputs = [n for op in ops for n in build.add(op, name)]
    session = Session(compile_model(build.build(outputs), chosen_options()).artifact)
    found = list(session(x))
    for op, values, places in zip(ops, found[::2], found[1::2], strict=True):
        wanted, indices = op.reference(x)
        same(places, indices, f"{op}")
        same(values, wanted, f"{op}")


@pytest.mark.parametrize("dtype", DTYPES_WITH_ORDER)
def test_every_value_once(dtype: str) -> None:
    build = GraphBuilder("once")
    name = build.input("x", TensorType((Sym("n"),), DTYPES[dtype]))
    ops = (Unique(), Unique(sorted=False))
    outputs = [n for op in ops for n in build.add(op, name)]
    session = Session(compile_model(build.build(outputs), chosen_options()).artifact)
    for what, row in rows(dtype).items():
        for x in (row, row[:20], row[:1]):
            wanted = [a for op in ops for a in op.reference(x)]
            for a, b in zip(session(x), wanted, strict=True):
                same(a, b, what)


TOP_K = """<ir_version: 8, opset_import: ["" : 18]>
g (float[b, n] x, int64[1] k) => (float[b, m] y, int64[b, m] j) { y, j = TopK(x, k) }"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_number_given_at_run_time(threads: int) -> None:
    """Both ways are in the code; rows are shared among threads in blocks."""
    model = onnx.parser.parse_model(TOP_K)
    net = modelcc.compile(model, options=chosen_options(threads=threads), cache=None)
    rng = np.random.default_rng(0)
    for b, n in ((1, 1), (3, 1000), (37, 129), (0, 5)):
        x = rng.integers(0, 50, (b, n)).astype(np.float32)
        for k in sorted({0, 1, n // 2, n, min(n, MOST), min(n, MOST + 1)}):
            order = np.argsort(-x, 1, "stable")[:, :k]
            y, j = net(x, np.array([k]))
            np.testing.assert_array_equal(np.asarray(j), order)
            np.testing.assert_array_equal(np.asarray(y), np.take_along_axis(x, order, 1))


SUPPRESSION = """<ir_version: 8, opset_import: ["" : 18]>
g (float[b, n, 4] x, float[b, c, n] s, int64[1] k, float[1] t, float[1] l) => (int64[m, 3] y) {
  y = NonMaxSuppression(x, s, k, t, l)
}"""


def test_boxes_that_overlap_little() -> None:
    model = onnx.parser.parse_model(SUPPRESSION)
    net = modelcc.compile(model, options=chosen_options(), cache=None)
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(1)
    for batches, classes, n, most, overlap in (
        (1, 1, 2000, 100, 0.5), (2, 3, 333, 1000, 0.3), (1, 80, 30, 5, 0.0),
        (1, 2, 0, 5, 0.5), (1, 2, 40, 0, 0.5), (1, 1, 500, 500, 1.0),
    ):  # fmt: skip
        corner = rng.random((batches, n, 2))
        boxes = np.concatenate([corner, corner + rng.random((batches, n, 2)) * 0.3], -1)
        boxes = np.where(rng.random(boxes.shape) < 0.02, 0.5, boxes).astype(np.float32)
        # No two scores alike, for whose order the standard has no rule.
        scores = rng.permutation(batches * classes * n).reshape(batches, classes, n) / max(n, 1)
        feeds = {
            "x": boxes, "s": scores.astype(np.float32), "k": np.array([most]),
            "t": np.array([overlap], np.float32), "l": np.array([0.4], np.float32),
        }  # fmt: skip
        (wanted,) = peer.run(None, feeds)
        np.testing.assert_array_equal(np.asarray(net.run(feeds)["y"]), wanted)
