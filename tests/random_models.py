"""Random models of three kinds: images through convolutions, rows through products, and products
of any axes with any order of results, whose operands others read as well.

Tensors are small, extents are chosen to leave partial vectors, and the batch is a named dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_text import print_graph
from modelcc.ir.index import Sym, evaluate
from modelcc.ir.types import F32, TensorType
from modelcc.ops.activation import Clip, Gelu, HardSwish, Relu, Silu
from modelcc.ops.attention import Softmax
from modelcc.ops.broadcast import Reshape
from modelcc.ops.channel_norm import BatchNorm, GroupNorm
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Abs, Add, Max, Mul, Neg, Sigmoid, Sub, Tanh
from modelcc.ops.layer_norm import LayerNorm
from modelcc.ops.matmul import Einsum, MatMul
from modelcc.ops.pool import AveragePool, MaxPool
from modelcc.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from modelcc.ops.shape import Concat, Transpose

T = TypeVar("T")
BATCH = Sym("batch")
UNARY = (Relu(), Sigmoid(), Tanh(), Silu(), HardSwish(), Gelu(), Clip(0.0, 6.0), Abs(), Neg())
BINARY = (Add(), Mul(), Sub(), Max())
CHANNELS = (1, 3, 8, 16, 17, 32)
FEATURES = (1, 4, 8, 15, 32, 48)


@dataclass(frozen=True, repr=False)
class RandomModel:
    """A graph that a failing test prints as text."""

    graph: Graph

    def __repr__(self) -> str:
        return "\n" + print_graph(self.graph, inline=0)


class Maker:
    """Adds random layers to a graph; every value is kept as a candidate operand."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.build = GraphBuilder("random")
        self.rng = np.random.default_rng(draw(st.integers(0, 99)))
        self.values: list[str] = []

    def pick(self, *choices: T) -> T:
        return self.draw(st.sampled_from(choices))

    def weight(self, *shape: int) -> str:
        fan = max(1, int(np.prod(shape[1:])))
        return self.build.constant(self.rng.normal(0, fan**-0.5, shape).astype(np.float32))

    def shape(self, x: str) -> tuple[int, ...]:
        """Extents after the batch."""
        return tuple(evaluate(e, {}) for e in self.build.type_of(x).shape[1:])

    def alike(self, x: str) -> str:
        """A value of the same type, perhaps itself."""
        type = self.build.type_of(x)
        others = [v for v in self.values if v != x and self.build.type_of(v) == type]
        return self.draw(st.sampled_from([x, *others]))

    def elementwise(self, x: str) -> str:
        if self.draw(st.booleans()):
            return self.build.emit(self.draw(st.sampled_from(UNARY)), x)
        other = self.alike(x) if self.draw(st.booleans()) else self.weight(self.shape(x)[-1])
        return self.build.emit(self.draw(st.sampled_from(BINARY)), x, other)

    def finish(self) -> RandomModel:
        made = [v for v in self.values if not v.startswith("x")]
        others = self.draw(st.lists(st.sampled_from(made), max_size=2))
        return RandomModel(self.build.build(list(dict.fromkeys([made[-1], *others]))))


@st.composite
def image_models(draw: st.DrawFn) -> RandomModel:
    """Up to 7 layers on ``[batch, C, H, W]``."""
    make = Maker(draw)
    extents = draw(st.tuples(st.sampled_from(CHANNELS), st.integers(4, 12), st.integers(4, 12)))
    make.values.append(make.build.input("x", TensorType((BATCH, *extents), F32)))
    for _ in range(draw(st.integers(1, 7))):
        x = draw(st.sampled_from(make.values[-3:]))
        make.values.append(_image_layer(make, x))
    return make.finish()


def _image_layer(make: Maker, x: str) -> str:
    c, h, w = make.shape(x)
    kinds = ["elementwise", "conv", "conv", "norm", "gate", "concat", "mean"]
    kinds += ["depthwise", "pool"] if min(h, w) >= 3 else []
    match make.pick(*kinds):
        case "conv":
            return _convolution(make, x, 1, make.draw(st.sampled_from(CHANNELS)))
        case "depthwise":
            return _convolution(make, x, c, c)
        case "pool":
            pad = make.draw(st.integers(0, 1))
            stride = make.draw(st.integers(1, 2))
            window = ((3, 3), (stride,) * 2, (pad,) * 2, (pad,) * 2, (1, 1))
            return make.build.emit(make.pick(MaxPool(*window), AveragePool(*window)), x)
        case "norm":
            ones = make.build.constant(np.ones(c, np.float32))
            if make.draw(st.booleans()):
                return make.build.emit(GroupNorm(1), x, ones, make.weight(c))
            return make.build.emit(BatchNorm(), x, ones, make.weight(c), make.weight(c), ones)
        case "gate":
            mean = make.build.emit(ReduceMean((2, 3), True), x)
            gate = make.build.emit(Sigmoid(), _convolution(make, mean, 1, c, point=True))
            return make.build.emit(Mul(), x, gate)
        case "concat":
            return make.build.emit(Concat(1), x, make.alike(x))
        case "mean":
            return make.build.emit(make.pick(ReduceMean, ReduceMax)((2, 3), True), x)
        case _:
            return make.elementwise(x)


def _convolution(make: Maker, x: str, groups: int, outputs: int, point: bool = False) -> str:
    c, h, w = make.shape(x)
    size = 1 if point or min(h, w) < 3 else make.draw(st.sampled_from([1, 3]))
    stride = 1 if point else make.draw(st.integers(1, 2))
    pad = size // 2 if make.draw(st.booleans()) else 0
    op = Conv((stride,) * 2, (pad,) * 2, (pad,) * 2, (1, 1), groups)
    y = make.build.emit(op, x, make.weight(outputs, c // groups, size, size), make.weight(outputs))
    return make.build.emit(make.draw(st.sampled_from(UNARY)), y) if not point else y


@st.composite
def row_models(draw: st.DrawFn) -> RandomModel:
    """Up to 8 layers on ``[batch, rows, features]``."""
    make = Maker(draw)
    extents = draw(st.tuples(st.integers(1, 9), st.sampled_from(FEATURES)))
    make.values.append(make.build.input("x", TensorType((BATCH, *extents), F32)))
    for _ in range(draw(st.integers(1, 8))):
        x = draw(st.sampled_from(make.values[-3:]))
        make.values.append(_row_layer(make, x))
    return make.finish()


def _row_layer(make: Maker, x: str) -> str:
    rows, features = make.shape(x)
    kinds = ("elementwise", "dense", "dense", "norm", "softmax", "attend", "turn", "reduce", "fold")
    match make.pick(*kinds):
        case "dense":
            width = make.draw(st.sampled_from(FEATURES))
            return make.build.emit(MatMul(), x, make.weight(features, width))
        case "norm":
            return make.build.emit(LayerNorm(2), x, make.weight(features), make.weight(features))
        case "softmax":
            return make.build.emit(Softmax(make.draw(st.integers(1, 2))), x)
        case "attend":
            turned = make.build.emit(Transpose((0, 2, 1)), make.alike(x))
            scores = make.build.emit(Softmax(2), make.build.emit(MatMul(), x, turned))
            return make.build.emit(MatMul(), scores, make.alike(x))
        case "turn":
            return make.build.emit(Transpose((0, 2, 1)), x)
        case "reduce":
            op = make.pick(ReduceMean, ReduceSum, ReduceMax)
            return make.build.emit(op((make.draw(st.integers(1, 2)),), True), x)
        case "fold":
            return make.build.emit(Reshape((BATCH, features, rows)), x)
        case _:
            return make.elementwise(x)


@st.composite
def product_models(draw: st.DrawFn) -> RandomModel:
    """Up to 8 layers on ``[batch, rows, heads, features]`` in any order of the last three."""
    make = Maker(draw)
    extents = draw(st.tuples(st.integers(1, 6), st.integers(1, 4), st.sampled_from(FEATURES)))
    make.values.append(make.build.input("x", TensorType((BATCH, *extents), F32)))
    for _ in range(draw(st.integers(1, 6))):
        make.values += _product_layer(make, draw(st.sampled_from(make.values[-3:])))
    return make.finish()


def _product_layer(make: Maker, x: str) -> tuple[str, ...]:
    match make.pick("simple", "product", "fork", "fork"):
        case "product":
            return (_product(make, x),)
        case "fork":
            # What the product reads is read, or stored, for somebody else as well.
            shared = _simple_layer(make, _project(make, x))
            product = _product(make, _simple_layer(make, shared))
            return product, _simple_layer(make, shared)
        case _:
            return (_simple_layer(make, x),)


def _simple_layer(make: Maker, x: str) -> str:
    match make.pick("elementwise", "scale", "scale", "turn", "reduce"):
        case "scale":
            shape = make.shape(x)[make.draw(st.integers(0, 2)) :]
            return make.build.emit(make.draw(st.sampled_from(BINARY)), x, make.weight(*shape))
        case "turn":
            order = make.draw(st.permutations((1, 2, 3)))
            return make.build.emit(Transpose((0, *order)), x)
        case "reduce":
            axis = make.draw(st.integers(1, 3))
            reductions = (op((axis,), True) for op in (ReduceMean, ReduceSum, ReduceMax))
            return make.build.emit(make.pick(*reductions, Softmax(axis)), x)
        case _:
            return make.elementwise(x)


def _project(make: Maker, x: str) -> str:
    """Heads and features mixed by one product, of which the result is a view."""
    rows, heads, features = make.shape(x)
    row = make.build.emit(Reshape((BATCH, rows, heads * features)), x)
    mixed = make.build.emit(MatMul(), row, make.weight(heads * features, heads * features))
    return make.build.emit(Reshape((BATCH, rows, heads, features)), mixed)


def _product(make: Maker, x: str) -> str:
    """A sum over one axis of x times weights, which have a new axis ``j`` and may share others."""
    extents = dict(zip("ihd", make.shape(x), strict=True))
    summed = make.draw(st.sampled_from("ihdd"))
    kept = [label for label in "ihd" if label != summed]
    shared = make.draw(st.sampled_from([[], kept[:1], kept[1:]]))
    weights = make.draw(st.permutations(["j", summed, *shared]))
    result = make.draw(st.permutations(["j", *kept]))
    sizes = {**extents, "j": make.draw(st.sampled_from((1, 3, 8, 24)))}
    equation = f"bihd,{''.join(weights)}->b{''.join(result)}"
    return make.build.emit(Einsum(equation), x, make.weight(*(sizes[label] for label in weights)))
