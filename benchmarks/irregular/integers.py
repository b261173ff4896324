"""Products and convolutions of 8-bit integers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from benchmarks.irregular.case import Array, Case, Feeds


def _bytes(random: np.random.Generator, *shape: int) -> Array:
    return random.integers(0, 256, shape).astype(np.uint8)


def _convolution(
    form: str,
    kernel: int,
    axes: int = 1,
    dilation: int = 1,
    groups: int = 1,
    stride: int = 1,
    at_run_time: bool = False,
) -> Case:
    """64 channels of u8, n long and 16 wide, by u8, which ONNX Runtime accumulates exactly."""
    wide = "" if axes == 1 else ", 16"
    attributes = (
        f"dilations = {[dilation] * axes}, strides = {[stride] * axes}, group = {groups}, "
        f"pads = {[dilation * (kernel // 2)] * (2 * axes)}"
    )
    weights = (64, 64 // groups, *(kernel,) * axes)
    shape = ", ".join(map(str, weights))
    body, result = {
        "ConvInteger": (f"y = ConvInteger<{attributes}>(x, w, z, v)", "int32"),
        "QLinearConv": (f"y = QLinearConv<{attributes}>(x, s, z, w, t, v, u, z)", "uint8"),
        "dequantised": (
            "a = DequantizeLinear(x, s, z) b = DequantizeLinear(w, t, v) "
            f"c = Conv<{attributes}>(a, b) y = QuantizeLinear(c, u, z)",
            "uint8",
        ),
    }[form]
    parameters = "uint8 z, uint8 v" + (
        "" if form == "ConvInteger" else ", float s, float t, float u"
    )
    results = ", ".join("abcd"[: axes + 2])
    graph = (
        f"g (uint8[1, 64, n{wide}] x, uint8[{shape}] w, {parameters}) => "
        f"({result}[{results}] y) {{ {body} }}"
    )

    def feeds(random: np.random.Generator, n: int) -> Feeds:
        given = {
            "w": _bytes(np.random.default_rng(1), *weights),
            "x": _bytes(random, 1, 64, n, *(16,) * (axes - 1)),
            "z": np.array(128, np.uint8), "v": np.array(120, np.uint8),
        }  # fmt: skip
        scales = {"s": 0.02, "t": 0.01, "u": 0.02 * float(np.sqrt(np.prod(weights[1:])))}
        if form != "ConvInteger":
            given |= {name: np.array(scale, np.float32) for name, scale in scales.items()}
        return given

    known = () if form == "ConvInteger" else ("z", "s", "t", "u")
    return Case(graph, feeds, 256 if axes == 1 else 64,
                constants=("v", *known, *(() if at_run_time else ("w",))))  # fmt: skip


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "MatMulInteger": Case(
            "g (uint8[n, 64] x, uint8[64, n] w) => (int32[n, n] y) { y = MatMulInteger(x, w) }",
            lambda r, n: {
                name: r.integers(0, 255, shape).astype(np.uint8)
                for name, shape in (("x", (n, 64)), ("w", (64, n)))
            }, 64,
        ),
        **{
            f"MatMulInteger {name}": Case(
                f"g (uint8[4, n, 64] x, {kind}[{shape}] w) => (int32[4, n, m] y) "
                "{ y = MatMulInteger(x, w) }",
                lambda r, n, batch=batch, kind=kind: {
                    "x": _bytes(r, 4, n, 64),
                    "w": _bytes(r, *batch, 64, n if batch else 256).astype(kind),
                }, 32,
            )
            for name, kind, shape, batch in (
                ("batched", "uint8", "4, 64, n", (4,)), ("broadcast", "uint8", "64, 256", ()),
                ("u8 by i8", "int8", "4, 64, n", (4,)),
            )
        },
        "ConvInteger": _convolution("ConvInteger", 3, 2),
        "ConvInteger dilated": _convolution("ConvInteger", 11, dilation=5),
        "ConvInteger weights": _convolution("ConvInteger", 11, dilation=5, at_run_time=True),
        "ConvInteger groups": _convolution("ConvInteger", 3, 2, groups=4),
        "ConvInteger depthwise": _convolution("ConvInteger", 31, groups=64),
        "QLinearConv": _convolution("QLinearConv", 3, 2),
        "QLinearConv strided": _convolution("QLinearConv", 5, 2, stride=2),
        "QLinearConv groups": _convolution("QLinearConv", 3, 2, groups=16),
        "QLinearConv depthwise": _convolution("QLinearConv", 3, 2, groups=64),
        "Conv dequantised": _convolution("dequantised", 3, 2, dilation=3),
        "Conv deq. weights": _convolution("dequantised", 3, 2, at_run_time=True),
    }
)  # fmt: skip
