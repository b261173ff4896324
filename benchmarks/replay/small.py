"""Small models that need only the onnx package, one for each kind of schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import ModelProto

from benchmarks.scaling_net import Net


def dense(batch: int | str = 4) -> ModelProto:
    """Matrix products with constants and a row-wise softmax."""
    net = Net((batch, 96))
    hidden = net.add("Relu", net.add("Gemm", "x", net.weight(96, 128), net.weight(128)))
    hidden = net.add("Tanh", net.add("MatMul", hidden, net.weight(128, 40)))
    return net.model(net.add("Softmax", hidden, axis=-1))


def large_product() -> ModelProto:
    """A product that is large enough for fast algorithms (fewer multiplications)."""
    net = Net((512, 1024))
    return net.model(net.add("MatMul", "x", net.weight(1024, 1024)))


def convolutions() -> ModelProto:
    """Strided, 3x3, pointwise, grouped and depthwise convolutions, a sum and pooling."""
    net = Net((1, 3, 40, 40))
    around: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    x = net.add("Conv", "x", net.weight(32, 3, 3, 3), strides=[2, 2], **around)
    x = net.add("Relu", net.add("Conv", x, net.weight(64, 32, 3, 3), net.weight(64), **around))
    wide = net.add("Conv", x, net.weight(64, 64, 3, 3), **around)
    x = net.add("Relu", net.add("Add", wide, x))
    x = net.add("Conv", x, net.weight(64, 1, 3, 3), group=64, **around)
    x = net.add("Conv", x, net.weight(48, 16, 1, 1), group=4)
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model(net.add("Gemm", x, net.weight(48, 10), net.weight(10)))


def transformer(length: int | str = 48) -> ModelProto:
    """An attention layer and an MLP, both after layer normalisation."""
    net = Net((1, length, 64))

    def norm(x: str) -> str:
        return net.add("LayerNormalization", x, net.weight(64), net.weight(64))

    def heads(x: str, order: list[int]) -> str:
        product = net.add("MatMul", x, net.weight(64, 64))
        shape = net.constant([0, 0, 4, 16], "int64")
        return net.add("Transpose", net.add("Reshape", product, shape), perm=order)

    before = norm("x")
    query, key = heads(before, [0, 2, 1, 3]), heads(before, [0, 2, 3, 1])
    scores = net.add("Mul", net.add("MatMul", query, key), net.constant(0.25))
    weights = net.add("Softmax", scores, axis=-1)
    mixed = net.add("MatMul", weights, heads(before, [0, 2, 1, 3]))
    rows = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = net.add("Reshape", rows, net.constant([0, 0, 64], "int64"))
    x = net.add("Add", "x", net.add("MatMul", joined, net.weight(64, 64)))
    wide = net.add("MatMul", norm(x), net.weight(64, 256))
    erf = net.add("Erf", net.add("Mul", wide, net.constant(0.5**0.5)))
    gelu = net.add("Mul", wide, net.add("Add", erf, net.constant(1.0)))
    return net.model(net.add("Add", x, net.add("MatMul", gelu, net.weight(256, 64))))


def recurrent() -> ModelProto:
    """An LSTM and a product of its last state."""
    net = Net((12, 2, 32))
    gates = net.weight(1, 4 * 24, 32), net.weight(1, 4 * 24, 24)
    state = net.add("LSTM", "x", *gates, outputs=2, hidden_size=24)
    return net.model(net.add("MatMul", f"{state}.1", net.weight(24, 8)))


def integers() -> ModelProto:
    """Dynamically quantised rows times 8-bit weights."""
    net = Net((16, 64))
    rows = net.add("DynamicQuantizeLinear", "x", outputs=3)
    bytes = net.constant(np.arange(64 * 32).reshape(64, 32) % 255 - 127, "int8")
    sums = net.add("MatMulInteger", rows, bytes, f"{rows}.2")
    return net.model(net.add("Mul", net.add("Cast", sums, to=1), f"{rows}.1"))


def movement() -> ModelProto:
    """Sorting, scattering, prefix sums, resizing and concatenation."""
    net = Net((1, 6, 20, 20))
    places = net.constant(np.arange(6 * 400).reshape(1, 6, 20, 20) % 20, "int64")
    best = net.add("TopK", "x", net.constant([5], "int64"), outputs=2, axis=-1)
    spread = net.add("ScatterElements", "x", places, "x", axis=3, reduction="add")
    total = net.add("CumSum", spread, net.constant(2, "int64"))
    scales = net.constant([1.0, 1.0, 2.0, 2.0])
    larger = net.add("Resize", total, "", scales, mode="linear")
    swapped = net.add("Transpose", larger, perm=[0, 1, 3, 2])
    return net.model(best, net.add("Concat", larger, swapped, axis=1))


SMALL: Mapping[str, Callable[[], ModelProto]] = MappingProxyType(
    {
        "small_dense": dense,
        "small_dense_named": lambda: dense("batch"),
        "small_large_product": large_product,
        "small_convolutions": convolutions,
        "small_transformer": transformer,
        "small_transformer_named": lambda: transformer("length"),
        "small_recurrent": recurrent,
        "small_integers": integers,
        "small_movement": movement,
    }
)
"""By name."""
