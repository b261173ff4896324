"""The models of the comparison in JAX: functions of the parameters by PyTorch's names.

Each returns the logits and the running statistics after the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import lax

from benchmarks.training.shapes import WIDTHS

jnp: Any = jax.numpy

Parameters = Mapping[str, Any]
Forward = Callable[[Parameters, Parameters, Any], tuple[Any, dict[str, Any]]]


def _linear(p: Parameters, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _convolution(w: Any, x: Any, stride: int = 1, padding: int = 0) -> Any:
    return lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2)


def _pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def _mlp(p: Parameters, stats: Parameters, x: Any) -> tuple[Any, dict[str, Any]]:
    x = jax.nn.relu(_linear(p, "0", x))
    return _linear(p, "4", jax.nn.relu(_linear(p, "2", x))), {}


def _cnn(p: Parameters, stats: Parameters, x: Any) -> tuple[Any, dict[str, Any]]:
    for name, padding in (("0", 2), ("3", 0)):
        x = _convolution(p[f"{name}.weight"], x, 1, padding)
        x = _pooled(jax.nn.relu(x + p[f"{name}.bias"][:, None, None]))
    x = jax.nn.relu(_linear(p, "7", x.reshape(len(x), -1)))
    return _linear(p, "9", x), {}


def _norm(p: Parameters, stats: Parameters, made: dict[str, Any], name: str, x: Any) -> Any:
    """With batch statistics; ``made`` receives the running statistics, as in PyTorch."""
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    count = x.size // x.shape[1]
    for kind, new in (("mean", mean), ("var", variance * count / (count - 1))):
        key = f"{name}.running_{kind}"
        made[key] = 0.9 * stats[key] + 0.1 * lax.stop_gradient(new)
    scale = p[f"{name}.weight"] * lax.rsqrt(variance + 1e-5)
    return (x - mean[:, None, None]) * scale[:, None, None] + p[f"{name}.bias"][:, None, None]


def _resnet18(p: Parameters, stats: Parameters, x: Any) -> tuple[Any, dict[str, Any]]:
    made: dict[str, Any] = {}
    x = jax.nn.relu(_norm(p, stats, made, "1", _convolution(p["0.weight"], x, 1, 1)))
    for number, (_, _, stride) in enumerate(WIDTHS, 3):
        y = _convolution(p[f"{number}.conv1.weight"], x, stride, 1)
        y = jax.nn.relu(_norm(p, stats, made, f"{number}.bn1", y))
        y = _convolution(p[f"{number}.conv2.weight"], y, 1, 1)
        y = _norm(p, stats, made, f"{number}.bn2", y)
        if stride > 1:
            around = _convolution(p[f"{number}.downsample.0.weight"], x, stride)
            x = _norm(p, stats, made, f"{number}.downsample.1", around)
        x = jax.nn.relu(x + y)
    return _linear(p, f"{len(WIDTHS) + 5}", x.mean((2, 3))), made


def _layer_norm(p: Parameters, name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    scale = lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * p[f"{name}.weight"] + p[f"{name}.bias"]


def _attention(p: Parameters, name: str, x: Any, heads: int = 4) -> Any:
    batch, rows, width = x.shape
    packed = x @ p[f"{name}.in_proj_weight"].T + p[f"{name}.in_proj_bias"]
    q, k, v = (part.reshape(batch, rows, heads, -1) for part in jnp.split(packed, 3, -1))
    mixed = jax.nn.dot_product_attention(q, k, v)
    return _linear(p, f"{name}.out_proj", mixed.reshape(batch, rows, width))


def _transformer(p: Parameters, stats: Parameters, x: Any) -> tuple[Any, dict[str, Any]]:
    for number in range(4):
        name = f"blocks.{number}"
        x = _layer_norm(p, f"{name}.norm1", x + _attention(p, f"{name}.self_attn", x))
        up = jax.nn.gelu(_linear(p, f"{name}.linear1", x), approximate=False)
        x = _layer_norm(p, f"{name}.norm2", x + _linear(p, f"{name}.linear2", up))
    return _linear(p, "head", x.mean(1)), {}


def _lstm(p: Parameters, stats: Parameters, x: Any) -> tuple[Any, dict[str, Any]]:
    given = jnp.swapaxes(x @ p["lstm.weight_ih_l0"].T, 0, 1)
    bias = p["lstm.bias_ih_l0"] + p["lstm.bias_hh_l0"]

    def step(state: tuple[Any, Any], now: Any) -> tuple[tuple[Any, Any], None]:
        h, c = state
        i, f, g, o = jnp.split(now + h @ p["lstm.weight_hh_l0"].T + bias, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zeros = jnp.zeros((len(x), 128))
    (h, _), _ = lax.scan(step, (zeros, zeros), given)
    return _linear(p, "head", h), {}


MODELS: Mapping[str, Forward] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet18": _resnet18,
    "transformer": _transformer,
    "lstm": _lstm,
}
