"""Products of bytes that both come at run time, against onnxruntime where it is exact."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto

import modelcc
from modelcc.ir.scalar import WORD_DOTS
from modelcc.ir.scalar_tree import walk
from modelcc.ir.tensor import Apply
from modelcc.options import Options
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options
from tests.word_products import kernels_of, word_products

OPTIONS = chosen_options(threads=1)
TYPES = {"uint8": np.uint8, "int8": np.int8}
SHAPES = [(5, 6, 17), (16, 64, 33), (20, 1, 20), (9, 31, 3), (8, 5, 24), (8, 7, 40)]


def model_of(body: str) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {body}')


def result(model: ModelProto, feeds: dict[str, Any]) -> np.ndarray:
    return modelcc.compile(model, options=OPTIONS, cache=None)(feeds)


def everything(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(TYPES[dtype])
    return rng.integers(info.min, info.max, shape, TYPES[dtype], endpoint=True)


@pytest.mark.share(2, "shape", "named")
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_signs_are_exact(shape: tuple[int, int, int], named: bool) -> None:
    """onnxruntime's sums of u8 by i8 saturate on some processors: NumPy's do not."""
    rng = np.random.default_rng(0)
    m, k, n = ("m", "k", "n") if named else shape
    for left, right in product(TYPES, TYPES):
        a, b = everything(rng, left, *shape[:2]), everything(rng, right, *shape[1:])
        model = model_of(
            f"({left}[{m},{k}] a, {right}[{k},{n}] b) => (int32[{m},{n}] y)"
            " { y = MatMulInteger(a, b) }"
        )
        expected = a.astype(np.int64) @ b.astype(np.int64)
        np.testing.assert_array_equal(result(model, {"a": a, "b": b}), expected)
        if (left, right) == ("uint8", "uint8"):
            known = run_onnxruntime(model, {"a": a, "b": b})["y"]
            np.testing.assert_array_equal(known, expected)


@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
def test_bytes_are_multiplied_as_they_are_where_the_processor_does_so(
    left: str, right: str
) -> None:
    """Of two factors one must have signs and the other none; it may get them on the way."""
    model = model_of(
        f"({left}[n, k] a, {right}[k, n] b) => (int32[n, n] y) {{ y = MatMulInteger(a, b) }}"
    )
    found = {cpu: _functions(model, cpu) for cpu in ("znver3", "znver4")}
    assert found["znver3"] == {"dot_halves"}
    assert found["znver4"] == ({"dot_halves"} if left == right == "int8" else {"dot_bytes"})


def _functions(model: ModelProto, cpu: str) -> set[str]:
    """What multiplies words in code for a processor."""
    kernels = kernels_of(model, Options(cpu=cpu, threads=1))
    nodes = [n for k in kernels for stage in k.stages for n in walk(stage.body)]
    return {n.function for n in nodes if isinstance(n, Apply) and n.function in WORD_DOTS}


@pytest.mark.share(4, "types", "zeros", "batch")
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("zeros", [("", ""), ("", "n"), ("m", ""), ("m", "n")], ids=str)
@pytest.mark.parametrize("types", tuple(product(TYPES, TYPES)), ids=str)
def test_zero_points_at_run_time(
    types: tuple[str, str], zeros: tuple[str, str], batch: tuple[int, ...]
) -> None:
    """One for all, or one per row and per column; the right operand has no batches."""
    if batch and zeros[0]:
        pytest.skip("a zero point per row is for matrices")
    rng = np.random.default_rng(0)
    sizes = {"m": 13, "k": 21, "n": 35, "": 1}
    dims = [f"[{z}]" if z else "" for z in zeros]
    left, right = types
    lead = "".join(f"{extent}," for extent in batch)
    model = model_of(
        f"({left}[{lead}m,k] a, {right}[k,n] b, {left}{dims[0]} p, {right}{dims[1]} q)"
        f" => (int32[{lead}m,n] y) {{ y = MatMulInteger(a, b, p, q) }}"
    )
    a, b = everything(rng, left, *batch, 13, 21), everything(rng, right, 21, 35)
    p, q = (
        everything(rng, t, *((sizes[z],) if z else ())) for t, z in zip(types, zeros, strict=True)
    )
    rows = p.astype(np.int64)[:, None] if p.ndim else p.astype(np.int64)
    expected = (a.astype(np.int64) - rows) @ (b.astype(np.int64) - q.astype(np.int64))
    np.testing.assert_array_equal(result(model, {"a": a, "b": b, "p": p, "q": q}), expected)
    assert word_products(model, OPTIONS) == 1


@pytest.mark.parametrize("depth", [64, 33])
def test_quantised_again(depth: int) -> None:
    rng = np.random.default_rng(0)
    model = model_of(
        f"(uint8[2,n,{depth}] a, uint8[2,{depth},k] b, float s, uint8 z, float t, uint8 v,"
        " float u, uint8 p) => (uint8[2,n,k] y) { y = QLinearMatMul(a, s, z, b, t, v, u, p) }"
    )
    feeds = {
        "a": everything(rng, "uint8", 2, 19, depth), "b": everything(rng, "uint8", 2, depth, 40),
        "s": np.float32(0.02), "z": np.uint8(113), "t": np.float32(0.03), "v": np.uint8(140),
        "u": np.float32(0.5), "p": np.uint8(100),
    }  # fmt: skip
    feeds = {name: np.asarray(value) for name, value in feeds.items()}
    expected = run_onnxruntime(model, feeds)["y"]
    difference = np.abs(result(model, feeds).astype(int) - expected.astype(int))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.01
    assert word_products(model, OPTIONS) == 1


def test_dynamically_quantised() -> None:
    rng = np.random.default_rng(0)
    model = model_of(
        """(float[2,n,k] x, float[2,k,m] w) => (float[2,n,m] y) {
          a, s, z = DynamicQuantizeLinear(x)
          b, t, v = DynamicQuantizeLinear(w)
          i = MatMulInteger(a, b, z, v)
          f = Cast<to=1>(i)
          st = Mul(s, t)
          y = Mul(f, st) }"""
    )
    feeds = {
        "x": rng.standard_normal((2, 21, 37)).astype(np.float32),
        "w": rng.standard_normal((2, 37, 50)).astype(np.float32),
    }
    expected = run_onnxruntime(model, feeds)["y"]
    np.testing.assert_allclose(result(model, feeds), expected, rtol=1e-5, atol=1e-4)
    assert word_products(model, OPTIONS) == 1


def test_what_is_used_once_stays_where_it_is() -> None:
    one = model_of("(uint8[1,64] a, uint8[64,n] b) => (int32[1,n] y) { y = MatMulInteger(a, b) }")
    same = model_of("(uint8[9,9] a) => (int32[9,9] y) { y = MatMulInteger(a, a) }")
    assert word_products(one, OPTIONS) == word_products(same, OPTIONS) == 0
    a = everything(np.random.default_rng(0), "uint8", 9, 9)
    np.testing.assert_array_equal(result(same, {"a": a}), a.astype(int) @ a.astype(int))
