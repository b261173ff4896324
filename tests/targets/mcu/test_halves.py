"""Products of 16-bit images, and of bytes without a sign by weights with a zero point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import I16, I32, I64, U8, DType, TensorType
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Add, Cast
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Mul
from modelcc.ops.fixed_point import FixedPointMultiply
from modelcc.ops.logic import BitShift
from modelcc.ops.quant_matmul import ConvInteger
from modelcc.ops.shape import Transpose
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.emulation.build import build
from modelcc.targets.mcu.emulation.run import run
from modelcc.targets.mcu.machine import MODELS
from tests.embedded import embedded, run_here, written

PAD = (1, 1)


def unsigned(b: GraphBuilder, x: str, channels: int, size: int, stride: int, groups: int) -> str:
    """A convolution of bytes without a sign, as of TFLite's first quantized models."""
    inputs, pads = b.type_of(x).shape[1], PAD if size == 3 else (0, 0)
    assert isinstance(inputs, int)
    r = np.random.default_rng(channels + size)
    weights = r.integers(0, 256, (channels, inputs // groups, size, size)).astype(np.uint8)
    op = ConvInteger((stride, stride), pads, pads, (1, 1), groups)
    zeros = (b.constant(np.array(n, np.uint8)) for n in (118, 131))
    sums = b.emit(op, x, b.constant(weights), *zeros)
    bias = b.constant(r.integers(-900, 900, (channels, 1, 1)).astype(np.int32))
    total, shift = b.emit(Add(), sums, bias), b.constant(np.array(8, np.int32))
    scaled = b.emit(FixedPointMultiply(), total, b.constant(np.array(1518500250, np.int32)), shift)
    moved = b.emit(Add(), scaled, b.constant(np.array(125, np.int32)))
    return b.emit(Cast(U8), b.emit(Clip(0.0, 255.0), moved))


def halves(b: GraphBuilder, x: str, channels: int, size: int, stride: int, groups: int) -> str:
    """A convolution of 16-bit numbers by bytes, with sums of 64 bits."""
    inputs, pads = b.type_of(x).shape[1], PAD if size == 3 else (0, 0)
    assert isinstance(inputs, int)
    r = np.random.default_rng(channels + size)
    weights = r.integers(-127, 128, (channels, inputs // groups, size, size))
    op = Conv((stride, stride), pads, pads, (1, 1), groups)
    sums = b.emit(op, b.emit(Cast(I64), x), b.constant(weights.astype(np.int64)))
    bias, factor = (r.integers(1, 30000, (channels, 1, 1)).astype(np.int64) for _ in range(2))
    scaled = b.emit(Mul(), b.emit(Add(), sums, b.constant(bias)), b.constant(factor))
    moved = b.emit(BitShift(False), scaled, b.constant(np.array(23, np.int64)))
    clipped = b.emit(Clip(-32768.0, 32767.0), b.emit(Cast(I32), moved))
    return b.emit(Cast(I16), clipped)


Layer = Callable[[GraphBuilder, str, int, int, int, int], str]


def network(dtype: DType, layer: Layer) -> Graph:
    """Columns by way of a row and straight, rows in pairs and one alone, channels alone, and one
    pixel by four rows."""
    b = GraphBuilder("net")
    x = b.emit(Transpose((0, 3, 1, 2)), b.input("x", TensorType((1, 5, 4, 3), dtype)))
    for channels, size, stride, groups in ((8, 3, 2, 1), (8, 3, 1, 8), (4, 1, 1, 1), (9, 1, 3, 1)):
        x = layer(b, x, channels, size, stride, groups)
    return b.build([b.emit(Transpose((0, 2, 3, 1)), x)])


KINDS: dict[DType, tuple[Layer, str]] = {U8: (unsigned, "uxtab16"), I16: (halves, "pkhtb")}


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_what_graphs_say(dtype: DType, tmp_path: Path) -> None:
    layer, instruction = KINDS[dtype]
    graph, model = network(dtype, layer), MODELS["cortex-m4"]
    info = np.iinfo(dtype.numpy)
    x = np.random.default_rng(2).integers(info.min, info.max + 1, (1, 5, 4, 3)).astype(dtype.numpy)
    (want,) = interpret(graph, {"x": x}).values()
    assert len(np.unique(want)) > 4
    folder = written(embedded(graph, model.name), tmp_path)
    text = (folder / "net.c").read_text()
    assert instruction in text
    assert "smlad" in text
    assert text.count("mcc_dot_1x4") == 2
    (got,) = run_here(folder, {"x": x}).values()
    np.testing.assert_array_equal(np.frombuffer(got, dtype.numpy), want.ravel())
    if missing := missing_tools(model):
        pytest.skip(missing)
    (got,) = run(build(folder, "net", model), {"x": x.tobytes()}).outputs.values()
    np.testing.assert_array_equal(np.frombuffer(got, dtype.numpy), want.ravel())
