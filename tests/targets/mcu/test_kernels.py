"""Products of bytes for microcontrollers: what graphs of TFLite's rounding say, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.types import I8, TensorType
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Add, Cast
from modelcc.ops.fixed_point import FixedPointMultiply
from modelcc.ops.quant_matmul import ConvInteger, MatMulInteger
from modelcc.ops.shape import Transpose
from modelcc.targets.isa.arm_dsp import DEPTHWISE_4, DEPTHWISE_REST, DOT_1X4, DOT_3X2
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.emulation.build import build
from modelcc.targets.mcu.emulation.run import run
from modelcc.targets.mcu.machine import MODELS
from tests.embedded import embedded, run_here, written

Pads = tuple[tuple[int, int], tuple[int, int]]
ONE: Pads = ((0, 0), (0, 0))
BOTH: Pads = ((1, 1), (1, 1))
END: Pads = ((0, 1), (0, 1))


def requantised(b: GraphBuilder, sums: str, shape: tuple[int, ...], zero: int, low: int) -> str:
    """With numbers of each channel, as TFLite's convolutions do it."""
    r = np.random.default_rng(len(shape) + zero + 300)
    bias = r.integers(-900, 900, shape).astype(np.int32)
    multiplier = r.integers(1 << 30, (1 << 31) - 1, shape).astype(np.int32)
    shift = r.integers(7, 10, shape).astype(np.int32)
    total = b.emit(Add(), sums, b.constant(bias))
    scaled = b.emit(FixedPointMultiply(), total, b.constant(multiplier), b.constant(shift))
    moved = b.emit(Add(), scaled, b.constant(np.array(zero, np.int32)))
    return b.emit(Cast(I8), b.emit(Clip(float(low), 127.0), moved))


def convolved(
    b: GraphBuilder, x: str, channels: int, kernel: tuple[int, int] = (1, 1), stride: int = 1,
    pads: Pads = ONE, groups: int = 1, zero: int = -128,
) -> str:  # fmt: skip
    inputs = b.type_of(x).shape[1]
    assert isinstance(inputs, int)
    r = np.random.default_rng(channels)
    weights = r.integers(-127, 128, (channels, inputs // groups, *kernel)).astype(np.int8)
    before, after = (tuple(p[n] for p in pads) for n in (0, 1))
    op = ConvInteger((stride, stride), before, after, (1, 1), groups)
    sums = b.emit(op, x, b.constant(weights), b.constant(np.array(-128, np.int8)))
    return requantised(b, sums, (channels, 1, 1), zero, -128)


def image(shape: tuple[int, ...], layers: Callable[[GraphBuilder, str], str]) -> Graph:
    """A network of channels last outside and first inside, as frontends make them."""
    b = GraphBuilder("net")
    x = b.emit(Transpose((0, 3, 1, 2)), b.input("x", TensorType(shape, I8)))
    return b.build([b.emit(Transpose((0, 2, 3, 1)), layers(b, x))])


def dense() -> Graph:
    b = GraphBuilder("net")
    x = b.input("x", TensorType((1, 20), I8))
    weights = np.random.default_rng(1).integers(-127, 128, (20, 6)).astype(np.int8)
    zero = b.constant(np.array(4, np.int8))
    sums = b.emit(MatMulInteger(), x, b.constant(weights), zero)
    return b.build([requantised(b, sums, (6,), 3, 3)])


def residual(b: GraphBuilder, x: str) -> str:
    first = convolved(b, x, 8, (3, 3), pads=BOTH)
    wide = b.emit(Add(), *(b.emit(Cast(I8), b.emit(Clip(-60.0, 60.0), n)) for n in (x, first)))
    return convolved(b, wide, 4)


GRAPHS: dict[str, Callable[[], Graph]] = {
    "points": lambda: image((1, 5, 2, 12), lambda b, x: convolved(b, x, 7, zero=5)),
    "windows": lambda: image((1, 5, 4, 8), lambda b, x: convolved(b, x, 4, (3, 3), 1, BOTH)),
    "strides": lambda: image((1, 7, 6, 4), lambda b, x: convolved(b, x, 6, (3, 3), 2, END)),
    "few channels": lambda: image((1, 6, 5, 3), lambda b, x: convolved(b, x, 4, (3, 3), 2, BOTH)),
    "one channel": lambda: image((1, 9, 6, 1), lambda b, x: convolved(b, x, 8, (5, 4), 2, BOTH)),
    "depthwise": lambda: image(
        (1, 5, 3, 8), lambda b, x: convolved(b, x, 8, (3, 3), 1, BOTH, groups=8)
    ),
    "large windows": lambda: image(
        (1, 6, 6, 4), lambda b, x: convolved(b, x, 4, (5, 4), 1, ((2, 2), (1, 2)), groups=4)
    ),
    "odd channels": lambda: image(
        (1, 5, 4, 7), lambda b, x: convolved(b, x, 7, (3, 3), 2, END, groups=7)
    ),
    "wide windows": lambda: image(
        (1, 6, 7, 5), lambda b, x: convolved(b, x, 5, (5, 5), 1, ((2, 2), (2, 2)), groups=5)
    ),
    "dense": dense,
    "residual": lambda: image((1, 4, 4, 8), residual),
}

EACH = pytest.mark.parametrize("name", GRAPHS)


def example(name: str) -> tuple[Graph, np.ndarray, np.ndarray]:
    """A graph, its input and its output."""
    graph = GRAPHS[name]()
    shape = graph.types["x"].static_shape()
    x = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    (want,) = interpret(graph, {"x": x}).values()
    assert len(np.unique(want)) > 2
    return graph, x, want


@EACH
def test_portable_c(name: str, tmp_path: Path) -> None:
    graph, x, want = example(name)
    (got,) = run_here(written(embedded(graph, "cortex-m4"), tmp_path), {"x": x}).values()
    np.testing.assert_array_equal(np.frombuffer(got, np.int8), want.ravel())


@pytest.mark.parametrize(
    "name", ["windows", "few channels", "depthwise", "wide windows", "dense", "residual"]
)
def test_instructions_of_the_processor(name: str, tmp_path: Path) -> None:
    model = MODELS["cortex-m4"]
    if missing := missing_tools(model):
        pytest.skip(missing)
    graph, x, want = example(name)
    program = build(written(embedded(graph, model.name), tmp_path), "net", model)
    (got,) = run(program, {"x": x.tobytes()}).outputs.values()
    np.testing.assert_array_equal(np.frombuffer(got, np.int8), want.ravel())


def test_layers_share_routines(tmp_path: Path) -> None:
    def layers(b: GraphBuilder, x: str) -> str:
        return convolved(b, convolved(b, x, 8, (3, 3), 1, BOTH, zero=7), 4, zero=-9)

    graph = image((1, 6, 6, 4), layers)
    text = (written(embedded(graph, "cortex-m4"), tmp_path) / "net.c").read_text()
    assert text.count("static MCC_ALONE void mcc_rows_of_three") == 1
    assert text.count("    mcc_rows_of_three") == 2
    assert "smlad" in text


@pytest.mark.parametrize("routine", [DOT_3X2, DOT_1X4], ids=lambda r: r.name)
def test_meanings_are_products(routine: Function) -> None:
    """Of which NumPy makes the same."""
    r = np.random.default_rng(0)
    n, sums = 3, np.zeros(6, np.int32)
    if routine is DOT_3X2:
        columns, weights = (r.integers(-99, 99, s) for s in ((3, 4 * n), (2, 4 * n)))
        fours = columns.reshape(3, n, 4)[:, :, [0, 2, 1, 3]].transpose(1, 0, 2)
        rows = weights.reshape(2, n, 4).transpose(1, 0, 2)
        given = [fours.astype(np.int16).ravel(), rows.astype(np.int8).ravel(), sums]
        interpret_loops(DOT_3X2, given, [n])
        np.testing.assert_array_equal(sums.reshape(2, 3), weights @ columns.T)
        return
    x, weights = r.integers(-99, 99, 4 * n), r.integers(-99, 99, (4, 4 * n))
    rows = weights.reshape(4, n, 4).transpose(1, 0, 2)
    given = [x.astype(np.int8), rows.astype(np.int8).ravel(), sums]
    interpret_loops(DOT_1X4, given, [n, 128 - 5])
    np.testing.assert_array_equal(sums[:4], weights @ (x + 5))


def test_the_meaning_of_windows() -> None:
    """Two of three columns of four channels, and the last three of these."""
    r = np.random.default_rng(0)
    x, weights = r.integers(-99, 99, (4, 5, 8)), r.integers(-99, 99, (3, 3, 4))
    given = [x.astype(np.int8).ravel(), weights.astype(np.int8).ravel()]
    sizes = [3, 2, 3, 40, 8, 128 + 9]
    image = x[:3, :2] - 9
    sums, rest = np.ones(4, np.int32), np.ones(4, np.int32)
    interpret_loops(DEPTHWISE_4, [*given, sums], sizes)
    np.testing.assert_array_equal(sums, 1 + (image[..., :4] * weights[:, :2]).sum((0, 1)))
    interpret_loops(DEPTHWISE_REST, [*given, rest], [*sizes, 3])
    last = (image[..., 1:4] * weights[:, :2, :3]).sum((0, 1))
    np.testing.assert_array_equal(rest, [*(1 + last), 1])
