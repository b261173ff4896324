"""onnxruntime's quantised operators (com.microsoft) through compiled code, against onnxruntime.

Quantised results may differ by one step: a product of scales is rounded once, not twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import modelcc
from modelcc.ir.types import Array
from tests.frontends.onnx.ml_models import ml_model
from tests.frontends.onnx.onnx_models import floats, run_onnxruntime

MS = "com.microsoft"
Form = tuple[str, Sequence[Array | None], dict[str, Any]]


def bytes_(*shape: int, dtype: type[np.integer[Any]] = np.uint8, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    values = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape)
    return values.astype(dtype)


def scale(value: float) -> Array:
    return np.array(value, np.float32)


def zero(value: int, dtype: type[np.integer[Any]] = np.uint8) -> Array:
    return np.array(value, dtype)


def i8(*shape: int, seed: int = 1) -> Array:
    return bytes_(*shape, dtype=np.int8, seed=seed)


def agrees(form: Form, constant: bool, outputs: int = 1, atol: float = 1e-4) -> None:
    """Operands after the first are initialisers if ``constant``."""
    op, operands, attributes = form
    model, feeds = ml_model(op, operands, MS, 1, outputs)
    given = (helper.make_attribute(name, value) for name, value in attributes.items())
    model.graph.node[0].attribute.extend(given)
    if constant:
        kept = [feeds.pop(name) for name in list(feeds)[1:]]
        names = [i.name for i in model.graph.input][1:]
        del model.graph.input[1:]
        model.graph.initializer.extend(
            numpy_helper.from_array(a, n) for a, n in zip(kept, names, strict=True)
        )
    ours = modelcc.compile(model, threads=1, cache=None).run(feeds)
    for name, expected in run_onnxruntime(model, feeds).items():
        assert ours[name].dtype == expected.dtype
        assert ours[name].shape == expected.shape
        step = 1 if expected.dtype.kind in "ui" else atol
        difference = np.abs(ours[name].astype(np.float64) - expected.astype(np.float64))
        assert difference.max() <= step


X = [bytes_(2, 6, 5, 4), scale(0.02), zero(120)]
Y = [bytes_(2, 6, 5, 4, seed=3), scale(0.03), zero(99)]
S = [i8(2, 6, 5, 4), scale(0.02), zero(-9, np.int8)]

FORMS: tuple[Form, ...] = (
    ("QLinearAdd", [*X, *Y, scale(0.04), zero(110)], {}),
    ("QLinearAdd", [*S, *S, scale(0.04), zero(3, np.int8)], {}),
    ("QLinearMul", [*X, *Y, scale(0.05), zero(128)], {}),
    ("QLinearSigmoid", [*X, scale(1 / 256), zero(0)], {}),
    ("QLinearLeakyRelu", [*X, scale(0.02), zero(100)], {"alpha": 0.2}),
    ("QLinearSoftmax", [*X, scale(1 / 256), zero(0)], {"axis": -1, "opset": 13}),
    ("QLinearGlobalAveragePool", [*X, scale(0.01), zero(128)], {"channels_last": 0}),
    ("QLinearGlobalAveragePool", [*X, scale(0.01), zero(128)], {"channels_last": 1}),
    (
        "QLinearAveragePool",
        [*X, scale(0.015), zero(128)],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]},
    ),
    *(
        (
            "QLinearAveragePool",
            [*X, scale(0.015), zero(128)],
            {"kernel_shape": [6, 3], "strides": [3, 2], "ceil_mode": 1, "count_include_pad": pads},
        )
        for pads in (0, 1)
    ),
    (
        "QLinearConv",
        [bytes_(2, 5, 4, 6), scale(0.02), zero(120), i8(4, 6, 3, 3), scale(0.01),
         zero(0, np.int8), scale(0.1), zero(100), np.arange(4, dtype=np.int32) * 50],
        {"channels_last": 1, "pads": [1, 1, 1, 1], "strides": [2, 1]},
    ),
    (
        "QLinearWhere",
        [bytes_(2, 6, 5, 4) > 99, *X, *Y, scale(0.025), zero(100)],
        {},
    ),
    (
        "NhwcMaxPool",
        [bytes_(2, 6, 5, 4)],
        {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]},
    ),
    ("GridSample", [floats(2, 3, 5, 6), floats(2, 4, 3, 2)], {"align_corners": 1}),
    ("GridSample", [floats(2, 3, 5, 6), floats(2, 4, 3, 2)], {"padding_mode": "border"}),
    ("QLinearConcat", [scale(0.03), zero(110), *X, *Y], {"axis": 1}),
    (
        "QGemm",
        [bytes_(3, 8), scale(0.02), zero(120), i8(5, 8), scale(0.01), zero(0, np.int8),
         np.arange(5, dtype=np.int32) * 100, scale(0.05), zero(90)],
        {"transB": 1},
    ),
    (
        "QGemm",
        [bytes_(3, 8), scale(0.02), zero(120), bytes_(8, 5), scale(0.01), zero(130)],
        {"alpha": 0.5},
    ),
    ("DynamicQuantizeMatMul", [floats(3, 8), i8(8, 16), scale(0.02), zero(0, np.int8)], {}),
    (
        "DynamicQuantizeMatMul",
        [floats(3, 8), bytes_(8, 16), floats(16, seed=4), bytes_(16, seed=9), floats(16)],
        {},
    ),
    (
        "MatMulIntegerToFloat",
        [bytes_(3, 8), i8(8, 16), scale(0.02), scale(0.03), zero(7), zero(0, np.int8), floats(16)],
        {},
    ),
)  # fmt: skip


@pytest.mark.parametrize("constant", [True, False], ids=["constants", "inputs"])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f[0])
def test_agrees_with_onnxruntime(form: Form, constant: bool) -> None:
    agrees(form, constant)


@pytest.mark.parametrize("constant", [True, False], ids=["constants", "inputs"])
def test_sums_do_not_saturate(constant: bool) -> None:
    """Largest products, which no two fit 16 bits: by onnxruntime and by NumPy's integers."""
    x, w = np.full((3, 8), 255, np.uint8), i8(8, 16)
    w[:, 0], w[:, 1] = 127, -128
    operands = [x, w, scale(0.5), scale(0.25), zero(7), zero(-1, np.int8)]
    agrees(("MatMulIntegerToFloat", operands, {}), constant)
    model, feeds = ml_model("MatMulIntegerToFloat", operands, MS, 1)
    wanted = (x.astype(np.int64) - 7) @ (w.astype(np.int64) + 1) / 8
    for found in (
        modelcc.compile(model, threads=1, cache=None).run,
        partial(run_onnxruntime, model),
    ):
        (y,) = found(feeds).values()
        np.testing.assert_array_equal(y, wanted)


def test_embeddings() -> None:
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, n, (2, 3), np.int32) for n in (9, 2)]
    tables = [bytes_(n, 8, seed=n) for n in (9, 5, 2)]
    norm = [bytes_(8, seed=7), bytes_(8, seed=8)]
    scales = [scale(v) for v in (0.02, 0.01, 0.03, 0.015, 0.01)]
    zeros = [zero(v) for v in (120, 130, 99, 100, 128)]
    mask = np.ones((2, 3), np.int32)
    operands = [*ids, *tables, *norm, mask, *scales, *zeros]
    agrees(("QEmbedLayerNormalization", operands, {}), True, 2)


def test_attention() -> None:
    operands = [
        bytes_(1, 6, 8), i8(8, 24), floats(24), scale(0.02), scale(0.01), None, zero(120),
        zero(0, np.int8),
    ]  # fmt: skip
    agrees(("QAttention", operands, {"num_heads": 2}), constant=False, atol=1e-3)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("columns", [False, True])
def test_lstm(directions: int, columns: bool) -> None:
    """onnxruntime quantises states in each step, which moves results by about a step."""
    hidden, inputs, d = 8, 6, directions
    shape = (d, 4 * hidden) if columns else (d,)
    rng = np.random.default_rng(2)
    scales = [rng.uniform(0.002, 0.004, shape).astype(np.float32) for _ in range(2)]
    zeros = [np.zeros(shape, np.int8) for _ in range(2)]
    operands: list[Array | None] = [
        floats(5, 2, inputs), i8(d, inputs, 4 * hidden), i8(d, hidden, 4 * hidden),
        floats(d, 8 * hidden, seed=5), None, None, None, None,
        scales[0], zeros[0], scales[1], zeros[1],
    ]  # fmt: skip
    direction = "bidirectional" if d == 2 else "forward"
    attributes = {"hidden_size": hidden, "direction": direction}
    agrees(("DynamicQuantizeLSTM", operands, attributes), constant=True, outputs=3, atol=1e-5)


@pytest.mark.parametrize("middle", [128, 120])
def test_lstm_of_unsigned_weights(middle: int) -> None:
    """As i8 they have a zero point of 0, or another one."""
    hidden, inputs = 8, 6
    zeros = [np.full(1, middle, np.uint8) for _ in range(2)]
    operands: list[Array | None] = [
        floats(5, 2, inputs), bytes_(1, inputs, 4 * hidden), bytes_(1, hidden, 4 * hidden),
        floats(1, 8 * hidden, seed=5), None, None, None, None,
        np.array([0.003], np.float32), zeros[0], np.array([0.002], np.float32), zeros[1],
    ]  # fmt: skip
    attributes = {"hidden_size": hidden}
    agrees(("DynamicQuantizeLSTM", operands, attributes), constant=True, outputs=3, atol=1e-5)


def test_a_mean_is_requantised() -> None:
    """onnxruntime has no such kernel: by its definition."""
    x = bytes_(2, 6, 5)
    operands = [x, scale(0.02), zero(120), scale(0.01), zero(128)]
    model, feeds = ml_model("QLinearReduceMean", operands, MS, axes=[-1], keepdims=0)
    (found,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    mean = ((x.astype(np.float32) - 120) * np.float32(0.02)).mean(-1)
    expected = np.clip(np.rint(mean / np.float32(0.01)) + 128, 0, 255)
    assert found.dtype == np.uint8 and np.abs(found - expected).max() <= 1
