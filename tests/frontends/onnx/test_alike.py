"""Forms at the edge of what operators take: onnxruntime and modelcc run and refuse the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from modelcc.ir.types import Array
from tests.frontends.onnx.one_node import assert_alike, one_node

F, U8, I32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(0.1, 1, shape).astype(np.float32)


def alike(
    op: str, outputs: list[int], *arrays: Array | None, opset: int = 18, **attributes: Any
) -> None:
    shapes = [() if a is None else a.shape for a in arrays]
    model = one_node(op, shapes, arrays, outputs, attributes, opset)
    assert_alike(model, {f"i{k}": a for k, a in enumerate(arrays) if a is not None})


@pytest.mark.parametrize("mode", ["SAME_UPPER", "VALID", "NOTSET"])
@pytest.mark.parametrize("pads", [[0, 0], [1, 1]])
def test_pads_beside_automatic_ones(mode: str, pads: list[int]) -> None:
    both: dict[str, Any] = {"auto_pad": mode, "pads": pads}
    alike("Conv", [F], floats(1, 2, 6), floats(3, 2, 3), **both)
    alike("ConvTranspose", [F], floats(1, 2, 6), floats(2, 3, 3), **both)
    alike("MaxPool", [F], floats(1, 2, 6), kernel_shape=[3], **both)
    image, weights = ((200 * x).astype(np.uint8) for x in (floats(1, 2, 6), floats(3, 2, 3)))
    alike("ConvInteger", [I32], image, weights, **both)


@pytest.mark.share(3, "mode", "extent", "pads")
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap", "constant"])
@pytest.mark.parametrize("extent", [0, 1, 3])
@pytest.mark.parametrize("pads", [[2, 2], [3, 0], [0, 4], [-1, 1], [-4, 1], [-3, 3], [1, -2]])
def test_pads_need_elements_to_take(mode: str, extent: int, pads: list[int]) -> None:
    if mode != "constant" and extent < 3 and min(pads) < 0:
        pytest.skip("of cropping what is not there onnxruntime takes some and refuses some")
    alike("Pad", [F], floats(extent), np.array(pads), opset=19, mode=mode)


@pytest.mark.parametrize("extents", [(4, 4), (0, 4)])
@pytest.mark.parametrize("sizes", [[1, 1, 0, 3], [0, 1, 3, 3], [1, 1, 2, 2]])
def test_resizing_to_or_of_nothing(extents: tuple[int, int], sizes: list[int]) -> None:
    alike("Resize", [F], floats(1, 1, *extents), None, None, np.array(sizes))


@pytest.mark.parametrize("scale", [2.0, 0.1, 0.0])
def test_resizing_by_scales(scale: float) -> None:
    scales = np.array([1, 1, scale, 2], np.float32)
    alike("Resize", [F], floats(1, 1, 4, 4), None, scales)
    alike("Resize", [F], floats(1, 1, 0, 4), None, scales)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("size", [-3, 0, 1, 4])
def test_windows_of_any_size(op: str, size: int) -> None:
    alike(op, [F], np.array(size))


@pytest.mark.parametrize("lengths", [[0, 1], [1, 4], [-1, 2], [3, 3]])
def test_lengths_of_reversed_sequences(lengths: list[int]) -> None:
    alike("ReverseSequence", [F], floats(2, 3), np.array(lengths), batch_axis=0, time_axis=1)


@pytest.mark.parametrize("p", [-2, -1, 0, 1, 2, 3])
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_norms_of_any_order(p: int) -> None:
    alike("LpPool", [F], floats(1, 1, 4, 4), kernel_shape=[2, 2], p=p, pads=[1, 1, 1, 1])
    alike("GlobalLpPool", [F], floats(1, 1, 4, 4), p=p)


@pytest.mark.parametrize("axis", [-1, 1])
def test_statistics_of_layer_normalization(axis: int) -> None:
    shape = (4,) if axis == -1 else (3, 4)
    alike("LayerNormalization", [F] * 3, floats(2, 3, 4), floats(*shape), axis=axis)


def test_an_infinite_constant_exponent() -> None:
    x = np.array([0.5, 1, 2], np.float32)
    alike("Pow", [F], x, np.array(np.inf, np.float32))


@pytest.mark.parametrize("bins", [-1, 0, 2])
def test_any_number_of_mel_bins(bins: int) -> None:
    edges = np.array(1, np.float32), np.array(20, np.float32)
    alike("MelWeightMatrix", [F], np.array(bins), np.array(8), np.array(100), *edges)


def test_of_nothing() -> None:
    alike("ArgMax", [TensorProto.INT64], floats(0, 0), axis=0)
    alike("ArgMax", [TensorProto.INT64], floats(0, 2), axis=0)
    alike("Det", [F], floats(0, 0))
    alike("Pad", [F], floats(0, 3), np.array([0, 1, 0, 1]), mode="edge")
    for batches in (0, 1):
        nowhere = np.zeros((2, 0), np.int64)
        alike("GatherND", [F], floats(2, 3), nowhere, batch_dims=batches)
