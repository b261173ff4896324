"""onnxruntime's linear attention and gates through compiled code, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc.ir.types import Array
from tests.frontends.onnx.ml_models import assert_compiled_agrees, ml_model
from tests.frontends.onnx.onnx_models import floats

MS = "com.microsoft"
Form = tuple[str, list[Array | None], dict[str, Any]]


def agrees(form: Form, outputs: int = 1, symbolic: bool = False) -> None:
    op, operands, attributes = form
    model, feeds = ml_model(op, operands, MS, 1, outputs, symbolic, **attributes)
    assert_compiled_agrees(model, feeds, 1e-4, 1e-5)


def run(form: Form, outputs: int = 1) -> list[Array]:
    op, operands, attributes = form
    model, feeds = ml_model(op, operands, MS, 1, outputs, **attributes)
    return list(modelcc.compile(model, threads=1, cache=None).run(feeds).values())


X, ROW = floats(2, 5, 8), floats(8, seed=3)
STREAMS = floats(2, 3, 4, 8, seed=4)

GATES: tuple[Form, ...] = (
    ("GatedAdd", [X, floats(2, 5, 8, seed=1), floats(2, 5, 1, seed=2)], {}),
    ("ScaledSiLU", [X], {"alpha": 1.5}),
    ("ScaledSiLU", [X, np.array(0.7, np.float32)], {}),
    ("GatedRMSNorm", [X, ROW, floats(2, 5, 8, seed=1)], {}),
    ("GatedRMSNorm", [X, ROW[:4], floats(2, 5, 8, seed=1)], {"activation": "sigmoid"}),
    ("BranchwiseRMSNorm", [STREAMS], {}),
    ("BranchwiseRMSNorm", [STREAMS, ROW], {"epsilon": 1e-3}),
    ("BranchwiseRMSNorm", [X, ROW], {"num_branches": 2}),
    ("BranchwiseRMSNorm", [X, ROW.reshape(2, 4)], {"num_branches": 2}),
    ("HyperConnectionPreMix", [STREAMS, floats(2, 3, 4)], {"reduction_scale": 0.5}),
    ("HyperConnectionPreMix", [STREAMS, floats(2, 3, 4, 8)], {}),
    ("HyperConnectionPreMix", [X, floats(2, 5, 2)], {"num_branches": 2}),
    ("HyperConnectionPostMix", [STREAMS, floats(2, 3, 8), floats(2, 3, 4)], {}),
    (
        "HyperConnectionPostMix",
        [STREAMS, floats(2, 3, 8), floats(2, 3, 4, 8), floats(2, 3, 4, 4, seed=9)],
        {},
    ),
    ("LinearAttentionGate", [X, ROW, floats(8, seed=7)], {}),
)


@pytest.mark.parametrize("form", GATES, ids=lambda f: f[0])
def test_gates(form: Form) -> None:
    agrees(form)


def test_gates_with_two_results() -> None:
    agrees(("LinearAttentionGate", [X, ROW, floats(8, seed=7), floats(2, 5, 8, seed=8)], {}), 2)
    norms = [floats(4, 8, seed=n) for n in (1, 2, 3)]
    key, query, own = STREAMS, floats(2, 3, 4, 8, seed=5), floats(2, 3, 8, seed=6)
    agrees(("EngramGate", [key, query, own, *norms], {}), 2)


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(("heads", "few"), [(2, 2), (4, 2), (2, 4)])
def test_linear_attention(rule: str, length: int, heads: int, few: int) -> None:
    keys = min(heads, few) if heads < few else few
    q, k, v = (floats(2, length, n * 4, seed=n + i) for i, n in enumerate((heads, keys, few)))
    k = k / np.linalg.norm(k.reshape(2, length, keys, 4), axis=-1).repeat(4, -1)
    state = floats(2, few, 4, 4, seed=8)
    decay = -np.abs(floats(2, length, few, seed=3)) if "gated" in rule else None
    beta = np.abs(floats(2, length, few, seed=4)) if "delta" in rule else None
    operands: list[Array | None] = [q, k, v, state, decay, beta]
    attributes = {"q_num_heads": heads, "kv_num_heads": few, "update_rule": rule}
    agrees(("LinearAttention", operands, attributes), 2)


def test_linear_attention_with_a_decay_for_each_key() -> None:
    q, k, v, decay = (floats(2, 3, 8, seed=n) for n in range(4))
    operands: list[Array | None] = [q, k, v, None, -np.abs(decay), None]
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "gated", "scale": 0.3}
    agrees(("LinearAttention", operands, attributes), 2, symbolic=True)


def test_states_after_the_last_tokens() -> None:
    """onnxruntime for processors keeps one state only: each is the last one of a shorter run."""
    q, k, v, decay = (floats(1, 3, 8, seed=n) for n in range(4))
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "gated"}
    past = floats(4, 1, 2, 4, 4, seed=9)
    window = {**attributes, "state_window": 4}
    _, states = run(("LinearAttention", [q, k, v, past, decay], window), 2)
    np.testing.assert_array_equal(states[0], past[3])
    for count in (1, 2, 3):
        cut = [x[:, :count].copy() for x in (q, k, v)]
        operands = [*cut, past[3].copy(), decay[:, :count].copy()]
        _, state = run(("LinearAttention", operands, attributes), 2)
        np.testing.assert_allclose(states[count], state, 1e-5, 1e-6)


@pytest.mark.parametrize("rule", ["gated", "gated_delta"])
@pytest.mark.parametrize("packed", [False, True])
def test_delta_net(rule: str, packed: bool) -> None:
    """onnxruntime has none for processors: by its definition, token for token."""
    q, k, v = (floats(6, n, 4, seed=n) for n in (2, 2, 4))
    decay, beta = (floats(6, 4, seed=n) for n in (3, 4))
    state, a_log, bias = floats(2, 4, 4, 4, seed=7), floats(4, seed=5), floats(4, seed=6)
    together = np.concatenate([x.reshape(6, -1) for x in (q, k, v)], 1)
    parts: list[Array | None] = [together, None, None] if packed else [q, k, v]
    attributes = {"update_rule": rule, "gate_activation": "qwen", "beta_activation": "sigmoid",
                  "qk_l2_norm": 1}  # fmt: skip
    operands = [*parts, None, decay, beta, state, a_log, bias]
    y, last = run(("GatedDeltaNet", operands, attributes), 2)
    g = -np.exp(a_log) * np.log1p(np.exp(decay + bias))
    rate = 1 / (1 + np.exp(-beta))
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    for token in range(6):
        b = token // 3
        for h in range(4):
            s = np.exp(g[token, h]) * state[b, h].T
            update = v[token, h]
            if rule == "gated_delta":
                update = rate[token, h] * (update - s.T @ k[token, h // 2])
            s = s + np.outer(k[token, h // 2], update)
            state[b, h] = s.T
            np.testing.assert_allclose(y[token, h], s.T @ q[token, h // 2] / 2, 1e-4, 1e-5)
    np.testing.assert_allclose(last, state, 1e-4, 1e-5)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("more", [[], [floats(3)], [floats(3), floats(2, 3, 6, seed=1)]])
def test_causal_convolution(length: int, more: list[Array]) -> None:
    x, kernel = floats(2, 3, length, seed=5), floats(3, 1, 4, seed=6)
    attributes = {"activation": "silu", "dilation": 2}
    agrees(("CausalConvWithState", [x, kernel, *more], attributes), 2)


def test_causal_convolution_with_channels_last() -> None:
    x, kernel, state = floats(2, 5, 3, 2), floats(6, 1, 4, seed=6), floats(2, 3, 3, 2, seed=7)
    agrees(("CausalConvWithState", [x, kernel, None, state], {"channels_last": 1}), 2)


def test_inputs_before_the_last_positions() -> None:
    """onnxruntime for processors keeps one state only."""
    x, kernel, past = floats(1, 3, 2), floats(3, 1, 4, seed=6), floats(3, 1, 3, 3, seed=7)
    attributes = {"state_window": 3}
    _, states = run(("CausalConvWithState", [x, kernel, None, past], attributes), 2)
    seen = np.concatenate([past[2], x], 2)
    np.testing.assert_array_equal(states[0], past[2])
    np.testing.assert_array_equal(states[1], seen[..., 1:4])
    np.testing.assert_array_equal(states[2], seen[..., 2:5])
