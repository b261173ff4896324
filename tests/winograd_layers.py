"""Layers that Winograd's algorithms can compute by groups of threads, and what they mean in f64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import Array
from modelcc.passes.tensor.winograd_stages import WinogradStages
from modelcc.targets.gpu.passes.winograd_cost import GroupWinogradCost, WinogradEstimate

BOUNDS = {4: 1e-5, 2: 2e-6}
"""Of errors, by the largest output."""


@dataclass(frozen=True)
class Fixed(WinogradEstimate):
    """One algorithm for every convolution."""

    m: int = 4

    def best(self, kernel: Kernel, ways: Sequence[WinogradStages]) -> WinogradStages | None:
        return next(way for way in ways if way.tiles.m == self.m)


@dataclass(frozen=True)
class Always(GroupWinogradCost):
    """As :class:`Fixed`."""

    m: int = 4

    def of(self, program: TensorProgram) -> WinogradEstimate:
        return Fixed(self.machine, self.margin, program, m=self.m)


@dataclass(frozen=True)
class Layer:
    """Images of ``inputs`` channels, convolved to ``outputs``, plus a bias; that is a result, and
    so is what a residual and a ReLU make of it.  Channels are last, or second.

    The window is ``guarded`` by its conditions, which are those of the images' borders if empty."""

    size: tuple[int, int]
    inputs: int = 4
    outputs: int = 8
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    last: bool = True
    images: str = "n"
    guarded: str = ""

    @property
    def results(self) -> tuple[int, int]:
        (h, w), (up, left, down, right) = self.size, self.pads
        return h + up + down - 2, w + left + right - 2

    def order(self, n: object, c: object, h: object, w: object) -> str:
        parts = (n, h, w, c) if self.last else (n, c, h, w)
        return ", ".join(map(str, parts))

    def text(self, digest: str) -> str:
        (h, w), (p, q), (up, left, _, _) = self.size, self.results, self.pads
        row, column = f"p + a - {up}", f"q + b - {left}"
        guard = self.guarded or f"[0 <= {row}, {row} < {h}, 0 <= {column}, {column} < {w}]"
        x = f"%x: f32[{self.order(self.images, self.inputs, h, w)}]"
        shape = self.order(self.images, self.outputs, p, q)
        bias, weights = f"%b: f32[{self.outputs}]", f"%w: f32[{self.outputs}, {self.inputs}, 3, 3]"
        axes = self.order(f"i < {self.images}", f"o < {self.outputs}", f"p < {p}", f"q < {q}")
        pixel, here = self.order("i", "c", row, column), self.order("i", "o", "p", "q")
        operands = f"{x}, {weights}, {bias}, %r: f32[{shape}]"
        return f"""program @p({x}, {bias}, %r: f32[{shape}]) -> (%y, %z) dims(n in 1:) {{
  constant {weights} = "{digest}"
  kernel @Conv({operands}) -> (%y: f32[{shape}], %z: f32[{shape}]) {{
    %s: f32[{shape}] = [{axes}] sum[c < {self.inputs}, a < 3, b < 3]
      (%x[{pixel}] if {guard} else 0.0) * %w[o, c, a, b]
    %y: f32[{shape}] = [{axes}] %s[{here}] + %b[o]
    %z: f32[{shape}] = [{axes}] max(%y[{here}] + %r[{here}], 0.0) }} }}"""

    def tensors(self, images: int) -> dict[str, Array]:
        rng = np.random.default_rng(3)
        shape = [int(n) for n in self.order(images, self.inputs, *self.size).split(", ")]
        made = [int(n) for n in self.order(images, self.outputs, *self.results).split(", ")]
        shapes = {"x": shape, "b": [self.outputs], "r": made}
        return {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}

    @property
    def weights(self) -> Array:
        rng = np.random.default_rng(4)
        return rng.standard_normal((self.outputs, self.inputs, 3, 3)).astype(np.float32)

    @property
    def program(self) -> TensorProgram:
        constant = Constant(self.weights)
        program = parse_tensor_program(self.text(constant.digest), {constant.digest: constant})
        verify_tensor_program(program)
        return program

    def expected(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        x, b, r = (tensors[n].astype(np.float64) for n in "xbr")
        up, left, down, right = self.pads
        x = x if self.last else np.moveaxis(x, 1, 3)
        wide = np.pad(x, ((0, 0), (up, down), (left, right), (0, 0)))
        views = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(1, 2))
        y = np.einsum("npqcab,ocab->npqo", views, self.weights.astype(np.float64)) + b
        y = y if self.last else np.moveaxis(y, 3, 1)
        return {"y": y, "z": np.maximum(y + r, 0)}


LAYERS = {
    "whole tiles": Layer((8, 12)),
    "edges": Layer((7, 10)),
    "less than a tile": Layer((3, 2)),
    "no padding": Layer((10, 9), pads=(0, 0, 0, 0)),
    "uneven padding": Layer((9, 8), pads=(1, 0, 0, 2)),
    "wide padding": Layer((5, 6), pads=(2, 2, 2, 2)),
    "odd channels": Layer((6, 9), inputs=3, outputs=5),
    "one image": Layer((7, 9), images="1"),
    "channels second": Layer((7, 10), last=False),
    "channels second, whole tiles": Layer((8, 8), last=False, images="3"),
}


def assert_near(found: Array, wanted: Array, bound: float) -> None:
    assert np.abs(found - wanted).max() <= bound * np.abs(wanted).max()


def images_of(layer: Layer) -> int:
    return 2 if layer.images == "n" else int(layer.images)
