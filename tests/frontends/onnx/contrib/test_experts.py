"""onnxruntime's mixtures of experts through compiled code, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

import modelcc
from modelcc.ir.types import Array
from tests.frontends.onnx.ml_models import assert_compiled_agrees, ml_model
from tests.frontends.onnx.onnx_models import floats

MS = "com.microsoft"
TOKENS, EXPERTS, HIDDEN, INNER = 6, 4, 32, 64


def run(op: str, operands: list[Array | None], **attributes: Any) -> Array:
    model, feeds = ml_model(op, operands, MS, **attributes)
    (found,) = modelcc.compile(model, threads=1, cache=None).run(feeds).values()
    return found


def layers(wide: int = 1, third: bool = False) -> list[Array | None]:
    shapes: list[tuple[int, ...]] = [
        (EXPERTS, wide * INNER, HIDDEN), (EXPERTS, wide * INNER), (EXPERTS, HIDDEN, INNER),
        (EXPERTS, HIDDEN),
    ]  # fmt: skip
    shapes += [(EXPERTS, INNER, HIDDEN), (EXPERTS, INNER)] if third else []
    return [floats(*shape, seed=n) * np.float32(0.2) for n, shape in enumerate(shapes)]


SCORES = floats(TOKENS, EXPERTS, seed=20)
SWIGLU: dict[str, Any] = {
    "activation_type": "swiglu", "activation_alpha": 1.7, "activation_beta": 1.0,
    "swiglu_limit": 0.8,
}  # fmt: skip


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "identity"])
def test_mixture(name: str) -> None:
    x = floats(2, TOKENS // 2, HIDDEN)
    attributes: dict[str, Any] = {
        "activation_type": name, "k": 2, "normalize_routing_weights": name != "relu"
    }  # fmt: skip
    model, feeds = ml_model("MoE", [x, SCORES, *layers()], MS, **attributes)
    assert_compiled_agrees(model, feeds, 1e-4, 1e-5)


@pytest.mark.parametrize(("hidden", "inner"), [(20, 12), (64, 40), (7, 3)])
def test_weights_that_are_constants(hidden: int, inner: int) -> None:
    """Packed for the loops of each expert, whole vectors or not."""
    w1, w2 = floats(EXPERTS, inner, hidden, seed=1), floats(EXPERTS, hidden, inner, seed=2)
    operands = [floats(TOKENS, hidden), SCORES, w1, None, w2]
    model, feeds = ml_model("MoE", operands, MS, k=2)
    weights = [given.name for given in model.graph.input[2:]]
    for name in weights:
        model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
    del model.graph.input[2:]
    assert_compiled_agrees(model, feeds, 1e-4, 1e-5)


def test_gated_mixture_of_any_number_of_tokens() -> None:
    operands = [floats(TOKENS, HIDDEN), SCORES, *layers(2)]
    model, feeds = ml_model("MoE", operands, MS, k=2, swiglu_fusion=1, **SWIGLU)
    for value in model.graph.input[:2]:
        value.type.tensor_type.shape.dim[0].dim_param = "tokens"
    assert_compiled_agrees(model, feeds, 1e-4, 1e-5)


def test_places_of_the_second_factor_of_a_gated_unit() -> None:
    """onnxruntime for processors takes neighbours only: the others are permutations of these."""
    (w1, b1, *rest), x = layers(2), floats(TOKENS, HIDDEN)
    assert w1 is not None and b1 is not None
    attributes = {"k": 2, **SWIGLU}
    expected = run("MoE", [x, SCORES, w1, b1, *rest], swiglu_fusion=1, **attributes)
    halves = [np.concatenate([a[:, ::2], a[:, 1::2]], 1) for a in (w1, b1)]
    found = run("MoE", [x, SCORES, *halves, *rest], swiglu_fusion=2, **attributes)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
    parts = [np.ascontiguousarray(a[:, i::2]) for i in (0, 1) for a in (w1, b1)]
    own = [x, SCORES, *parts[:2], *rest, *parts[2:]]
    np.testing.assert_allclose(run("MoE", own, **attributes), expected, 1e-5, 1e-6)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_third_layer() -> None:
    """onnxruntime for processors has none: by its definition, as in Mixtral."""
    x, operands = floats(TOKENS, HIDDEN), layers(third=True)
    found = run("MoE", [x, SCORES, *operands], k=2, activation_type="silu")
    w1, b1, w2, b2, w3, b3 = (np.asarray(a) for a in operands)
    for token, shares in enumerate(softmax(SCORES)):
        total = np.zeros(HIDDEN, np.float32)
        for e in np.argsort(-shares)[:2]:
            gate = w1[e] @ x[token] + b1[e]
            hidden = gate / (1 + np.exp(-gate)) * (w3[e] @ x[token] + b3[e])
            total += shares[e] * (w2[e] @ hidden + b2[e])
        np.testing.assert_allclose(found[token], total, 1e-4, 1e-5)


def sparse_mixer(scores: Array) -> list[tuple[int, float]]:
    """The two best experts of a token and their shares (Phi-3.5-MoE, without its noise)."""
    chosen: list[tuple[int, float]] = []
    left = scores.copy()
    for _ in range(2):
        best = int(left.argmax())
        far = (left[best] - scores) / np.maximum(np.abs(scores), left[best]) > 0.02
        chosen.append((best, softmax(np.where(far, -np.inf, left))[best]))
        left[best] = -np.inf
    return chosen


def test_sparse_mixer() -> None:
    """onnxruntime for processors leaves it out: by its definition."""
    x, operands = floats(TOKENS, HIDDEN), layers()
    scores = 1 + SCORES * np.float32(0.02)
    found = run("MoE", [x, scores, *operands], k=2, use_sparse_mixer=1, activation_type="relu")
    w1, b1, w2, b2 = (np.asarray(a) for a in operands)
    for token, row in enumerate(scores):
        total = sum(
            share * (w2[e] @ np.maximum(w1[e] @ x[token] + b1[e], 0) + b2[e])
            for e, share in sparse_mixer(row)
        )
        np.testing.assert_allclose(found[token], total, 1e-4, 1e-5)


def with_constants(model: ModelProto, feeds: dict[str, Array], kept: int) -> None:
    """All but the first ``kept`` operands become constants."""
    for name in list(feeds)[kept:]:
        model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
    del model.graph.input[kept:]


def quantised(
    outputs: int, inputs: int, bits: int, block: int, zeros: bool, seed: int
) -> tuple[Array, Array, Array | None]:
    rng, per = np.random.default_rng(seed), 8 // bits
    blocks = (inputs // block,) if block else ()
    packed = (-(-n // per) for n in blocks)
    shape = (EXPERTS, outputs, *packed) if block else (EXPERTS, -(-outputs // per))
    weights = rng.integers(0, 256, (EXPERTS, outputs, inputs // per), np.uint8)
    scales = rng.uniform(0.01, 0.02, (EXPERTS, outputs, *blocks)).astype(np.float32)
    return weights, scales, rng.integers(0, 256, shape, np.uint8) if zeros else None


@pytest.mark.parametrize(
    ("bits", "block", "zeros"),
    [(8, 0, True), (8, 0, False), (4, 0, True), (4, 16, True), (4, 32, False), (2, 16, True)],
)
def test_weights_of_few_bits(bits: int, block: int, zeros: bool) -> None:
    w1, s1, z1 = quantised(INNER, HIDDEN, bits, block, zeros, 1)
    w2, s2, z2 = quantised(HIDDEN, INNER, bits, block, zeros, 2)
    biases = [floats(EXPERTS, INNER), floats(EXPERTS, HIDDEN)]
    more = [z1, z2] if zeros else []
    operands = [
        floats(TOKENS, HIDDEN), SCORES, w1, s1, biases[0], w2, s2, biases[1], None, None, None,
        *more,
    ]  # fmt: skip
    sizes = {"block_size": block} if block else {}
    attributes: dict[str, Any] = {
        "k": 2, "expert_weight_bits": bits, "activation_type": "silu", **sizes
    }  # fmt: skip
    model, feeds = ml_model("QMoE", operands, MS, **attributes)
    with_constants(model, feeds, 2)
    assert_compiled_agrees(model, feeds, 1e-4, 1e-5)


def test_weights_of_routes() -> None:
    w1, s1, _ = quantised(INNER, HIDDEN, 4, 0, False, 1)
    w2, s2, _ = quantised(HIDDEN, INNER, 4, 0, False, 2)
    own = np.abs(floats(TOKENS, EXPERTS, seed=6))
    operands = [floats(TOKENS, HIDDEN), SCORES, w1, s1, None, w2, s2, *[None] * 7, own]
    model, feeds = ml_model("QMoE", operands, MS, k=3, activation_type="silu")
    rows = {n: feeds.pop(n) for n in ("x2", "x3", "x5", "x6")}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in rows.items())
    left = [value for value in model.graph.input if value.name not in rows]
    del model.graph.input[:]
    model.graph.input.extend(left)
    assert_compiled_agrees(model, feeds, 1e-4, 1e-5)
