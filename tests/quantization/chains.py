"""Layers in a row."""

from __future__ import annotations

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.types import F32, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.broadcast import Reshape
from modelcc.ops.matmul import Gemm
from tests.quantization.graphs import conv, floats


def chain() -> Graph:
    """A convolution, a depthwise one, one of 1 x 1 and a product."""
    build = GraphBuilder("chain")
    h = build.input("x", TensorType((2, 3, 6, 6), F32))
    for n, (shape, groups) in enumerate((((8, 3, 3, 3), 1), ((8, 1, 3, 3), 8), ((4, 8, 3, 3), 1))):
        w = build.constant(floats(*shape, seed=n) / 3)
        b = build.constant(floats(shape[0], seed=9 + n))
        h = build.emit(Relu(), build.emit(conv(groups), h, w, b, source=(f"conv{n}",)))
    flat = build.emit(Reshape((2, 144)), h)
    w = build.constant(floats(144, 5, seed=5) / 12)
    return build.build([build.emit(Gemm(), flat, w, source=("head",), name="y")])
