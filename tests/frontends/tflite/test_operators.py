"""Single operators against LiteRT's reference kernels: integers bit by bit, floats within 1e-5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite")
pytest.importorskip("ai_edge_litert")

from tests.frontends.tflite.comparison import assert_same
from tests.frontends.tflite.files import T, constant, one

RNG = np.random.default_rng(0)
F = "float32"


def f(*shape: int) -> T:
    return T(shape, F)


def q(*shape: int, scale: float = 0.05, zero: int = 3, type: str = "int8") -> T:
    return T(shape, type, scale, zero)


def weights(*shape: int, **more: Any) -> T:
    """Bytes with a scale for each slice of an axis."""
    return constant(RNG.integers(-127, 128, shape), "int8", **more)


def floats(*shape: int, low: float = -1) -> T:
    return constant(RNG.uniform(low, 1, shape), F)


def conv(op: str, tensors: list[T], **options: Any) -> bytes:
    kind = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}[op]
    plain = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    return one(op, tensors, kind, **{**plain, **options})


def pool(op: str, tensors: list[T], **options: Any) -> bytes:
    plain = {"StrideH": 2, "StrideW": 1, "FilterHeight": 3, "FilterWidth": 2}
    return one(op, tensors, "Pool2DOptions", **{**plain, **options})


def fc(tensors: list[T], **options: Any) -> bytes:
    return one("FULLY_CONNECTED", tensors, "FullyConnectedOptions", **options)


def axis_scales(count: int, axis: int) -> dict[str, Any]:
    return {"scale": RNG.uniform(0.002, 0.02, count).tolist(), "zero": [0] * count, "axis": axis}


BIAS4 = constant(RNG.integers(-900, 900, 4), "int32", scale=0.0005)
U8: dict[str, Any] = {"type": "uint8", "zero": 120}
CONVOLUTIONS = {
    "conv float same": conv(
        "CONV_2D",
        [f(1, 7, 6, 3), floats(4, 3, 3, 3), floats(4), f(1, 4, 3, 4)],
        StrideH=2,
        StrideW=2,
        FusedActivationFunction=1,
    ),
    "conv float valid dilated": conv(
        "CONV_2D",
        [f(2, 9, 8, 2), floats(3, 3, 2, 2), floats(3), f(2, 5, 7, 3)],
        Padding=1,
        DilationHFactor=2,
    ),
    "conv float grouped": conv(
        "CONV_2D", [f(1, 5, 5, 4), floats(6, 3, 3, 2), floats(6), f(1, 5, 5, 6)]
    ),
    "conv int8": conv(
        "CONV_2D",
        [
            q(1, 7, 6, 3),
            weights(4, 3, 3, 3, **axis_scales(4, 0)),
            BIAS4,
            q(1, 4, 3, 4, scale=0.1, zero=-128),
        ],
        StrideH=2,
        StrideW=2,
        FusedActivationFunction=1,
    ),
    "conv int8 relu6": conv(
        "CONV_2D",
        [
            q(1, 5, 5, 2, zero=-7),
            weights(4, 2, 2, 2, **axis_scales(4, 0)),
            BIAS4,
            q(1, 4, 4, 4, scale=0.03, zero=-100),
        ],
        Padding=1,
        FusedActivationFunction=3,
    ),
    "conv uint8": conv(
        "CONV_2D",
        [
            q(1, 5, 5, 3, **U8),
            constant(RNG.integers(0, 256, (4, 3, 3, 3)), "uint8", scale=0.01, zero=131),
            BIAS4,
            q(1, 5, 5, 4, scale=0.2, **U8),
        ],
    ),
    "conv int16": conv(
        "CONV_2D",
        [
            q(1, 5, 5, 3, scale=0.001, zero=0, type="int16"),
            weights(4, 3, 3, 3, **axis_scales(4, 0)),
            constant(RNG.integers(-900, 900, 4), "int64", scale=0.0005),
            q(1, 5, 5, 4, scale=0.002, zero=0, type="int16"),
        ],
    ),
    "conv hybrid": conv(
        "CONV_2D", [f(2, 5, 5, 3), weights(4, 3, 3, 3, scale=0.01), floats(4), f(2, 5, 5, 4)]
    ),
    "depthwise int8": conv(
        "DEPTHWISE_CONV_2D",
        [q(1, 6, 6, 2), weights(1, 3, 3, 4, **axis_scales(4, 3)), BIAS4, q(1, 3, 3, 4, scale=0.1)],
        StrideH=2,
        StrideW=2,
        DepthMultiplier=2,
    ),
    "depthwise float": conv(
        "DEPTHWISE_CONV_2D",
        [f(1, 6, 6, 4), floats(1, 3, 3, 4), floats(4), f(1, 6, 6, 4)],
        DepthMultiplier=1,
        FusedActivationFunction=3,
    ),
    "depthwise hybrid": conv(
        "DEPTHWISE_CONV_2D",
        [f(2, 6, 6, 4), weights(1, 3, 3, 4, **axis_scales(4, 3)), floats(4), f(2, 6, 6, 4)],
        DepthMultiplier=1,
    ),
    "transposed float": one(
        "TRANSPOSE_CONV",
        [constant([1, 8, 7, 3]), floats(3, 3, 3, 2), f(1, 4, 4, 2), f(1, 8, 7, 3)],
        "TransposeConvOptions",
        StrideH=2,
        StrideW=2,
    ),
    "transposed int8": one(
        "TRANSPOSE_CONV",
        [
            constant([1, 9, 9, 4]),
            weights(4, 3, 3, 2, **axis_scales(4, 0)),
            q(1, 4, 4, 2),
            BIAS4,
            q(1, 9, 9, 4, scale=0.1),
        ],
        "TransposeConvOptions",
        StrideH=2,
        StrideW=2,
        Padding=1,
    ),
}
PRODUCTS = {
    "fc int8": fc([q(3, 8), weights(4, 8, scale=0.01), BIAS4, q(3, 4, scale=0.06, zero=-9)]),
    "fc int8 relu": fc(
        [q(2, 2, 8), weights(4, 8, scale=0.01), BIAS4, q(2, 2, 4, scale=0.02, zero=-128)],
        KeepNumDims=True,
        FusedActivationFunction=1,
    ),
    "fc uint8": fc(
        [
            q(3, 8, **U8),
            constant(RNG.integers(0, 256, (4, 8)), "uint8", scale=0.01, zero=90),
            BIAS4,
            q(3, 4, scale=0.06, **U8),
        ]
    ),
    "fc int16": fc(
        [
            q(3, 8, scale=0.001, zero=0, type="int16"),
            weights(4, 8, scale=0.01),
            constant(RNG.integers(-900, 900, 4), "int64", scale=0.00001),
            q(3, 4, scale=0.002, zero=0, type="int16"),
        ]
    ),
    "fc float": fc([f(3, 8), floats(4, 8), floats(4), f(3, 4)], FusedActivationFunction=1),
    "fc hybrid": fc([f(3, 8), weights(4, 8, scale=0.01), floats(4), f(3, 4)]),
    "fc hybrid asymmetric": fc(
        [f(3, 8), weights(4, 8, scale=0.01), floats(4), f(3, 4)], AsymmetricQuantizeInputs=True
    ),
    "batch matmul": one(
        "BATCH_MATMUL", [f(2, 3, 4), f(2, 5, 4), f(2, 3, 5)], "BatchMatMulOptions", AdjY=True
    ),
}
POOLS = {
    "max int8": pool("MAX_POOL_2D", [q(1, 7, 6, 3), q(1, 4, 6, 3)]),
    "max float": pool("MAX_POOL_2D", [f(1, 7, 6, 3), f(1, 3, 5, 3)], Padding=1),
    "average int8": pool("AVERAGE_POOL_2D", [q(1, 7, 6, 3), q(1, 4, 6, 3)]),
    "average uint8": pool("AVERAGE_POOL_2D", [q(1, 7, 6, 3, **U8), q(1, 4, 6, 3, **U8)]),
    "average whole": pool("AVERAGE_POOL_2D", [q(1, 3, 2, 5), q(1, 1, 1, 5)], Padding=1),
    "average float": pool(
        "AVERAGE_POOL_2D", [f(1, 7, 6, 3), f(1, 4, 6, 3)], FusedActivationFunction=1
    ),
    "mean int8": one(
        "MEAN", [q(2, 4, 5, 3), constant([1, 2]), q(2, 3, scale=0.03, zero=7)], "ReducerOptions"
    ),
    "sum uint8": one(
        "SUM",
        [q(2, 4, 3, **U8), constant([1]), q(2, 1, 3, scale=0.2, **U8)],
        "ReducerOptions",
        KeepDims=True,
    ),
    "max of axis": one("REDUCE_MAX", [f(2, 4, 3), constant([-1]), f(2, 4)], "ReducerOptions"),
    "arg max": one(
        "ARG_MAX", [q(2, 9), constant([1]), T((2,), "int64")], "ArgMaxOptions", OutputType=4
    ),
}


def binary(op: str, *tensors: T, **options: Any) -> bytes:
    kind = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}.get(op, "")
    return one(op, list(tensors), kind, **options)


def unary(op: str, *tensors: T, kind: str = "", **options: Any) -> bytes:
    return one(op, list(tensors), kind, **options)


SIGMOID: dict[str, Any] = {"scale": 1 / 256, "zero": -128}
ARITHMETIC = {
    "add int8": binary(
        "ADD",
        q(2, 5, 3),
        q(2, 5, 3, scale=0.02, zero=-9),
        q(2, 5, 3, scale=0.07, zero=1),
        FusedActivationFunction=1,
    ),
    "add broadcast": binary("ADD", q(2, 5, 3), q(3, scale=0.09), q(2, 5, 3, scale=0.1)),
    "add uint8": binary("ADD", q(2, 9, **U8), q(2, 9, scale=0.02, **U8), q(2, 9, scale=0.06, **U8)),
    "add int16": binary(
        "ADD",
        q(4, 9, scale=0.001, zero=0, type="int16"),
        q(4, 9, scale=0.002, zero=0, type="int16"),
        q(4, 9, scale=0.003, zero=0, type="int16"),
        PotScaleInt16=False,
    ),
    "sub int8": binary("SUB", q(2, 30), q(2, 30, scale=0.02), q(2, 30, scale=0.06)),
    "mul int8": binary("MUL", q(2, 30), q(2, 30, scale=0.02, zero=4), q(2, 30, scale=0.05)),
    "mul int16": binary(
        "MUL",
        *(q(2, 30, scale=0.01, zero=0, type="int16"),) * 2,
        q(2, 30, scale=0.2, zero=0, type="int16"),
    ),
    "squared difference int8": binary(
        "SQUARED_DIFFERENCE", q(2, 30), q(2, 30, scale=0.02), q(2, 30, scale=0.3)
    ),
    "maximum int8": binary("MAXIMUM", q(2, 30), q(2, 30), q(2, 30)),
    "less int8": binary("LESS", q(2, 30), q(2, 30, scale=0.02), T((2, 30), "bool")),
    "floor mod": binary("FLOOR_MOD", T((9,), "int32"), constant([-3]), T((9,), "int32")),
    "floor div": binary("FLOOR_DIV", T((9,), "int32"), constant([-3]), T((9,), "int32")),
    "logistic int8": unary("LOGISTIC", q(2, 90), q(2, 90, **SIGMOID)),
    "tanh uint8": unary("TANH", q(2, 90, **U8), q(2, 90, scale=1 / 128, zero=128, type="uint8")),
    "hard swish int8": unary("HARD_SWISH", q(2, 90), q(2, 90, scale=0.04, zero=-100)),
    "hard swish wide": unary("HARD_SWISH", q(2, 90, scale=0.9), q(2, 90, scale=0.9)),
    "leaky relu int8": unary(
        "LEAKY_RELU", q(2, 90), q(2, 90, scale=0.04), kind="LeakyReluOptions", Alpha=0.3
    ),
    "prelu int8": unary(
        "PRELU",
        q(2, 9, 3),
        constant([[5, -3, 90]], "int8", scale=0.01, zero=2),
        q(2, 9, 3, scale=0.04),
    ),
    "relu6 int8": unary("RELU6", q(2, 90), q(2, 90, scale=0.03, zero=-128)),
    "relu uint8": unary("RELU", q(2, 90, **U8), q(2, 90, scale=0.03, zero=0, type="uint8")),
    "abs int8": unary("ABS", q(2, 90), q(2, 90, scale=0.06)),
    "softmax int8": unary(
        "SOFTMAX", q(5, 12), q(5, 12, **SIGMOID), kind="SoftmaxOptions", Beta=1.0
    ),
    "softmax uint8": unary(
        "SOFTMAX",
        q(5, 12, **U8),
        q(5, 12, scale=1 / 256, zero=0, type="uint8"),
        kind="SoftmaxOptions",
        Beta=0.7,
    ),
    "softmax float": unary("SOFTMAX", f(5, 12), f(5, 12), kind="SoftmaxOptions", Beta=1.5),
    "quantize": unary("QUANTIZE", f(2, 90), q(2, 90, scale=0.013)),
    "requantize": unary("QUANTIZE", q(2, 90), q(2, 90, scale=0.02, zero=-40)),
    "requantize to uint8": unary("QUANTIZE", q(2, 90), q(2, 90, zero=131, type="uint8")),
    "dequantize": unary("DEQUANTIZE", q(2, 90), f(2, 90)),
    "resize int8": unary(
        "RESIZE_BILINEAR",
        q(1, 4, 5, 3),
        constant([7, 9]),
        q(1, 7, 9, 3),
        kind="ResizeBilinearOptions",
        HalfPixelCenters=True,
    ),
    "resize uint8": unary(
        "RESIZE_BILINEAR",
        q(1, 4, 5, 3, **U8),
        constant([8, 9]),
        q(1, 8, 9, 3, **U8),
        kind="ResizeBilinearOptions",
        AlignCorners=True,
    ),
    "resize nearest": unary(
        "RESIZE_NEAREST_NEIGHBOR",
        f(1, 4, 5, 3),
        constant([7, 9]),
        f(1, 7, 9, 3),
        kind="ResizeNearestNeighborOptions",
        HalfPixelCenters=True,
    ),
}
STRIDED: dict[str, Any] = {"kind": "StridedSliceOptions"}
MOVEMENT = {
    "strided slice": unary(
        "STRIDED_SLICE",
        f(4, 5, 6),
        constant([1, -1, 0]),
        constant([0, -4, 5]),
        constant([1, -2, 2]),
        f(2, 3),
        **STRIDED,
        ShrinkAxisMask=1,
    ),
    "new axis": unary(
        "STRIDED_SLICE",
        f(4, 5),
        constant([0, 0, 1]),
        constant([0, 0, 4]),
        constant([1, 1, 1]),
        f(4, 1, 3),
        **STRIDED,
        EllipsisMask=1,
        NewAxisMask=2,
    ),
    "slice": unary("SLICE", f(4, 5), constant([1, 2]), constant([2, -1]), f(2, 3)),
    "pad int8": unary("PAD", q(2, 3), constant([[1, 0], [0, 2]]), q(3, 5)),
    "mirror pad": unary(
        "MIRROR_PAD", f(3, 4), constant([[1, 2], [3, 0]]), f(6, 7), kind="MirrorPadOptions", Mode=1
    ),
    "concatenation uint8": unary(
        "CONCATENATION",
        q(2, 3, **U8),
        q(2, 4, scale=0.02, **U8),
        q(2, 7, scale=0.06, **U8),
        kind="ConcatenationOptions",
        Axis=1,
    ),
    "space to depth": unary(
        "SPACE_TO_DEPTH", f(1, 4, 6, 3), f(1, 2, 3, 12), kind="SpaceToDepthOptions", BlockSize=2
    ),
    "depth to space": unary(
        "DEPTH_TO_SPACE", f(1, 2, 3, 12), f(1, 4, 6, 3), kind="DepthToSpaceOptions", BlockSize=2
    ),
    "space to batch": unary(
        "SPACE_TO_BATCH_ND",
        f(2, 4, 5, 3),
        constant([2, 3]),
        constant([[1, 1], [0, 1]]),
        f(12, 3, 2, 3),
    ),
    "batch to space": unary(
        "BATCH_TO_SPACE_ND",
        f(12, 3, 2, 3),
        constant([2, 3]),
        constant([[1, 1], [0, 1]]),
        f(2, 4, 5, 3),
    ),
    "one hot": unary(
        "ONE_HOT",
        constant([0, 2, 3, -1]),
        constant(3),
        constant(2.0, F),
        constant(0.5, F),
        f(4, 3),
        kind="OneHotOptions",
        Axis=-1,
    ),
    "gather": unary("GATHER", f(4, 5), constant([3, 1]), f(4, 2), kind="GatherOptions", Axis=1),
    "scatter": unary("SCATTER_ND", constant([[1], [3], [1]]), f(3, 2), constant([4, 2]), f(4, 2)),
    "cumsum": unary("CUMSUM", f(3, 4), constant(1), f(3, 4), kind="CumsumOptions", Reverse=True),
    "reverse": unary("REVERSE_V2", f(3, 4), constant([1]), f(3, 4)),
    "broadcast": unary("BROADCAST_TO", f(3, 1), constant([2, 3, 4]), f(2, 3, 4)),
    "range": unary("RANGE", constant(2), constant(11), constant(3), T((3,), "int32")),
}
CASES = {**CONVOLUTIONS, **PRODUCTS, **POOLS, **ARITHMETIC, **MOVEMENT}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_the_reference_kernels_compute(name: str) -> None:
    assert_same(CASES[name])
