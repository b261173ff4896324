"""Convolutions of various widths, shapes, strides and groups, and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from benchmarks.operators.case import Case, one, weights


def _conv(
    name: str,
    channels: tuple[int, int],
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int = 1,
    dilation: int = 1,
    group: int = 1,
    family: str = "conv",
) -> Case:
    inputs, outputs = channels
    pads = [dilation * (k - 1) // 2 for k in kernel]
    scale = np.float32(1 / np.sqrt(inputs // group * prod(kernel)))
    return one(
        family,
        name,
        "Conv",
        [(1, inputs, *size)],
        [weights((outputs, inputs // group, *kernel)) * scale, weights((outputs,))],
        kernel_shape=kernel,
        strides=[stride] * len(kernel),
        dilations=[dilation] * len(kernel),
        pads=[*pads, *pads],
        group=group,
    )


def _dense() -> Iterator[Case]:
    yield _conv("1x1_64_56", (64, 64), (56, 56), (1, 1))
    yield _conv("1x1_256_64_56", (256, 64), (56, 56), (1, 1))
    yield _conv("1x1_512_14", (512, 512), (14, 14), (1, 1))
    yield _conv("1x1_s2_256_28", (256, 512), (28, 28), (1, 1), stride=2)
    yield _conv("1x1_40_100_28", (40, 100), (28, 28), (1, 1))
    yield _conv("1x1_3_10_64", (3, 10), (64, 64), (1, 1))
    yield _conv("3x3_3_64_224", (3, 64), (224, 224), (3, 3))
    yield _conv("3x3_s2_3_32_224", (3, 32), (224, 224), (3, 3), stride=2)
    yield _conv("7x7_s2_3_64_224", (3, 64), (224, 224), (7, 7), stride=2)
    yield _conv("3x3_64_56", (64, 64), (56, 56), (3, 3))
    yield _conv("3x3_128_28", (128, 128), (28, 28), (3, 3))
    yield _conv("3x3_512_7", (512, 512), (7, 7), (3, 3))
    yield _conv("3x3_s2_64_128_56", (64, 128), (56, 56), (3, 3), stride=2)
    yield _conv("3x3_d2_64_28", (64, 64), (28, 28), (3, 3), dilation=2)
    yield _conv("3x3_6_12_40", (6, 12), (40, 40), (3, 3))
    yield _conv("3x3_20_20_32", (20, 20), (32, 32), (3, 3))
    yield _conv("3x3_100_100_20", (100, 100), (20, 20), (3, 3))
    yield _conv("5x5_32_28", (32, 32), (28, 28), (5, 5))
    yield _conv("5x5_1_10_28", (1, 10), (28, 28), (5, 5))
    yield _conv("7x7_16_28", (16, 16), (28, 28), (7, 7))
    yield _conv("3x3_64_1_64", (64, 1), (64, 64), (3, 3))
    yield _conv("3x3_1_1_128", (1, 1), (128, 128), (3, 3))
    yield _conv("1x1_64_1_64", (64, 1), (64, 64), (1, 1))
    yield _conv("16x16_s16_3_384", (3, 384), (224, 224), (16, 16), stride=16)
    yield _conv("1d_k3_64_400", (64, 64), (400,), (3,))
    yield _conv("1d_k9_1_16_4000", (1, 16), (4000,), (9,))
    yield _conv("1d_k3_40_100_333", (40, 100), (333,), (3,))
    yield _conv("1d_s2_k7_32_2000", (32, 64), (2000,), (7,), stride=2)
    yield _conv("3d_k3_3_16_32", (3, 16), (16, 32, 32), (3, 3, 3))
    yield _conv("3d_k3_32_16", (32, 32), (8, 16, 16), (3, 3, 3))
    yield _conv("3d_k133_16_24", (16, 24), (8, 28, 28), (1, 3, 3))


def _grouped() -> Iterator[Case]:
    for width in (3, 4, 6, 8, 10, 12, 16, 20):
        groups = 96 // width
        name = f"3x3_g{groups}x{width}_28"
        channels = (groups * width, groups * width)
        yield _conv(name, channels, (28, 28), (3, 3), group=groups, family="group")
    yield _conv("1x1_g4x32_28", (128, 128), (28, 28), (1, 1), group=4, family="group")
    yield _conv("1x1_g3x20_28", (60, 240), (28, 28), (1, 1), group=3, family="group")
    yield _conv("1x1_g2_out1_28", (32, 2), (28, 28), (1, 1), group=2, family="group")
    for kernel, stride in ((3, 1), (3, 2), (5, 1), (7, 1)):
        name = f"dw{kernel}x{kernel}_s{stride}_96_56"
        shape = (kernel, kernel)
        yield _conv(name, (96, 96), (56, 56), shape, stride, group=96, family="depthwise")
    yield _conv("dw3x3_m2_32_56", (32, 64), (56, 56), (3, 3), group=32, family="depthwise")
    yield _conv("dw3x3_10_28", (10, 10), (28, 28), (3, 3), group=10, family="depthwise")
    yield _conv("dw3x3_d2_64_28", (64, 64), (28, 28), (3, 3), 1, 2, 64, family="depthwise")
    yield _conv("dw1d_k5_256_200", (256, 256), (200,), (5,), group=256, family="depthwise")
    yield _conv("dw3d_24_16", (24, 24), (8, 16, 16), (3, 3, 3), group=24, family="depthwise")


def _transposed() -> Iterator[Case]:
    for name, (i, o), size, k, s in (
        ("2x2_s2_64_32_28", (64, 32), (28, 28), 2, 2),
        ("3x3_s2_32_16_28", (32, 16), (28, 28), 3, 2),
        ("4x4_s2_64_16", (64, 64), (16, 16), 4, 2),
        ("3x3_s1_20_28", (20, 20), (28, 28), 3, 1),
        ("4x4_s2_64_3_64", (64, 3), (64, 64), 4, 2),
    ):
        scale = np.float32(1 / np.sqrt(i * k * k))
        pads = [(k - 1) // 2] * 4
        yield one(
            "transposed", name, "ConvTranspose", [(1, i, *size)], [weights((i, o, k, k)) * scale],
            kernel_shape=(k, k), strides=(s, s), pads=pads,
        )  # fmt: skip
    yield one(
        "transposed", "1d_k16_s8_32_200", "ConvTranspose", [(1, 32, 200)],
        [weights((32, 16, 16)) * np.float32(0.1)], kernel_shape=[16], strides=[8], pads=[4, 4],
    )  # fmt: skip


def _pools() -> Iterator[Case]:
    shape = (1, 64, 56, 56)
    for operator, short in (("MaxPool", "max"), ("AveragePool", "avg")):
        for k, s in ((2, 2), (3, 2), (3, 1), (5, 1)):
            yield one(
                "pool", f"{short}{k}x{k}_s{s}_64_56", operator, [shape],
                kernel_shape=(k, k), strides=(s, s), pads=[(k - 1) // 2] * 4,
            )  # fmt: skip
        yield one(
            "pool", f"{short}1d_k3_s2_64_1000", operator, [(1, 64, 1000)],
            kernel_shape=[3], strides=[2], pads=[1, 1],
        )  # fmt: skip
        yield one(
            "pool", f"{short}3d_k2_16_16", operator, [(1, 16, 16, 32, 32)],
            kernel_shape=[2, 2, 2], strides=[2, 2, 2],
        )  # fmt: skip
    yield one(
        "pool", "max13x13_s1_64_20", "MaxPool", [(1, 64, 20, 20)],
        kernel_shape=(13, 13), strides=(1, 1), pads=[6] * 4,
    )  # fmt: skip
    yield one("pool", "global_avg_512_7", "GlobalAveragePool", [(1, 512, 7, 7)])
    yield one("pool", "global_avg_64_56", "GlobalAveragePool", [shape])
    yield one("pool", "global_max_64_56", "GlobalMaxPool", [shape])


def _relu_chain(name: str, widths: tuple[int, ...], size: int) -> Case:
    """3x3 convolutions with ReLU, in sequence."""
    nodes: list[NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    value = "x0"
    for n, (i, o) in enumerate(pairwise(widths)):
        constants[f"w{n}"] = weights((o, i, 3, 3)) * np.float32(1 / np.sqrt(9 * i))
        nodes.append(helper.make_node("Conv", [value, f"w{n}"], [f"c{n}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{n}"], [f"r{n}"]))
        value = f"r{n}"
    return Case("network", name, ((1, widths[0], size, size),), tuple(nodes), constants)


def _generator(name: str, widths: tuple[int, ...], size: int) -> Case:
    """Transposed convolutions that double the image, as in generators."""
    nodes: list[NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    value = "x0"
    for n, (i, o) in enumerate(pairwise(widths)):
        constants[f"w{n}"] = weights((i, o, 4, 4)) * np.float32(1 / np.sqrt(16 * i))
        shape: dict[str, Any] = {"strides": [2, 2], "pads": [1] * 4}
        nodes.append(helper.make_node("ConvTranspose", [value, f"w{n}"], [f"c{n}"], **shape))
        last = n == len(widths) - 2
        nodes.append(helper.make_node("Tanh" if last else "Relu", [f"c{n}"], [f"r{n}"]))
        value = f"r{n}"
    return Case("network", name, ((1, widths[0], size, size),), tuple(nodes), constants)


def _larger_images() -> Case:
    """Super resolution: convolutions, then pixel shuffle."""
    shapes = ((32, 3, 5, 5), (32, 32, 3, 3), (12, 32, 3, 3))
    constants = {f"w{n}": weights(s) * np.float32(0.05) for n, s in enumerate(shapes)}
    nodes = (
        helper.make_node("Conv", ["x0", "w0"], ["a"], pads=[2] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["e"], pads=[1] * 4),
        helper.make_node("DepthToSpace", ["e"], ["y"], blocksize=2),
    )
    return Case("network", "super_resolution_64", ((1, 3, 64, 64),), nodes, constants)


def _style() -> Case:
    """Style transfer: reflection padding, instance normalisation, nearest neighbours."""
    constants: dict[str, np.ndarray] = {
        "p": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "r": np.array([1, 1, 2, 2], np.float32),
        "w0": weights((32, 3, 3, 3)) * np.float32(0.2),
        "w1": weights((32, 32, 3, 3)) * np.float32(0.05),
        "w2": weights((3, 32, 3, 3)) * np.float32(0.05),
        "s": weights((32,)),
        "b": weights((32,)),
    }
    nodes = (
        helper.make_node("Pad", ["x0", "p"], ["a"], mode="reflect"),
        helper.make_node("Conv", ["a", "w0"], ["c"]),
        helper.make_node("InstanceNormalization", ["c", "s", "b"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("Pad", ["e", "p"], ["f"], mode="reflect"),
        helper.make_node("Conv", ["f", "w1"], ["g"], strides=[2, 2]),
        helper.make_node("InstanceNormalization", ["g", "s", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["i"]),
        helper.make_node("Resize", ["i", "", "r"], ["j"], mode="nearest"),
        helper.make_node("Pad", ["j", "p"], ["k"], mode="reflect"),
        helper.make_node("Conv", ["k", "w2"], ["y"]),
    )
    return Case("network", "style_128", ((1, 3, 128, 128),), nodes, constants)


def _segmentation() -> Case:
    """A head with few classes, resized to the image, and the argmax of each pixel."""
    constants = {
        "w0": weights((64, 64, 3, 3)) * np.float32(0.05),
        "w1": weights((21, 64, 1, 1)) * np.float32(0.1),
        "n": np.array([1, 21, 224, 224], np.int64),
    }
    nodes = (
        helper.make_node("Conv", ["x0", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"]),
        helper.make_node("Resize", ["c", "", "", "n"], ["y"], mode="linear"),
    )
    return Case("network", "segmentation_28", ((1, 64, 28, 28),), nodes, constants)


def _pooled() -> Case:
    """Alternating convolution and pooling, with 5x5 windows as in YOLO."""
    constants = {
        "w0": weights((40, 3, 3, 3)) * np.float32(0.2),
        "w1": weights((40, 160, 1, 1)) * np.float32(0.1),
    }
    pool: dict[str, Any] = {"kernel_shape": [5, 5], "pads": [2] * 4}
    nodes = (
        helper.make_node("Conv", ["x0", "w0"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("MaxPool", ["a"], ["b"], **pool),
        helper.make_node("MaxPool", ["b"], ["c"], **pool),
        helper.make_node("MaxPool", ["c"], ["d"], **pool),
        helper.make_node("Concat", ["a", "b", "c", "d"], ["e"], axis=1),
        helper.make_node("Conv", ["e", "w1"], ["f"]),
        helper.make_node("AveragePool", ["f"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    )
    return Case("network", "pools_40_40", ((1, 3, 80, 80),), nodes, constants)


def cases() -> Iterator[Case]:
    """All cases."""
    yield from _dense()
    yield from _grouped()
    yield from _transposed()
    yield from _pools()
    yield _relu_chain("convs_3_8_8_28", (3, 8, 8), 28)
    yield _relu_chain("convs_1_20_40_28", (1, 20, 40), 28)
    yield _generator("generator_100_64_3", (100, 64, 32, 3), 16)
    yield _larger_images()
    yield _style()
    yield _segmentation()
    yield _pooled()
    yield _relu_chain("convs_3_32_32_3_64", (3, 32, 32, 3), 64)
