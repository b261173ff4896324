"""Random small networks: convolutions, products, reductions and data movement between them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.op import Op
from modelcc.ir.types import F32, Array, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.attention import Softmax
from modelcc.ops.broadcast import Reshape
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Add, Max, Mul, Neg, Sigmoid, Sub, Tanh
from modelcc.ops.layer_norm import LayerNorm
from modelcc.ops.matmul import MatMul
from modelcc.ops.padding import Pad
from modelcc.ops.pool import AveragePool, MaxPool
from modelcc.ops.reduce import ReduceMax, ReduceMean
from modelcc.ops.shape import Concat, Transpose

UNARY: tuple[Op, ...] = (Relu(), Tanh(), Sigmoid(), Neg())
BINARY: tuple[Op, ...] = (Add(), Sub(), Mul(), Max())
CHANNELS = (1, 3, 8, 16, 20, 32)
KINDS = (
    *("unary", "unary", "binary", "binary", "constant", "conv", "conv", "depthwise", "pool"),
    *("concat", "pad", "transpose", "flatten", "matmul", "square", "softmax", "norm", "reduce"),
)
LARGEST = 6000
"""Elements of a tensor from which nothing larger is made."""


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Up to 10 nodes on one or two images, with 1 to 3 outputs."""
    build = GraphBuilder()
    shape = (draw(st.sampled_from((1, 2))), draw(st.sampled_from(CHANNELS)), 5, 6)
    values = [build.input(f"x{i}", TensorType(shape, F32)) for i in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(1, 10))):
        x = draw(st.sampled_from(values[-4:]))
        values.append(draw(_step(build, x, values)))
    computed = list(dict.fromkeys(n for n in values if not n.startswith("x")))
    outputs = draw(st.lists(st.sampled_from(computed[-3:]), min_size=1, unique=True))
    return build.build(outputs)


def weights(*shape: int) -> Array:
    """Numbers of magnitude 1 / sqrt(inputs), the same for the same shape."""
    scale = 1 / np.sqrt(max(1, int(np.prod(shape[1:]))))
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * scale).astype(np.float32)


@st.composite
def _step(draw: st.DrawFn, build: GraphBuilder, x: str, values: list[str]) -> str:
    type_ = build.type_of(x)
    shape, kind = type_.static_shape(), draw(st.sampled_from(KINDS))
    small, image = int(np.prod(shape)) < LARGEST, len(shape) == 4
    if kind == "binary":
        alike = [n for n in values if build.type_of(n) == type_]
        return build.emit(draw(st.sampled_from(BINARY)), x, draw(st.sampled_from(alike)))
    if kind == "constant":
        axis = draw(st.integers(0, len(shape) - 1))
        extents = tuple(e if a == axis else 1 for a, e in enumerate(shape))
        return build.emit(draw(st.sampled_from(BINARY)), x, build.constant(weights(*extents)))
    if kind == "conv" and image and small:
        return draw(_conv(build, x, shape, 1))
    if kind == "depthwise" and image and small:
        return draw(_conv(build, x, shape, shape[1]))
    if kind == "pool" and image:
        window = ((3, 3), (draw(st.sampled_from((1, 2))),) * 2, (1, 1), (1, 1), (1, 1))
        return build.emit(draw(st.sampled_from((MaxPool, AveragePool)))(*window), x)
    if kind == "concat" and small:
        axis = draw(st.integers(0, len(shape) - 1))
        fitting = [n for n in values if _concatenates(build.type_of(n).static_shape(), shape, axis)]
        parts = draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=2))
        return build.emit(Concat(axis), x, *parts)
    if kind == "pad" and small:
        before, after = (tuple(draw(st.integers(0, 2)) for _ in shape) for _ in range(2))
        return build.emit(Pad(before, after, "constant", draw(st.sampled_from((0.0, 0.5)))), x)
    if kind == "transpose":
        return build.emit(Transpose(tuple(draw(st.permutations(range(len(shape)))))), x)
    if kind == "flatten":
        axis = draw(st.integers(0, len(shape)))
        rows = int(np.prod(shape[:axis]))
        return build.emit(Reshape((rows, int(np.prod(shape)) // rows)), x)
    if kind == "matmul" and len(shape) >= 2 and shape[-1] < 300:
        w = build.constant(weights(draw(st.sampled_from((4, 16, 33))), shape[-1]).T.copy())
        return build.emit(MatMul(), x, w)
    if kind == "square" and len(shape) >= 2 and shape[-2] < 40:
        order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        return build.emit(MatMul(), build.emit(Tanh(), x), build.emit(Transpose(order), x))
    if kind == "softmax":
        return build.emit(Softmax(draw(st.integers(0, len(shape) - 1))), x)
    if kind == "norm":
        scale, bias = (build.constant(weights(*shape[-1:]) + c) for c in (1, 0))
        return build.emit(LayerNorm(len(shape) - 1), x, scale, bias)
    if kind == "reduce":
        axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
        op = draw(st.sampled_from((ReduceMean, ReduceMax)))
        return build.emit(op(tuple(sorted(axes)), True), x)
    return build.emit(draw(st.sampled_from(UNARY)), x)


def _concatenates(other: tuple[int, ...], shape: tuple[int, ...], axis: int) -> bool:
    return (*other[:axis], *other[axis + 1 :]) == (*shape[:axis], *shape[axis + 1 :])


@st.composite
def _conv(draw: st.DrawFn, build: GraphBuilder, x: str, shape: tuple[int, ...], groups: int) -> str:
    size = draw(st.sampled_from((1, 3)))
    outputs = groups if groups > 1 else draw(st.sampled_from(CHANNELS))
    w = build.constant(weights(outputs, shape[1] // groups, size, size))
    b = build.constant(weights(outputs))
    pads, stride = (size // 2,) * 2, draw(st.sampled_from((1, 2)))
    return build.emit(Conv((stride, stride), pads, pads, (1, 1), groups), x, w, b)
