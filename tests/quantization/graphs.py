"""Small graphs to quantise, with examples of their inputs."""

from __future__ import annotations

import numpy as np

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Sym
from modelcc.ir.types import F32, Array, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.arithmetic import Add
from modelcc.ops.attention import Softmax
from modelcc.ops.broadcast import Reshape
from modelcc.ops.conv import Conv
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.pool import MaxPool
from modelcc.ops.shape import Concat


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def conv(groups: int = 1) -> Conv:
    """Of 3 x 3, with as many pixels as it is given."""
    return Conv((1, 1), (1, 1), (1, 1), (1, 1), groups)


def residual() -> Graph:
    """Two convolutions, one depthwise, their sum, a pooling, both side by side, and a product."""
    build = GraphBuilder("residual")
    x = build.input("x", TensorType((Sym("batch"), 3, 8, 8), F32))
    w = [build.constant(floats(*s, seed=n) / 3) for n, s in enumerate(((8, 3, 3, 3), (8, 1, 3, 3)))]
    b = build.constant(floats(8, seed=3))
    a = build.emit(Relu(), build.emit(conv(), x, w[0], b, source=("stem",)), name="a")
    d = build.emit(conv(8), a, w[1], source=("depthwise",), name="d")
    s = build.emit(Relu(), build.emit(Add(), a, d, source=("sum",)), name="s")
    window = (2, 2), (2, 2), (0, 0), (0, 0), (1, 1), False
    p = build.emit(MaxPool(*window), s, source=("pool",), name="p")
    q = build.emit(MaxPool(*window), d, source=("pool2",), name="q")
    both = build.emit(Concat(1), p, q, source=("both",), name="both")
    flat = build.emit(Reshape((Sym("batch"), 256)), both, name="flat")
    matrix = build.constant(floats(10, 256, seed=5) / 16)
    bias = build.constant(floats(10, seed=6))
    scores = build.emit(Gemm(trans_b=True), flat, matrix, bias, source=("head",), name="scores")
    return build.build([build.emit(Softmax(1), scores, name="y")])


def products() -> Graph:
    """A product with an addend, and one of two activations."""
    build = GraphBuilder("products")
    x = build.input("x", TensorType((2, 6, 32), F32))
    w, b = build.constant(floats(32, 16) / 6), build.constant(floats(16, seed=1))
    h = build.emit(Add(), build.emit(MatMul(), x, w, source=("first",)), b, name="h")
    other = build.input("other", TensorType((2, 16, 6), F32))
    return build.build([build.emit(MatMul(), h, other, source=("second",), name="y")])
