"""Models of one operator with parameters at and beyond the limits of accelerators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from tests.frontends.tflite.files import Op, Subgraph, T, constant, model, one

Case = tuple[str, bytes]
Pair = tuple[int, int]
_IMAGE = (1, 4, 4, 8)


def generated() -> Iterator[Case]:
    """Names and bytes of all models."""
    for family in (_windows, _weights, _elementwise, _dense, _reductions, _resizes, _movement,
                   _pads, _slices, _transposed, _parameters):  # fmt: skip
        yield from family()


def _extents(size: Pair, k: Pair, s: Pair, d: Pair, same: bool) -> Pair:
    spans = [(k[n] - 1) * d[n] + 1 for n in (0, 1)]
    rows, columns = (
        -(-size[n] // s[n]) if same else -(-(size[n] - spans[n] + 1) // s[n]) for n in (0, 1)
    )
    return rows, columns


def _random(shape: Sequence[int], dtype: str) -> Any:
    low = 0 if dtype.startswith("u") else -127
    return np.random.default_rng(0).integers(low, 128, tuple(shape)).astype(dtype)


def convolution(
    depthwise: bool = False, size: Pair = (16, 16), channels: Pair = (8, 8), k: Pair = (3, 3),
    s: Pair = (1, 1), d: Pair = (1, 1), same: bool = True, batch: int = 1, dtype: str = "int8",
    weights: str = "int8", bias: str = "int32", fill: int | None = None, **quantization: Any,
) -> bytes:  # fmt: skip
    """A convolution; ``fill`` is the value of all its weights."""
    into, out = channels
    shape = (1, *k, out) if depthwise else (out, *k, into)
    values = _random(shape, weights) if fill is None else np.full(shape, fill, weights)
    told: dict[str, Any] = {"scale": 0.01, "axis": 3 if depthwise else 0, **quantization}
    tensors = [
        T((batch, *size, into), dtype, 0.1),
        T(shape, weights, data=values, **told),
        *([T((out,), bias, 0.001, data=np.zeros(out, bias))] if bias else []),
        T((batch, *_extents(size, k, s, d, same), out), dtype, 0.2),
    ]
    options = {
        "Padding": 0 if same else 1, "StrideH": s[0], "StrideW": s[1],
        "DilationHFactor": d[0], "DilationWFactor": d[1],
    }  # fmt: skip
    if depthwise:
        more = {"DepthMultiplier": out // into}
        return one("DEPTHWISE_CONV_2D", tensors, "DepthwiseConv2DOptions", **options, **more)
    return one("CONV_2D", tensors, "Conv2DOptions", **options)


def pool(
    op: str, size: Pair = (16, 16), k: Pair = (2, 2), s: Pair = (2, 2), same: bool = False,
    dtype: str = "int8", channels: int = 8, batch: int = 1,
) -> bytes:  # fmt: skip
    """A pooling operator."""
    shape = _extents(size, k, s, (1, 1), same)
    tensors = [T((batch, *n, channels), dtype, 0.1) for n in (size, shape)]
    options = {"Padding": 0 if same else 1, "StrideH": s[0], "StrideW": s[1]}
    more = {"FilterHeight": k[0], "FilterWidth": k[1]}
    return one(op, tensors, "Pool2DOptions", **options, **more)


def _windows() -> Iterator[Case]:
    steps = ((3, 3), (4, 4), (4, 1), (1, 4), (7, 7), (2, 5))
    for s, same, d in product(steps, (True, False), ((1, 1), (2, 2))):
        for deep in (False, True):
            data = convolution(deep, (30, 30), s=s, same=same, d=d)
            yield f"conv s{s} {same} d{d} {deep}", data
    for s, same, op in product(steps, (True, False), ("AVERAGE_POOL_2D", "MAX_POOL_2D")):
        yield f"{op} s{s} {same}", pool(op, s=s, same=same)
        yield f"{op} k8 s{s} {same}", pool(op, k=(8, 8), s=s, same=same)
    for d, deep in product(((2, 2), (3, 3), (2, 1), (1, 3), (8, 8)), (False, True)):
        yield f"conv d{d} {deep}", convolution(deep, (32, 32), d=d)
    for k in ((1, 1), (64, 64), (65, 1), (1, 65), (1, 300)):
        size = (k[0] + 4, k[1] + 4)
        yield f"conv k{k}", convolution(False, size, (2, 2), k, same=False)
        yield f"depthwise k{k}", convolution(True, size, (2, 2), k, same=False)
    for k in ((8, 8), (9, 8), (8, 9)):
        yield f"average same k{k}", pool("AVERAGE_POOL_2D", k=k, s=(1, 1), same=True)
    for k, op in product(((16, 16), (256, 256), (257, 1), (1, 257), (256, 257)),
                         ("AVERAGE_POOL_2D", "MAX_POOL_2D")):  # fmt: skip
        yield f"{op} k{k}", pool(op, k, k, (1, 1), channels=1)
    yield "average no pads", pool("AVERAGE_POOL_2D", (18, 18), (9, 9), (9, 9), True)


def _weights() -> Iterator[Case]:
    for deep, dtype, batch in product((False, True), ("int8", "int16", "int32"), (1, 2)):
        yield f"conv {deep} {dtype} {batch}", convolution(deep, dtype=dtype, batch=batch)
    for bias in ("int16", "int64", ""):
        yield f"conv bias {bias}", convolution(bias=bias)
    yield "conv per channel", convolution(scale=[0.01] * 8, zero=[0] * 8)
    yield "depthwise x2", convolution(True, channels=(4, 8))
    yield "conv wide weights", convolution(weights="int16")
    yield "conv zero", convolution(zero=5)
    yield "conv uint8", convolution(dtype="uint8", weights="uint8", zero=128)
    yield "conv float", convolution(dtype="float32", weights="float32", bias="float32")
    for k, zero in ((11, 0), (12, 0), (11, -20)):
        data = convolution(channels=(512, 8), k=(k, k), fill=127, zero=zero)
        yield f"conv sum {k} {zero}", data


def _unary(op: str, dtype: str, other: str = "", kind: str = "", **options: Any) -> bytes:
    return one(op, [T(_IMAGE, dtype, 0.1), T(_IMAGE, other or dtype, 0.1)], kind, **options)


def _binary(op: str, dtype: str, a: Sequence[int] = _IMAGE, b: Sequence[int] = _IMAGE) -> bytes:
    shapes = (tuple(a), tuple(b), np.broadcast_shapes(tuple(a), tuple(b)))
    return one(op, [T(shape, dtype, 0.1) for shape in shapes])


def _elementwise() -> Iterator[Case]:
    dtypes = ("int8", "uint8", "int16", "int32")
    unary = (
        "ABS", "EXP", "LOG", "ELU", "GELU", "LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1",
        "RELU_0_TO_1", "RSQRT", "SQRT", "SQUARE", "NEG", "FLOOR", "QUANTIZE", "DEQUANTIZE", "CAST",
        "L2_NORMALIZATION", "LOG_SOFTMAX", "RESHAPE", "SQUEEZE", "HARD_SWISH",
    )  # fmt: skip
    for op, dtype in product(unary, dtypes):
        yield f"{op} {dtype}", _unary(op, dtype)
    for dtype in dtypes:
        yield f"LEAKY_RELU {dtype}", _unary("LEAKY_RELU", dtype, "", "LeakyReluOptions", Alpha=0.1)
        yield f"SOFTMAX {dtype}", _unary("SOFTMAX", dtype, "", "SoftmaxOptions", Beta=1.0)
    for first, second in product(("int8", "int16"), ("int16", "uint8", "int32")):
        yield f"QUANTIZE {first} {second}", _unary("QUANTIZE", first, second)
    binary = (
        "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "DIV", "POW", "FLOOR_DIV",
    )  # fmt: skip
    for op, dtype in product(binary, dtypes):
        yield f"{op} {dtype}", _binary(op, dtype)
    for op, b in product(("ADD", "MUL"), ((1, 1, 1, 8), (1, 1, 4, 1), (), (3, 4, 4, 8))):
        yield f"{op} by {b}", _binary(op, "int8", _IMAGE, b)
    scales = [T(_IMAGE, "int8", scale) for scale in (0.1, 0.1, 0.2)]
    yield "MAXIMUM scales", one("MAXIMUM", scales)


def _dense() -> Iterator[Case]:
    for batch, dtype, fixed in product((1, 4), ("int8", "int16"), (True, False)):
        weights = T((8, 16), "int8", 0.01, data=_random((8, 16), "int8") if fixed else None)
        tensors = [T((batch, 16), dtype, 0.1), weights, T((batch, 8), dtype, 0.2)]
        yield (
            f"dense {batch} {dtype} {fixed}",
            one("FULLY_CONNECTED", tensors, "FullyConnectedOptions"),
        )
    for n in (65535, 65537):
        weights = T((2, n), "int8", 0.01)
        tensors = [T((1, n), "int8", 0.1), weights, T((1, 2), "int8", 0.2)]
        yield f"dense of {n}", one("FULLY_CONNECTED", tensors, "FullyConnectedOptions")
    for dtype in ("int8", "int16", "uint8"):
        tensors = [T(s, dtype, 0.1) for s in ((2, 4, 8), (2, 8, 5), (2, 4, 5))]
        yield f"products {dtype}", one("BATCH_MATMUL", tensors, "BatchMatMulOptions")


def _reduced(op: str, shape: Sequence[int], axes: Sequence[int], dtype: str) -> bytes:
    kept = tuple(1 if n in axes else size for n, size in enumerate(shape))
    tensors = [T(tuple(shape), dtype, 0.1), constant(list(axes)), T(kept, dtype, 0.1)]
    return one(op, tensors, "ReducerOptions", KeepDims=True)


def _reductions() -> Iterator[Case]:
    cases = (
        (_IMAGE, (1, 2)), (_IMAGE, (2,)), (_IMAGE, (3,)), ((1, 4, 1, 8), (3,)), (_IMAGE, (1, 2, 3)),
        ((2, 4, 4, 8), (1, 2)), ((2, 4, 4, 8), (0,)), ((1, 160, 3, 3), (3,)), ((4, 8), (1,)),
        ((4, 8), (0,)), ((1, 4, 8), (2,)), ((1, 4096, 2, 2), (1,)), ((1, 2, 3, 4, 5), (1,)),
        ((1, 256, 257, 1), (1, 2)), ((3, 4, 8), (2,)),
    )  # fmt: skip
    for (shape, axes), dtype in product(cases, ("int8", "int16", "uint8", "int32")):
        yield f"MEAN {shape} {axes} {dtype}", _reduced("MEAN", shape, axes, dtype)
    ops = ("SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
    for op, axes, dtype in product(ops, ((1, 2), (3,), (0,)), ("int8", "int32")):
        yield f"{op} {axes} {dtype}", _reduced(op, (2, 4, 4, 8), axes, dtype)
    for axis, channels in ((3, 127), (3, 128), (1, 8), (-1, 8)):
        shape = (1, 4, 4, channels)
        rest = tuple(n for at, n in enumerate(shape) if at != axis % 4)
        tensors = [T(shape, "int8", 0.1), constant(axis), T(rest, "int32")]
        yield f"ARG_MAX {axis} {channels}", one("ARG_MAX", tensors, "ArgMaxOptions", OutputType=2)


def _resizes() -> Iterator[Case]:
    sizes = (
        ((4, 4), (8, 8)), ((4, 4), (32, 32)), ((4, 4), (64, 64)), ((4, 4), (12, 12)),
        ((4, 4), (8, 16)), ((1, 4), (1, 8)), ((4, 1), (8, 1)), ((1, 1), (5, 7)), ((4, 4), (4, 4)),
        ((8, 8), (4, 4)), ((4, 4), (7, 7)), ((1, 4), (2, 8)), ((3, 3), (5, 5)), ((4, 4), (13, 13)),
    )  # fmt: skip
    kinds = ("RESIZE_BILINEAR", "ResizeBilinearOptions"), (
        "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"
    )  # fmt: skip
    for (op, kind), (a, b), (corners, centers) in product(kinds, sizes, ((0, 0), (1, 0), (0, 1))):
        tensors = [T((1, *a, 8), "int8", 0.1), constant(list(b)), T((1, *b, 8), "int8", 0.1)]
        options = {"AlignCorners": bool(corners), "HalfPixelCenters": bool(centers)}
        yield f"{op} {a} {b} {corners} {centers}", one(op, tensors, kind, **options)


def _movement() -> Iterator[Case]:
    cases = (
        (_IMAGE, (0, 3, 1, 2)), (_IMAGE, (0, 2, 1, 3)), (_IMAGE, (0, 1, 3, 2)),
        ((2, 4, 5, 6), (3, 2, 1, 0)), ((2, 3, 4, 5, 6), (0, 2, 1, 4, 3)), ((4, 8), (1, 0)),
        ((1, 300, 300, 3), (0, 3, 1, 2)), ((3, 300, 300, 3), (3, 1, 2, 0)),
    )  # fmt: skip
    for (shape, order), dtype in product(cases, ("int8", "int16", "int32")):
        scale = None if dtype == "int32" else 0.1
        to = tuple(shape[n] for n in order)
        tensors = [T(shape, dtype, scale), constant(list(order)), T(to, dtype, scale)]
        yield f"TRANSPOSE {shape} {order} {dtype}", one("TRANSPOSE", tensors)
    for dtype in ("int8", "int16", "int32", "uint8"):
        halves = [T((1, 4, 4, n), dtype, 0.1) for n in (3, 5, 8)]
        yield f"CONCATENATION {dtype}", one("CONCATENATION", halves, "ConcatenationOptions", Axis=3)
        rows = [T(shape, dtype, 0.1) for shape in ((1, 4), (1, 4), (2, 1, 4))]
        yield f"PACK {dtype}", one("PACK", rows, "PackOptions", ValuesCount=2, Axis=0)
        tile = [T(_IMAGE, dtype, 0.1), constant([1, 2, 1, 1]), T((1, 8, 4, 8), dtype, 0.1)]
        yield f"TILE {dtype}", one("TILE", tile)
        wide = [T((4, 8), dtype, 0.1), constant(0), T((1, 4, 8), dtype, 0.1)]
        yield f"EXPAND_DIMS {dtype}", one("EXPAND_DIMS", wide)
        parts = [constant(3), T(_IMAGE, dtype, 0.1), *[T((1, 4, 4, 4), dtype, 0.1)] * 2]
        call = Op("SPLIT", (0, 1), (2, 3), "SplitOptions", {"NumSplits": 2})
        yield f"SPLIT {dtype}", model([Subgraph(parts, [1], [2, 3], [call])])
        rows = [T((2, 4, 8), dtype, 0.1), *[T((4, 8), dtype, 0.1)] * 2]
        call = Op("UNPACK", (0,), (1, 2), "UnpackOptions", {"Num": 2, "Axis": 0})
        yield f"UNPACK {dtype}", model([Subgraph(rows, [0], [1, 2], [call])])
    picked = [T((1, 8), "int8", 0.1), constant([0, 2]), T((1, 2), "int8", 0.1)]
    yield "GATHER", one("GATHER", picked, "GatherOptions", Axis=1)
    deep = [T(_IMAGE, "int8", 0.1), T((1, 8, 8, 2), "int8", 0.1)]
    yield "DEPTH_TO_SPACE", one("DEPTH_TO_SPACE", deep, "DepthToSpaceOptions", BlockSize=2)
    back = [T(_IMAGE, "int8", 0.1), T((1, 2, 2, 32), "int8", 0.1)]
    yield "SPACE_TO_DEPTH", one("SPACE_TO_DEPTH", back, "SpaceToDepthOptions", BlockSize=2)
    for axis in (1, 3):
        turned = [T(_IMAGE, "int8", 0.1), constant([axis]), T(_IMAGE, "int8", 0.1)]
        yield f"REVERSE_V2 {axis}", one("REVERSE_V2", turned)


def _pads() -> Iterator[Case]:
    for pads, dtype in product(
        ([[0, 0], [1, 1], [1, 2], [0, 0]], [[1, 0], [0, 0], [0, 0], [0, 4]]),
        ("int8", "int16", "int32"),
    ):
        to = tuple(n + sum(pads[at]) for at, n in enumerate(_IMAGE))
        tensors = [T(_IMAGE, dtype, 0.1), constant(pads), T(to, dtype, 0.1)]
        yield f"PAD {pads} {dtype}", one("PAD", tensors)
        if pads[0][0] == 0:
            yield f"MIRROR_PAD {dtype}", one("MIRROR_PAD", tensors, "MirrorPadOptions", Mode=0)


def _slices() -> Iterator[Case]:
    for steps, dtype in product(
        ((1, 1, 1, 1), (1, 2, 2, 1), (1, 3, 1, 1), (1, 1, 1, 2), (2, 1, 1, 1)), ("int8", "int32")
    ):
        shape = (4, 8, 8, 8)
        to = tuple(-(-n // s) for n, s in zip(shape, steps, strict=True))
        bounds = [constant([0] * 4), constant(list(shape)), constant(list(steps))]
        tensors = [T(shape, dtype, 0.1), *bounds, T(to, dtype, 0.1)]
        yield f"STRIDED_SLICE {steps} {dtype}", one("STRIDED_SLICE", tensors, "StridedSliceOptions")
    bounds = [constant([0, 1, 1, 2]), constant([1, 2, 2, 4])]
    tensors = [T(_IMAGE, "int8", 0.1), *bounds, T((1, 2, 2, 4), "int8", 0.1)]
    yield "SLICE", one("SLICE", tensors)


def _transposed() -> Iterator[Case]:
    strides = ((1, 1), (2, 2), (3, 3), (1, 2), (2, 1))
    for s, k, same in product(strides, ((1, 1), (3, 3), (4, 4)), (True, False)):
        axes = zip((4, 4), s, k, strict=True)
        size = tuple(n * st if same else n * st + max(kk - st, 0) for n, st, kk in axes)
        yield f"TRANSPOSE_CONV s{s} k{k} {same}", _upsampled((4, 4), size, k, s, same)
    yield "TRANSPOSE_CONV odd", _upsampled((4, 4), (7, 7), (3, 3), (2, 2), True)
    yield "TRANSPOSE_CONV row", _upsampled((1, 4), (1, 8), (1, 3), (1, 2), True)
    yield "TRANSPOSE_CONV column", _upsampled((4, 1), (8, 1), (3, 1), (2, 1), True)


def _upsampled(size: Pair, to: Sequence[int], k: Pair, s: Pair, same: bool) -> bytes:
    weights = T((4, *k, 4), "int8", 0.01, data=_random((4, *k, 4), "int8"))
    tensors = [constant([1, *to, 4]), weights, T((1, *size, 4), "int8", 0.1)]
    options = {"Padding": 0 if same else 1, "StrideH": s[0], "StrideW": s[1]}
    result = T((1, *to, 4), "int8", 0.1)
    return one("TRANSPOSE_CONV", [*tensors, result], "TransposeConvOptions", **options)


def _parameters() -> Iterator[Case]:
    """Missing or unusual scales, zero points and extents."""
    plain = T((1, 4), "int8", 0.1)
    odd = {
        "no scale": T((1, 4)), "scales along an axis": T((1, 4), "int8", [0.1] * 4, [0] * 4, 1),
        "open batch": T((1, 4), "int8", 0.1, open=(-1, 4)),
        "open extent": T((1, 4), "int8", 0.1, open=(1, -1)),
    }  # fmt: skip
    for name, tensor in odd.items():
        yield f"ADD {name}", one("ADD", [tensor, plain, plain])
        yield (
            f"CONCATENATION {name}",
            one(
                "CONCATENATION",
                [tensor, plain, T((1, 8), "int8", 0.1)],
                "ConcatenationOptions",
                Axis=1,
            ),
        )
        yield f"RESHAPE {name}", one("RESHAPE", [tensor, T((4,), "int8", 0.1)])
    for dtype, zero in product(("int32", "int16", "uint8"), (0, 3)):
        tensors = [T((1, 4), dtype, 0.1, zero), *[T((1, 4), dtype, 0.1)] * 2]
        yield f"ADD {dtype} zero {zero}", one("ADD", tensors)
    for shape in ((1, 300, 300, 4), (65536, 4)):
        tensors = [T(shape, "int8", 0.1), T(shape, "int8", 1 / 256, -128)]
        yield f"SOFTMAX {shape}", one("SOFTMAX", tensors, "SoftmaxOptions", Beta=1.0)
