"""A speech model of any depth: the blocks of a Conformer (Gulati et al., 2020) as exported.

Named batch and time, shapes computed by nodes, relative positions, gated and depthwise
convolutions, masks computed from lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto
from onnx import helper as oh

from benchmarks.scaling_net import Net

WIDTH, HEADS, KERNEL = 64, 4, 15
NODES = 108
"""Nodes per block."""


@dataclass(frozen=True)
class _Sizes:
    """One-element tensors: numbers of sequences, of frames, and of positions."""

    batch: str
    time: str


def speech(n: int) -> ModelProto:
    """Blocks of feed-forward, attention, convolution and feed-forward, with n nodes in all."""
    net = Net(("batch", "time", WIDTH))
    net.inputs.append(oh.make_tensor_value_info("lengths", TensorProto.INT64, ("batch",)))
    mask = _mask(net)
    value = "x"
    for _ in range(max(1, n // NODES)):
        value = _block(net, value, mask)
    return net.model(value)


def _block(net: Net, value: str, mask: str) -> str:
    value = net.add("Add", value, _feed_forward(net, value))
    value = net.add("Add", value, _attention(net, value, mask))
    value = net.add("Add", value, _convolution(net, value))
    value = net.add("Add", value, _feed_forward(net, value))
    return _norm(net, value)


def _sizes(net: Net, value: str) -> _Sizes:
    """Batch and time of a tensor, recomputed repeatedly as exporters do."""
    sizes: list[str] = []
    for axis in (0, 1):
        size = net.add("Gather", net.add("Shape", value), net.constant(axis, "int64"))
        sizes.append(net.add("Unsqueeze", size, net.constant([0], "int64")))
    return _Sizes(*sizes)


def _mask(net: Net) -> str:
    """[batch, 1, 1, time]: whether a frame is beyond its sequence's length."""
    time = net.add("Gather", net.add("Shape", "x"), net.constant(1, "int64"))
    zero, one = net.constant(0, "int64"), net.constant(1, "int64")
    frames = net.add("Range", zero, time, one)
    lengths = net.add("Unsqueeze", "lengths", net.constant([1], "int64"))
    beyond = net.add("Not", net.add("Less", frames, lengths))
    return net.add("Unsqueeze", beyond, net.constant([1, 2], "int64"))


def _norm(net: Net, value: str) -> str:
    """Layer normalisation, decomposed."""
    axis = net.constant([-1], "int64")
    centred = net.add("Sub", value, net.add("ReduceMean", value, axis))
    square = net.add("Pow", centred, net.constant(2.0))
    variance = net.add("Add", net.add("ReduceMean", square, axis), net.constant(1e-5))
    normal = net.add("Div", centred, net.add("Sqrt", variance))
    scaled = net.add("Mul", normal, net.weight(WIDTH))
    return net.add("Add", scaled, net.weight(WIDTH))


def _linear(net: Net, value: str, inputs: int, outputs: int) -> str:
    product = net.add("MatMul", value, net.weight(inputs, outputs))
    return net.add("Add", net.weight(outputs), product)


def _swish(net: Net, value: str) -> str:
    return net.add("Mul", value, net.add("Sigmoid", value))


def _feed_forward(net: Net, value: str) -> str:
    wide = _swish(net, _linear(net, _norm(net, value), WIDTH, 4 * WIDTH))
    return net.add("Mul", _linear(net, wide, 4 * WIDTH, WIDTH), net.constant(0.5))


def _heads(net: Net, value: str, sizes: _Sizes, perm: tuple[int, ...]) -> str:
    each = net.constant([HEADS], "int64"), net.constant([WIDTH // HEADS], "int64")
    shape = net.add("Concat", sizes.batch, sizes.time, *each, axis=0)
    return net.add("Transpose", net.add("Reshape", value, shape), perm=perm)


def _attention(net: Net, value: str, mask: str) -> str:
    """Attention with relative positions, shifted as in Transformer-XL."""
    value = _norm(net, value)
    sizes = _sizes(net, value)
    query, key, content = (_linear(net, value, WIDTH, WIDTH) for _ in range(3))
    rows = _heads(net, net.add("Add", query, net.weight(WIDTH)), sizes, (0, 2, 1, 3))
    columns = _heads(net, key, sizes, (0, 2, 3, 1))
    scores = net.add("Add", net.add("MatMul", rows, columns), _relative(net, query, sizes))
    scores = net.add("Mul", scores, net.constant((WIDTH // HEADS) ** -0.5))
    scores = net.add("Where", mask, net.constant(-1e9), scores)
    weights = net.add("Where", mask, net.constant(0.0), net.add("Softmax", scores, axis=-1))
    mixed = net.add("MatMul", weights, _heads(net, content, sizes, (0, 2, 1, 3)))
    shape = net.add("Concat", sizes.batch, sizes.time, net.constant([WIDTH], "int64"), axis=0)
    joined = net.add("Reshape", net.add("Transpose", mixed, perm=(0, 2, 1, 3)), shape)
    return _linear(net, joined, WIDTH, WIDTH)


def _relative(net: Net, query: str, sizes: _Sizes) -> str:
    """[batch, heads, time, time]: a score for each distance from -time + 1 to time - 1."""
    one, two, zero = (net.constant([v], "int64") for v in (1, 2, 0))
    half = 5000
    table = net.constant(np.zeros((HEADS, WIDTH // HEADS, 2 * half - 1)))
    first = net.add("Sub", net.constant([half], "int64"), sizes.time)
    last = net.add("Sub", net.add("Add", net.constant([half], "int64"), sizes.time), one)
    near = net.add("Slice", table, first, last, two)
    rows = _heads(net, net.add("Add", query, net.weight(WIDTH)), sizes, (0, 2, 1, 3))
    scores = net.add("MatMul", rows, near)
    padded = net.add("Pad", scores, net.constant([0, 0, 0, 1, 0, 0, 0, 0], "int64"))
    heads, rest = net.constant([HEADS], "int64"), net.constant([-1], "int64")
    turned = net.add("Concat", sizes.batch, heads, rest, sizes.time, axis=0)
    shifted = net.add("Slice", net.add("Reshape", padded, turned), one,
                      net.constant([1 << 40], "int64"), two)  # fmt: skip
    back = net.add("Concat", sizes.batch, heads, sizes.time, rest, axis=0)
    whole = net.add("Reshape", shifted, back)
    return net.add("Slice", whole, zero, sizes.time, net.constant([3], "int64"))


def _convolution(net: Net, value: str) -> str:
    """Pointwise, gate, depthwise, normalisation, pointwise; over time."""
    across = net.add("Transpose", _norm(net, value), perm=(0, 2, 1))
    both = net.add("Conv", across, net.weight(2 * WIDTH, WIDTH, 1), net.weight(2 * WIDTH))
    left = net.add("Split", both, outputs=2, axis=1, num_outputs=2)
    gated = net.add("Mul", left, net.add("Sigmoid", f"{left}.1"))
    side = KERNEL // 2
    deep = net.add("Conv", gated, net.weight(WIDTH, 1, KERNEL), group=WIDTH, pads=[side, side])
    ones = net.constant(np.ones(WIDTH))
    normal = net.add("BatchNormalization", deep, ones, net.weight(WIDTH), net.weight(WIDTH), ones)
    narrow = net.add("Conv", _swish(net, normal), net.weight(WIDTH, WIDTH, 1), net.weight(WIDTH))
    return net.add("Transpose", narrow, perm=(0, 2, 1))
