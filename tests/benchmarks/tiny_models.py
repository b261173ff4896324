"""Models of MLPerf Tiny's shapes as TFLite files, with channels that training would leave dead.

python -m tests.benchmarks.tiny_models vww FILE
python -m tests.benchmarks.tiny_models ad FILE
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from modelcc.ir.types import Array
from tests.frontends.tflite import files
from tests.frontends.tflite.files import Op, Subgraph, T, constant

ZERO = -128
"""The zero point of what a ReLU leaves."""

VWW_LIVE = 8, 15, 31, 31, 63, 61, 75, 43, 41, 43, 27, 29, 39, 51
"""Channels that layers are left with: no multiples of four."""

_CHANNELS = 8, 16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256
_STRIDES = 1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1


@dataclass
class Writer:
    """Layers one after the other."""

    rng: np.random.Generator
    tensors: list[T] = field(default_factory=list[T])
    operators: list[Op] = field(default_factory=list[Op])
    scale: float = 0.05
    zero: int = ZERO

    def add(self, tensor: T) -> int:
        """The number of a new tensor."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def layer(
        self, name: str, x: int, weights: Array, bias: Array, shape: Sequence[int], axis: int,
        kind: str, **options: Any,
    ) -> int:  # fmt: skip
        """An operator with weights, whose results fill the range of bytes."""
        given, count = self.tensors[x], weights.shape[axis]
        assert isinstance(given.scale, float)
        steps = weights.size // count
        own = np.full(count if kind != "FullyConnectedOptions" else 1, 2.0 / (40 * steps**0.5))
        scales = own * self.rng.uniform(0.5, 1.5, own.shape)
        parts = [
            constant(weights, "int8", scale=scales.tolist(), zero=[0] * len(scales), axis=axis),
            constant(bias, "int32", scale=(scales * given.scale).tolist(), zero=[0] * len(scales)),
        ]
        inputs = [x, *map(self.add, parts)]
        y = self.add(T(tuple(shape), scale=self.scale, zero=self.zero))
        self.operators.append(Op(name, inputs, [y], kind, options))
        return y

    def weights(self, *shape: int) -> Array:
        """Random weights."""
        return self.rng.integers(-90, 91, shape).astype(np.int8)

    def bias(self, count: int) -> Array:
        """Random biases."""
        return self.rng.integers(-400, 1200, count).astype(np.int32)

    def file(self, x: int, y: int) -> bytes:
        """The model."""
        return files.model([Subgraph(self.tensors, [x], [y], self.operators)])


def person_detection(live: Sequence[int] = VWW_LIVE, size: int = 96, seed: int = 0) -> bytes:
    """MobileNet v1 of a quarter of the width on images of ``size``; of each layer's channels
    ``live`` are left, others have no weights, and biases that ReLU makes constants of."""
    rng = np.random.default_rng(seed)
    to = Writer(rng)
    x = image = to.add(T((1, size, size, 3), scale=1 / 255, zero=-128))
    size //= 2
    alive = _some(rng, 8, live[0])
    relu: dict[str, Any] = {"Padding": 0, "FusedActivationFunction": 1}
    conv = "Conv2DOptions"

    def strides(n: int) -> dict[str, int]:
        return {"StrideW": n, "StrideH": n}

    w, bias = to.weights(8, 3, 3, 3), to.bias(8)
    _kill(rng, w, bias, ~alive)
    x = to.layer("CONV_2D", x, w, bias, (1, size, size, 8), 0, conv, **relu, **strides(2))
    for n, stride in enumerate(_STRIDES):
        before, after = _CHANNELS[n], _CHANNELS[n + 1]
        size //= stride
        w, bias = to.weights(1, 3, 3, before), to.bias(before)
        _kill(rng, np.moveaxis(w, 3, 0), bias, ~alive)
        x = to.layer(
            "DEPTHWISE_CONV_2D", x, w, bias, (1, size, size, before), 3,
            "DepthwiseConv2DOptions", **relu, **strides(stride), DepthMultiplier=1,
        )  # fmt: skip
        alive = _some(rng, after, live[n + 1])
        w, bias = to.weights(after, 1, 1, before), to.bias(after)
        _kill(rng, w, bias, ~alive)
        shape = 1, size, size, after
        x = to.layer("CONV_2D", x, w, bias, shape, 0, conv, **relu, **strides(1))
    count = _CHANNELS[-1]
    pooled = to.add(T((1, 1, 1, count), scale=to.scale, zero=to.zero))
    window = {"Padding": 1, "FilterWidth": size, "FilterHeight": size, **strides(size)}
    to.operators.append(Op("AVERAGE_POOL_2D", [x], [pooled], "Pool2DOptions", window))
    flat = to.add(T((1, count), scale=to.scale, zero=to.zero))
    sizes = to.add(constant([1, count]))
    to.operators.append(Op("RESHAPE", [pooled, sizes], [flat], "ReshapeOptions", {}))
    to.zero = 0
    y = to.layer(
        "FULLY_CONNECTED", flat, to.weights(2, count), to.bias(2), (1, 2), 0,
        "FullyConnectedOptions",
    )  # fmt: skip
    return to.file(image, y)


def autoencoder(seed: int = 0) -> bytes:
    """Ten dense layers, the narrowest of 8."""
    widths = 640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640
    to = Writer(np.random.default_rng(seed))
    x = first = to.add(T((1, 640), scale=0.4, zero=90))
    for before, after in pairwise(widths):
        last = after == widths[-1]
        to.scale, to.zero = (0.4, 90) if last else (0.05, ZERO)
        x = to.layer(
            "FULLY_CONNECTED", x, to.weights(after, before), to.bias(after), (1, after), 0,
            "FullyConnectedOptions", FusedActivationFunction=0 if last else 1,
        )  # fmt: skip
    return to.file(first, x)


def _some(rng: np.random.Generator, count: int, alive: int) -> Array:
    mask = np.zeros(count, bool)
    mask[rng.permutation(count)[:alive]] = True
    return mask


def _kill(rng: np.random.Generator, weights: Array, bias: Array, dead: Array) -> None:
    """Filters of zeros, in place, with biases of which half are less than ReLU lets through."""
    weights[dead] = 0
    bias[dead] = np.where(rng.random(dead.sum()) < 0.5, -rng.integers(0, 900), bias[dead])


MODELS = {"vww": person_detection, "ad": autoencoder}

if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(MODELS[sys.argv[1]]())
