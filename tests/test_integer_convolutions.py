"""Convolutions of bytes, two channels in a word, against onnxruntime where it is exact.

It sums products of u8 by i8 in 16 bits in QLinearConv, which saturate on some processors, and not
in ConvInteger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto, numpy_helper

import modelcc
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options
from tests.word_products import kernels_of, word_products

OPTIONS = chosen_options(threads=1)
TYPES = {"uint8": np.uint8, "int8": np.int8}
Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Window:
    """``channels`` to ``outputs`` in groups, and how the kernel moves over an image of ``size``."""

    channels: int
    outputs: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    dilation: int = 1
    stride: int = 1
    groups: int = 1
    pads: int = 0

    @property
    def attributes(self) -> str:
        rank = len(self.size)
        dilations, strides, pads = (
            [value] * count
            for value, count in ((self.dilation, rank), (self.stride, rank), (self.pads, 2 * rank))
        )
        return (
            f"kernel_shape={list(self.kernel)}, dilations={dilations}, strides={strides},"
            f" pads={pads}, group={self.groups}"
        )

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.outputs, self.channels // self.groups, *self.kernel)


WINDOWS = {
    "line": Window(32, 24, (40,), (11,), pads=5),
    "dilated": Window(16, 16, (70,), (11,), dilation=5, pads=25),
    "plane": Window(12, 20, (9, 7), (3, 3), pads=1),
    "strided": Window(6, 16, (9, 8), (3, 3), stride=2, pads=1),
    "odd channels": Window(5, 18, (6, 7), (3, 2), pads=1),
    "three channels": Window(3, 32, (17, 19), (7, 7), stride=2, pads=3),
    "points": Window(64, 32, (5, 6), (1, 1)),
    "four groups": Window(64, 64, (6, 5), (3, 3), groups=4, pads=1),
    "narrow groups": Window(32, 32, (6, 5), (3, 3), groups=8, pads=1),
    "odd groups": Window(9, 48, (6, 5), (3, 3), groups=3, pads=1),
    "depthwise": Window(24, 24, (8, 9), (5, 5), groups=24, pads=2, dilation=2),
    "long depthwise": Window(16, 16, (60,), (31,), groups=16, pads=15),
    "volume": Window(8, 16, (4, 5, 6), (2, 3, 2), pads=1),
}


def everything(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """All numbers there are, the least and the greatest more often."""
    info = np.iinfo(TYPES[dtype])
    data = rng.integers(info.min, info.max, shape, TYPES[dtype], endpoint=True)
    ends = rng.choice(np.array([info.min, info.max], TYPES[dtype]), shape)
    return np.where(rng.random(shape) < 0.5, ends, data)


def integer_model(
    window: Window, types: tuple[str, str], named: bool, constants: Mapping[str, np.ndarray]
) -> ModelProto:
    """ConvInteger of x by w with zero points z and v; what is in ``constants`` is no input."""
    rank = len(window.size)
    image = [1, window.channels, *window.size]
    if named:
        image = ["n", window.channels, *(f"d{axis}" for axis in range(rank))]
    shapes = {"x": image, "w": list(window.weights), "z": [], "v": []}
    dtypes = {"x": types[0], "w": types[1], "z": types[0], "v": types[1]}
    inputs = ", ".join(
        f"{dtypes[name]}[{','.join(map(str, shape))}] {name}" if shape else f"{dtypes[name]} {name}"
        for name, shape in shapes.items()
        if name not in constants
    )
    outputs = ",".join(f"o{axis}" for axis in range(rank + 2))
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => (int32[{outputs}] y)'
        f" {{ y = ConvInteger<{window.attributes}>(x, w, z, v) }}"
    )
    return with_constants(model, constants)


def with_constants(model: ModelProto, constants: Mapping[str, np.ndarray]) -> ModelProto:
    for name, value in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model


def operands(
    window: Window, types: tuple[str, str], size: tuple[int, ...], batch: int, end: str = ""
) -> Values:
    """Images, weights and their zero points, which are at the ``end`` of their type if given."""
    rng = np.random.default_rng(0)
    zeros = [getattr(np.iinfo(TYPES[t]), end) if end else 3 for t in types]
    return {
        "x": everything(rng, types[0], batch, window.channels, *size),
        "w": everything(rng, types[1], *window.weights),
        "z": np.array(zeros[0], TYPES[types[0]]),
        "v": np.array(zeros[1], TYPES[types[1]]),
    }


def split(values: Values, constants: tuple[str, ...]) -> tuple[Values, Values]:
    return (
        {name: value for name, value in values.items() if name in constants},
        {name: value for name, value in values.items() if name not in constants},
    )


def agree(model: ModelProto, feeds: Values) -> None:
    expected = run_onnxruntime(model, feeds)["y"]
    found: Any = modelcc.compile(model, options=OPTIONS, cache=None)(feeds)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.share(3, "window", "constants")
@pytest.mark.parametrize(
    ("weights", "named", "constants"),
    [("int8", True, ()), ("uint8", True, ("w", "v")), ("uint8", False, ("w", "v", "z"))],
    ids=str,
)
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_integer_convolutions(
    window: Window, weights: str, named: bool, constants: tuple[str, ...]
) -> None:
    values = operands(window, ("uint8", weights), window.size, 2 if named else 1)
    known, feeds = split(values, constants)
    agree(integer_model(window, ("uint8", weights), named, known), feeds)


@pytest.mark.parametrize("types", list(product(["uint8"], TYPES)), ids=str)
@pytest.mark.parametrize("name", ["line", "odd channels", "narrow groups", "depthwise"])
def test_zero_points_at_the_ends(name: str, types: tuple[str, str]) -> None:
    """Differences of bytes of up to 255, positive and negative, are exact; pads are zero points."""
    window = WINDOWS[name]
    for constants, end in (((), "max"), (("w", "v"), "min"), (("w", "v", "z"), "max")):
        values = operands(window, types, window.size, 1, end)
        known, feeds = split(values, constants)
        agree(integer_model(window, types, False, known), feeds)


@pytest.mark.share(3, "name", "constants")
@pytest.mark.parametrize("constants", [(), ("w", "v"), ("w", "v", "z")], ids=str)
@pytest.mark.parametrize("name", ["line", "dilated", "plane", "odd channels", "depthwise"])
def test_named_extents_of_any_size(name: str, constants: tuple[str, ...]) -> None:
    """Images shorter than the kernel, and no images."""
    window = WINDOWS[name]
    known, _ = split(operands(window, ("uint8", "int8"), window.size, 1), constants)
    model = integer_model(window, ("uint8", "int8"), True, known)
    net = modelcc.compile(model, options=OPTIONS, cache=None)
    for size, batch in product((1, 2, 3, 16, 61), (0, 1, 2)):
        sizes = (size,) * len(window.size)
        _, feeds = split(operands(window, ("uint8", "int8"), sizes, batch), constants)
        reach = (window.kernel[0] - 1) * window.dilation
        if size + 2 * window.pads <= reach:
            continue
        expected = run_onnxruntime(model, feeds)["y"]
        found: Any = net(feeds)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.share(3, "name", "form", "at_run_time", "dtype")
@pytest.mark.parametrize(
    ("form", "at_run_time", "dtype"),
    [
        ("QLinearConv", False, "uint8"),
        ("QLinearConv", True, "uint8"),
        ("dequantised", False, "int8"),
        ("dequantised", False, "uint8"),
        ("dequantised", True, "uint8"),
    ],
)
@pytest.mark.parametrize("name", ["plane", "dilated", "four groups", "narrow groups", "depthwise"])
def test_quantised_again(name: str, form: str, at_run_time: bool, dtype: str) -> None:
    window, byte = WINDOWS[name], TYPES[dtype]
    values = operands(window, (dtype, dtype), window.size, 1)
    del values["z"], values["v"]
    constants = {
        "s": np.float32(0.02), "z": byte(100), "t": np.float32(0.01), "v": byte(0),
        "u": np.float32(0.01 * np.sqrt(np.prod(window.weights[1:]))), "p": byte(90),
        "b": np.arange(window.outputs, dtype=np.int32) * 997 - 9000,
    }  # fmt: skip
    constants = {name: np.asarray(value) for name, value in constants.items()}
    known, feeds = split(values, () if at_run_time else ("w",))
    dims = {"x": (1, window.channels, *window.size), "w": window.weights}
    inputs = ", ".join(f"{dtype}[{','.join(map(str, dims[n]))}] {n}" for n in feeds)
    outputs = ",".join(f"o{axis}" for axis in range(len(window.size) + 2))
    body = f"y = QLinearConv<{window.attributes}>(x, s, z, w, t, v, u, p, b)"
    if form == "dequantised":
        constants["st"] = np.asarray(np.float32(0.02) * np.float32(0.01))
        body = (
            "a = DequantizeLinear(x, s, z) c = DequantizeLinear(w, t, v)"
            f" d = DequantizeLinear(b, st) e = Conv<{window.attributes}>(a, c, d)"
            " y = QuantizeLinear(e, u, p)"
        )
    graph = f"g ({inputs}) => ({dtype}[{outputs}] y) {{ {body} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {graph}')
    model = with_constants(model, {**constants, **known})
    expected = run_onnxruntime(model, feeds)["y"]
    found: Any = modelcc.compile(model, options=OPTIONS, cache=None)(feeds)
    difference = np.abs(found.astype(int) - expected.astype(int))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.01


@pytest.mark.parametrize("constants", [(), ("w", "v"), ("w", "v", "z")], ids=str)
def test_channels_are_packed(constants: tuple[str, ...]) -> None:
    window = WINDOWS["dilated"]
    known, _ = split(operands(window, ("uint8", "uint8"), window.size, 1), constants)
    assert word_products(integer_model(window, ("uint8", "uint8"), True, known), OPTIONS) == 1


def test_readers_of_one_image_share_its_words() -> None:
    known = operands(WINDOWS["plane"], ("uint8", "uint8"), (4, 4), 1)
    attributes = WINDOWS["plane"].attributes
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (uint8[1,12,h,w] x, uint8 z)'
        " => (int32[1,20,h,w] a, int32[1,20,h,w] b) {"
        f" a = ConvInteger<{attributes}>(x, w, z, v) b = ConvInteger<{attributes}>(x, u, z, v) }}"
    )
    model = with_constants(model, {"w": known["w"], "u": known["w"][::-1], "v": known["v"]})
    packed = [kernel for kernel in kernels_of(model, OPTIONS) if kernel.name == "Pack"]
    assert len(packed) == 1
    feeds = {"x": known["x"], "z": known["z"]}
    expected = run_onnxruntime(model, feeds)
    found: Any = modelcc.compile(model, options=OPTIONS, cache=None).run(feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
