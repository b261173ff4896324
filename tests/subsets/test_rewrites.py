"""Rewrites: what comes of them is taken, and LiteRT computes the same bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite")
pytest.importorskip("ai_edge_litert")

from modelcc.frontends.tflite.litert import compared_by_litert
from modelcc.frontends.tflite.reading import read_model
from modelcc.frontends.tflite.writing import edited
from modelcc.subsets.rewriting import rewritten
from modelcc.subsets.table import SUBSETS
from modelcc.subsets.verdict import check_model
from tests.frontends.tflite.files import T, constant, one

EXACT = "bit by bit"


def weights(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)


def convolution(depthwise: bool, extents: tuple[int, int], **options: int) -> bytes:
    """Of 15 x 14 pixels and 4 channels, with 3 x 3 taps."""
    shape = (1, 3, 3, 4) if depthwise else (4, 3, 3, 4)
    tensors = [
        T((1, 15, 14, 4), "int8", 0.1, 3),
        T(shape, "int8", [0.01, 0.02, 0.03, 0.04], [0] * 4, 3 if depthwise else 0,
          data=weights(shape)),
        constant([100, -200, 300, 0], scale=[0.001, 0.002, 0.003, 0.004], zero=[0] * 4),
        T((1, *extents, 4), "int8", 0.2, -5),
    ]  # fmt: skip
    if depthwise:
        return one("DEPTHWISE_CONV_2D", tensors, "DepthwiseConv2DOptions", DepthMultiplier=1,
                   **options)  # fmt: skip
    return one("CONV_2D", tensors, "Conv2DOptions", **options)


def pooled(op: str) -> bytes:
    tensors = [T((1, 8, 8, 4), "int8", 0.1, 3), T((1, 4, 4, 4), "int8", 0.1, 3)]
    options = {"StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    return one(op, tensors, "Pool2DOptions", Padding=1, FusedActivationFunction=3, **options)


def leaky(slope: float) -> bytes:
    tensors = [T((1, 8, 8, 4), "int8", 0.1, 3), T((1, 8, 8, 4), "int8", 0.07, -9)]
    return one("LEAKY_RELU", tensors, "LeakyReluOptions", Alpha=slope)


def nearest() -> bytes:
    tensors = [T((1, 3, 2, 4), "int8", 0.1), constant([48, 32]), T((1, 48, 32, 4), "int8", 0.1)]
    return one("RESIZE_NEAREST_NEIGHBOR", tensors, "ResizeNearestNeighborOptions")


def mean(axes: list[int], shape: tuple[int, ...], to: tuple[int, ...]) -> bytes:
    tensors = [T(shape, "int8", 0.1, 3), constant(axes), T(to, "int8", 0.07, -9)]
    return one("MEAN", tensors, "ReducerOptions", KeepDims=len(shape) == len(to))


def blocks(op: str, shape: tuple[int, ...], to: tuple[int, ...]) -> bytes:
    kind = "DepthToSpaceOptions" if op == "DEPTH_TO_SPACE" else "SpaceToDepthOptions"
    return one(op, [T(shape, "int8", 0.1), T(to, "int8", 0.1)], kind, BlockSize=2)


def sliced() -> bytes:
    bounds = [constant([0, 1, -6, 0]), constant([1, 9, 8, 0]), constant([1, 3, 2, 1])]
    tensors = [T((1, 8, 8, 4), "int8", 0.1), *bounds, T((1, 3, 3, 4), "int8", 0.1)]
    return one("STRIDED_SLICE", tensors, "StridedSliceOptions", EndMask=8)


def gathered(indices: list[int]) -> bytes:
    shape = (1, 4, len(indices))
    tensors = [T((1, 4, 9), "int8", 0.1), constant(indices), T(shape, "int8", 0.1)]
    return one("GATHER", tensors, "GatherOptions", Axis=2)


CASES = (
    ("ethos-u55", convolution(False, (4, 4), StrideH=4, StrideW=4, Padding=0), 2),
    ("ethos-u55", convolution(True, (4, 4), StrideH=4, StrideW=4, Padding=0), 3),
    ("coral-edgetpu", convolution(False, (15, 14), StrideH=1, StrideW=1, DilationHFactor=2,
                                  DilationWFactor=3), 1),
    ("coral-edgetpu", convolution(True, (15, 14), StrideH=1, StrideW=1, DilationHFactor=1,
                                  DilationWFactor=2), 1),
    ("coral-edgetpu", pooled("AVERAGE_POOL_2D"), 2),
    ("coral-edgetpu", pooled("MAX_POOL_2D"), 2),
    ("coral-edgetpu", leaky(0.1), 1),
    ("coral-edgetpu", leaky(-0.3), 1),
    ("ethos-u55", nearest(), 2),
    ("ethos-u55", mean([3], (1, 6, 5, 7), (1, 6, 5, 1)), 3),
    ("ethos-u55", mean([-1, 2], (1, 6, 5, 7), (1, 6)), 3),
    ("ethos-u55", blocks("DEPTH_TO_SPACE", (1, 3, 2, 8), (1, 6, 4, 2)), 3),
    ("ethos-u55", blocks("SPACE_TO_DEPTH", (1, 6, 4, 2), (1, 3, 2, 8)), 3),
    ("coral-edgetpu", sliced(), 2),
    ("ethos-u55", gathered([2, 3, 4]), 1),
    ("ethos-u55", gathered([7, 2, 3, 0]), 4),
)  # fmt: skip


@pytest.mark.parametrize(("target", "data", "count"), CASES)
def test_rewrites_are_exact(target: str, data: bytes, count: int) -> None:
    model, subset = read_model(data, "net"), SUBSETS[target]
    assert check_model(model, subset).taken == 0
    written = edited(data, model, rewritten(model, subset).model)
    report = check_model(read_model(written, "net"), subset)
    assert (report.taken, len(report.nodes)) == (count, count)
    assert compared_by_litert(data, written).startswith(EXACT)


@pytest.mark.parametrize(
    ("target", "data"),
    [
        ("ethos-u55", mean([1, 2], (2, 6, 5, 7), (2, 1, 1, 7))),  # it rounds in a way of its own
        ("tflm", convolution(False, (4, 4), StrideH=4, StrideW=4, Padding=0)),  # nothing to do
    ],
)
def test_what_stays(target: str, data: bytes) -> None:
    model = read_model(data, "net")
    assert rewritten(model, SUBSETS[target]).done == {}


def test_an_open_batch_is_pinned() -> None:
    tensors = [T((1, 4), "int8", 0.1, open=(-1, 4)) for _ in range(3)]
    data = one("ADD", tensors, "AddOptions")
    model, subset = read_model(data, "net"), SUBSETS["coral-edgetpu"]
    (node,) = check_model(model, subset).nodes
    assert "axis 0 of 't0' is open" in node.reasons[0]
    written = edited(data, model, rewritten(model, subset).model)
    assert check_model(read_model(written, "net"), subset).taken == 1
    assert compared_by_litert(data, written).startswith(EXACT)
