"""Constant and dead channels: what is computed stays the same, bit by bit; what goes is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import Sym
from modelcc.ir.types import F32, I8, I32, Array, TensorType
from modelcc.ops.activation import Clip, Relu
from modelcc.ops.arithmetic import Add, Cast
from modelcc.ops.conv import Conv
from modelcc.ops.fixed_point import FixedPointMultiply
from modelcc.ops.gather import Gather
from modelcc.ops.padding import Pad
from modelcc.ops.pool import AveragePool, MaxPool
from modelcc.ops.quant_matmul import ConvInteger, MatMulInteger
from modelcc.ops.shape import Concat, ReduceSum, Reshape, Slice, Transpose
from modelcc.passes.graph.constant_channels import ConstantChannels
from modelcc.passes.graph.dead_channels import DeadChannels

ZERO = -128


@dataclass
class Net:
    """Layers of a network of bytes, some of whose filters have no weights."""

    build: GraphBuilder
    rng: np.random.Generator
    dead: float = 0.5

    def requantised(self, sums: str, zero: int = ZERO) -> str:
        b, rank = self.build, self.build.type_of(sums).rank
        shape = (_channels(self, sums), *(1,) * (rank - 2))
        numbers = (self.rng.integers(*ends, shape).astype(np.int32)
                   for ends in ((-90, 90), (1 << 30, (1 << 31) - 1), (3, 6)))  # fmt: skip
        bias, multiplier, shift = map(b.constant, numbers)
        scaled = b.emit(FixedPointMultiply(), b.emit(Add(), sums, bias), multiplier, shift)
        moved = b.emit(Add(), scaled, b.constant(np.array(zero, np.int32)))
        return b.emit(Cast(I8), b.emit(Clip(-128.0, 127.0), moved))

    def weights(self, *shape: int) -> Array:
        weights = self.rng.integers(-3, 4, shape).astype(np.int8)
        weights[self.rng.random(shape[0]) < self.dead] = 0
        return weights

    def conv(self, x: str, channels: int, kernel: int = 1, pads: int = 0, groups: int = 1) -> str:
        b, inputs = self.build, _channels(self, x)
        weights = self.weights(channels, inputs // groups, kernel, kernel)
        op = ConvInteger((1, 1), (pads,) * 2, (pads,) * 2, (1, 1), groups)
        zero = b.constant(np.array(ZERO, np.int8))
        zeros = [b.constant(np.array(1, np.int8))] if groups == 1 and pads else []
        return self.requantised(b.emit(op, x, b.constant(weights), zero, *zeros))

    def dense(self, x: str, columns: int) -> str:
        b, inputs = self.build, _channels(self, x)
        weights = np.ascontiguousarray(self.weights(columns, inputs).T)
        zero = b.constant(np.array(ZERO, np.int8))
        return self.requantised(b.emit(MatMulInteger(), x, b.constant(weights), zero), 5)


def depthwise(net: Net, x: str) -> str:
    return net.conv(x, _channels(net, x), 3, 1, _channels(net, x))


def doubled(net: Net, x: str) -> str:
    return net.conv(x, 2 * _channels(net, x), 3, 1, _channels(net, x))


def residual(net: Net, x: str) -> str:
    b = net.build
    other = net.conv(x, _channels(net, x), 3, 1)
    total = b.emit(Add(), *(b.emit(Cast(I32), n) for n in (x, other)))
    return b.emit(Cast(I8), b.emit(Clip(-128.0, 100.0), total))


def table(net: Net, x: str) -> str:
    b = net.build
    values = b.constant(net.rng.integers(-128, 128, 256).astype(np.int8))
    place = b.emit(Add(), b.emit(Cast(I32), x), b.constant(np.array(128, np.int32)))
    return b.emit(Gather(), values, place)


def joined(net: Net, x: str) -> str:
    return net.build.emit(Concat(1), net.conv(x, 3, 3, 1), x, net.conv(x, 5))


def part(net: Net, x: str) -> str:
    b, shape = net.build, net.build.type_of(x).shape
    wide = net.conv(x, 6)
    return b.emit(Slice((0, 2, 0, 0), (shape[0], 3, *shape[2:]), (1,) * 4), wide)


def pooled(net: Net, x: str) -> str:
    b, window = net.build, ((2, 2), (1, 1), (0, 0), (1, 1), (1, 1))
    mean = b.emit(AveragePool(*window), b.emit(Cast(F32), b.emit(MaxPool(*window), x)))
    return b.emit(Cast(I8), mean)


def padded(net: Net, x: str) -> str:
    ends = (0, 0, 1, 0), (0, 0, 0, 1)
    return net.build.emit(Pad(*ends, value=ZERO), x)


def turned(net: Net, x: str) -> str:
    b = net.build
    last = b.emit(Transpose((0, 2, 3, 1)), x)
    return b.emit(Transpose((0, 3, 1, 2)), b.emit(Clip(-100.0, 90.0), last))


LAYERS = (depthwise, doubled, residual, table, joined, part, pooled, padded, turned)


def _channels(net: Net, x: str) -> int:
    channels = net.build.type_of(x).shape[1]
    assert isinstance(channels, int)
    return channels


def network(seed: int, layers: list[int], batch: bool) -> Graph:
    net = Net(GraphBuilder("net"), np.random.default_rng(seed))
    shape = (Sym("batch") if batch else 1, 3, 4, 3)
    x = net.conv(net.build.input("x", TensorType(shape, I8)), 4, 3, 1)
    for n in layers:
        x = net.conv(LAYERS[n](net, x), 4)
    b, last = net.build, net.build.type_of(x).shape
    flat = b.emit(Reshape((last[0], 4 * last[2] * last[3])), x)
    sums = b.emit(ReduceSum((2, 3), False), b.emit(Cast(I32), x))
    mean = b.emit(Cast(I8), b.emit(Clip(-128.0, 127.0), sums))
    return b.build([net.dense(net.dense(flat, 5), 3), net.dense(mean, 2)])


@given(
    st.integers(0, 1 << 16),
    st.lists(st.integers(0, len(LAYERS) - 1), max_size=2),
    st.booleans(),
    st.sampled_from([1, 4]),
)
def test_nothing_else_is_computed(seed: int, layers: list[int], batch: bool, block: int) -> None:
    before = network(seed, layers, batch)
    folded = ConstantChannels()(before)
    verify_graph(folded)
    after = DeadChannels(block)(folded)
    verify_graph(after)
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    x = np.random.default_rng(seed).integers(-128, 128, (2 if batch else 1, 3, 4, 3))
    feeds = {"x": x.astype(np.int8)}
    want = interpret(before, feeds)
    for graph in (folded, after):
        for name, got in interpret(graph, feeds).items():
            np.testing.assert_array_equal(got, want[name])


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_channels_go_through(layer: Callable[[Net, str], str]) -> None:
    """Filters without weights go, where a layer takes constants to constants (means do not)."""
    net = Net(GraphBuilder("net"), np.random.default_rng(1), 0.0)
    b = net.build
    x = b.input("x", TensorType((1, 3, 4, 4), I8))
    weights = net.weights(4, 3, 1, 1)
    weights[2] = 0
    sums = b.emit(ConvInteger((1, 1), (0, 0), (0, 0), (1, 1)), x, b.constant(weights))
    low = b.emit(Clip(-128.0, 127.0), b.emit(Add(), sums, b.constant(_bias())))
    y = layer(net, b.emit(Cast(I8), low))
    graph = b.build([net.conv(y, 3)])
    after = DeadChannels()(ConstantChannels()(graph))
    first = next(node for node in after.nodes if isinstance(node.op, ConvInteger))
    kept = 4 if layer in (residual, pooled) else 3
    assert after.constants[first.inputs[1]].data.shape[0] == kept


def _bias() -> Array:
    return np.array([1, -2, -128, 4], np.int32).reshape(4, 1, 1)


def test_floats_lose_filters_that_nobody_reads_and_no_others() -> None:
    """A product with 0 may be NaN, so it is read."""
    b, rng = GraphBuilder("net"), np.random.default_rng(0)
    weights = [rng.standard_normal(s).astype(np.float32) for s in ((6, 3, 1, 1), (2, 2, 1, 1))]
    weights[1][:, 0] = 0
    op = Conv((1, 1), (0, 0), (0, 0), (1, 1))
    x = b.input("x", TensorType((1, 3, 2, 2), F32))
    y = b.emit(Relu(), b.emit(op, x, b.constant(weights[0])))
    taken = b.emit(Slice((0, 3, 0, 0), (1, 2, 2, 2), (1,) * 4), y)
    before = b.build([b.emit(op, taken, b.constant(weights[1]))])
    after = DeadChannels()(ConstantChannels()(before))
    verify_graph(after)
    assert sorted(c.data.shape for c in after.constants.values()) == [(2, 2, 1, 1), (2, 3, 1, 1)]
    feeds = {"x": rng.standard_normal((1, 3, 2, 2)).astype(np.float32)}
    for name, got in interpret(after, feeds).items():
        np.testing.assert_array_equal(got, interpret(before, feeds)[name])
