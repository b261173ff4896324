"""JAX counterparts of some models of the zoo: the same computation, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import jax
import numpy as np

jnp: Any = jax.numpy

Params = Any


def _random(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(0).normal(0, 0.05, shape), jnp.float32)


def _dense(width: int, outputs: int) -> Params:
    return _random(width, outputs), _random(outputs)


def _apply(layer: Params, x: Any) -> Any:
    w, b = layer
    return x @ w + b


def _mlp() -> tuple[Callable[..., Any], Params]:
    widths = (784, 512, 512, 10)
    params = [_dense(a, b) for a, b in pairwise(widths)]

    def forward(params: Params, x: Any) -> Any:
        for layer in params[:-1]:
            x = jax.nn.relu(_apply(layer, x))
        return _apply(params[-1], x)

    return forward, params


def _cnn() -> tuple[Callable[..., Any], Params]:
    params = [(_random(32, 1, 3, 3), _random(32, 1, 1)), (_random(64, 32, 3, 3), _random(64, 1, 1)),
              _dense(9216, 128), _dense(128, 10)]  # fmt: skip

    def forward(params: Params, x: Any) -> Any:
        for w, b in params[:2]:
            x = jax.nn.relu(jax.lax.conv(x, w, (1, 1), "VALID") + b)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        x = jax.nn.relu(_apply(params[2], x.reshape(len(x), -1)))
        return jax.nn.log_softmax(_apply(params[3], x))

    return forward, params


def _norm(layer: Params, x: Any) -> Any:
    scale, shift = layer
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * scale + shift


def _bert(layers: int) -> tuple[Callable[..., Any], Params]:
    """An encoder of ``layers`` of 12 heads, 768 wide."""
    width, heads = 768, 12
    block = {**{n: _dense(width, width) for n in "qkvo"}, "up": _dense(width, 4 * width),
             "down": _dense(4 * width, width), "first": (_random(width), _random(width)),
             "second": (_random(width), _random(width))}  # fmt: skip
    params = {"tokens": _random(30522, width), "places": _random(512, width),
              "norm": (_random(width), _random(width)),
              "blocks": [jax.tree.map(jnp.array, block) for _ in range(layers)]}  # fmt: skip

    def attention(layer: Params, x: Any, mask: Any) -> Any:
        rows = x.shape[1]
        q, k, v = (_apply(layer[n], x).reshape(-1, rows, heads, 64) for n in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8 + mask
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
        return _apply(layer["o"], mixed.reshape(-1, rows, width))

    def forward(params: Params, tokens: Any, mask: Any) -> Any:
        x = _norm(params["norm"], params["tokens"][tokens] + params["places"][: tokens.shape[1]])
        hidden = jnp.where(mask[:, None, None] == 0, -1e9, 0.0)
        for layer in params["blocks"]:
            x = _norm(layer["first"], x + attention(layer, x, hidden))
            inner = jax.nn.gelu(_apply(layer["up"], x), approximate=False)
            x = _norm(layer["second"], x + _apply(layer["down"], inner))
        return x

    return forward, params


TWINS: Mapping[str, Callable[[], tuple[Callable[..., Any], Params]]] = {
    "mlp": _mlp,
    "mnist_cnn": _cnn,
    "distilbert": lambda: _bert(6),
    "bert_base": lambda: _bert(12),
}
"""Functions of parameters and inputs, and parameters, by the zoo's names."""


def twin(name: str, inputs: Any) -> Callable[[], object]:
    """A call of the compiled counterpart; ``KeyError`` if there is none."""
    function, params = TWINS[name]()
    arrays = [jnp.asarray(x.numpy()) for x in inputs]
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(params, *arrays))
