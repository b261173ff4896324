"""Pads of images become those of the convolution behind them where they are the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.types import F32, I8, U8, DType, TensorType
from modelcc.ops.conv import Conv
from modelcc.ops.padding import Pad
from modelcc.ops.quant import Recentre
from modelcc.ops.quant_matmul import ConvInteger
from modelcc.passes.graph.merge_pads import MergePads
from tests.passes.graph.examples import assert_same_meaning


def kinds(dtype: DType, op: Conv | ConvInteger, pad: Pad, zero: int | None, turned: bool) -> str:
    """Names of the ops that are left; the graph means the same."""
    rng = np.random.default_rng(0)
    make = GraphBuilder()
    image = make.emit(pad, make.input("x", TensorType((1, 2, 5, 6), dtype)))
    if turned:
        image = make.emit(Recentre(), image)
    weights = rng.integers(-9, 9, (4, 2, 3, 3)).astype(np.float32 if dtype == F32 else np.int8)
    kind = U8 if turned else dtype
    zeros = [] if zero is None else [make.constant(np.asarray(zero, kind.numpy))]
    graph = make.build([make.emit(op, image, make.constant(weights), *zeros)])
    result = MergePads()(graph)
    assert_same_meaning(graph, result)
    assert MergePads()(result) == result
    return " ".join(type(node.op).__name__ for node in result.nodes)


def around(value: float, *, channels: int = 0, left: int = 1) -> Pad:
    return Pad((0, 0, 1, left), (0, channels, 0, 2), value=value)


BARE = ((1, 1), (0, 0), (0, 0), (1, 1))
OWN = ((2, 1), (1, 0), (1, 1), (1, 1))


@pytest.mark.parametrize(
    ("dtype", "op", "pad", "zero", "turned", "left"),
    [
        (F32, Conv(*OWN), around(0.0), None, False, "Conv"),
        (F32, Conv(*OWN), around(1.0), None, False, "Pad Conv"),
        (F32, Conv(*OWN), Pad((0, 0, 1, 0), (0, 0, 0, 0), "edge"), None, False, "Pad Conv"),
        (I8, ConvInteger(*OWN), around(-3), -3, False, "ConvInteger"),
        (I8, ConvInteger(*OWN), around(-3), -4, False, "Pad ConvInteger"),
        (I8, ConvInteger(*BARE), around(-3), None, False, "ConvInteger"),
        (I8, ConvInteger(*OWN), around(-3), None, False, "Pad ConvInteger"),
        (I8, ConvInteger(*BARE), around(-3), None, True, "Recentre ConvInteger"),
        (I8, ConvInteger(*OWN, padding=125), around(-3), None, True, "Recentre ConvInteger"),
        (I8, ConvInteger(*OWN, padding=125), around(3), None, True, "Pad Recentre ConvInteger"),
        (U8, ConvInteger(*BARE), around(7, left=-1), None, False, "Pad ConvInteger"),
    ],
)
def test_pads_are_merged_where_they_mean_the_same(
    dtype: DType, op: Conv | ConvInteger, pad: Pad, zero: int | None, turned: bool, left: str
) -> None:
    assert kinds(dtype, op, pad, zero, turned) == left


def test_pads_of_channels_stay() -> None:
    make = GraphBuilder()
    image = make.emit(around(0.0, channels=1), make.input("x", TensorType((1, 2, 5, 6), F32)))
    weights = make.constant(np.ones((4, 3, 3, 3), np.float32))
    graph = make.build([make.emit(Conv(*BARE), image, weights)])
    assert MergePads()(graph) == graph
