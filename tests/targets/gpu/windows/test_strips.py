"""Windows that overlap by strips of results, against NumPy; the interpreter watches threads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.constant import Constant
from modelcc.ir.loop import Let, Load
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import BF16, F16, F32, Array, DType
from modelcc.schedule.group_schedule import GroupWindows
from modelcc.schedule.schedule import Schedule, ScheduleError
from modelcc.targets.gpu.machine import H100, INTEGRATED, PROCESSOR, GpuModel
from modelcc.targets.gpu.schedule import schedule_groups


@dataclass(frozen=True)
class Layer:
    """A window over each channel of images, whose last dimension channels are, or pixels."""

    dtype: DType = F32
    size: tuple[int, int] = (7, 9)
    channels: int = 4
    window: tuple[int, int] = (3, 3)
    stride: int = 1
    dilation: int = 1
    pad: int = 1
    last: bool = True
    often: int = 1

    @property
    def results(self) -> tuple[int, int]:
        """Rows and columns of results."""
        rows, columns = (
            (n + 2 * self.pad - self.dilation * (k - 1) - 1) // self.stride + 1
            for n, k in zip(self.size, self.window, strict=True)
        )
        return rows, columns

    def text(self, digest: str) -> str:
        """A program of this layer and what follows."""
        made, (h, w), (a, b), (p, q) = (
            self.channels * self.often, self.size, self.window, self.results,
        )  # fmt: skip
        y, x = (f"{self.stride}*{i} + {self.dilation}*{k} - {self.pad}" for i, k in ("pu", "qv"))
        c = "c" if self.often == 1 else f"c floordiv {self.often}"
        image, at = f"n, {h}, {w}, {self.channels}", f"n, {y}, {x}, {c}"
        shape, axes = f"n, {p}, {q}, {made}", f"i < n, p < {p}, q < {q}, c < {made}"
        here = "i, p, q, c"
        if not self.last:
            image, at = f"n, {self.channels}, {h}, {w}", f"n, {c}, {y}, {x}"
            shape, axes = f"n, {made}, {p}, {q}", f"i < n, c < {made}, p < {p}, q < {q}"
            here = "i, c, p, q"
        at = at.replace("n, ", "i, ", 1)
        guard = f"[0 <= {y}, {y} < {h}, 0 <= {x}, {x} < {w}]"
        t = self.dtype.name
        weights = f"%w: {t}[{made}, 1, {a}, {b}]"
        return f"""program @p(%x: {t}[{image}]) -> (%y) dims(n in 0:) {{
  constant {weights} = "{digest}"
  kernel @Conv(%x: {t}[{image}], {weights}) -> (%y: {t}[{shape}]) {{
    %s: f32[{shape}] = [{axes}] sum[u < {a}, v < {b}]
      f32((%x[{at}] if {guard} else 0.0:{t})) * f32(%w[c, 0, u, v])
    %y: {t}[{shape}] = [{axes}] {t}(max(%s[{here}], 0.0)) }} }}"""


def tensors(layer: Layer) -> tuple[Array, Array]:
    """Small integers, of whose products sums are exact."""
    rng = np.random.default_rng(5)
    made = layer.channels * layer.often
    image = (2, *layer.size, layer.channels)
    x, w = (rng.integers(-3, 4, shape) for shape in (image, (made, 1, *layer.window)))
    dtype = layer.dtype.numpy
    return x.astype(dtype), w.astype(dtype)


def expected(layer: Layer, x: Array, w: Array) -> Array:
    pad, step, far = layer.pad, layer.stride, layer.dilation
    wide = np.pad(x.astype(np.float32), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    wide = np.repeat(wide, layer.often, axis=3)
    spans = tuple(far * (k - 1) + 1 for k in layer.window)
    views = np.lib.stride_tricks.sliding_window_view(wide, spans, axis=(1, 2))
    views = views[:, ::step, ::step, :, ::far, ::far]
    return np.maximum(np.einsum("npqcuv,cuv->npqc", views, w[:, 0].astype(np.float32)), 0)


def scheduled(
    layer: Layer, w: Array, schedule: Schedule | None, machine: GpuModel = PROCESSOR
) -> Program:
    constant = Constant(w)
    program = parse_tensor_program(layer.text(constant.digest), {constant.digest: constant})
    return schedule_groups(program, schedule, machine)


BY_CHANNELS = [
    (Layer(), GroupWindows(8, 3)),
    (Layer(), GroupWindows(5, 4, 2)),
    (Layer(BF16, window=(7, 7), pad=3), GroupWindows(8, 9, 4, 4, 1)),
    (Layer(F16, channels=6), GroupWindows(6, 2, 2, 2, 3)),
    (Layer(stride=2), GroupWindows(8, 2, 2, 3, 2)),
    (Layer(F16, stride=2, window=(5, 5), pad=2), GroupWindows(4, 5)),
    (Layer(dilation=2, pad=2), GroupWindows(8, 4, 4)),
    (Layer(dilation=2, pad=2, stride=2, window=(2, 3)), GroupWindows(8, 3)),
    (Layer(stride=2, dilation=3, pad=1, window=(2, 3)), GroupWindows(8, 3, 2)),
    (Layer(pad=0, channels=5), GroupWindows(8, 4)),
    (Layer(window=(1, 5), pad=2), GroupWindows(8, 2, 1, 2, 4)),
    (Layer(window=(5, 1), pad=2), GroupWindows(8, 2)),
    (Layer(often=2, stride=2), GroupWindows(8, 3, 1, 2, 4)),
    (Layer(often=3, dtype=BF16), GroupWindows(8, 3)),
    (Layer(last=False), GroupWindows(8, 3)),
    (Layer(last=False, stride=2, pad=0), GroupWindows(16, 2)),
    (Layer(last=False, often=2, dilation=2, pad=2, window=(3, 2)), GroupWindows(8, 4)),
]


@pytest.mark.parametrize(("layer", "schedule"), BY_CHANNELS, ids=str)
def test_strips_compute_what_windows_mean(layer: Layer, schedule: Schedule) -> None:
    x, w = tensors(layer)
    program = scheduled(layer, w, schedule)
    image = x if layer.last else np.ascontiguousarray(np.moveaxis(x, 3, 1))
    found = run_scheduled(program, interpreted(program), {"x": image}, {"n": 2})["y"]
    found = found if layer.last else np.moveaxis(found, 1, 3)
    assert np.array_equal(found.astype(np.float32), expected(layer, x, w))


def loads(program: Program) -> list[Load]:
    (function,) = program.functions
    found = (s.value for s in statements(function.body) if isinstance(s, Let))
    return [value for value in found if isinstance(value, Load)]


@pytest.mark.parametrize(
    ("layer", "elements"),
    [
        (Layer(), 6),
        (Layer(stride=2, size=(7, 15)), 9),
        (Layer(dilation=2, pad=2), 8),
    ],
    ids=str,
)
def test_an_element_is_read_once_for_all_windows_of_a_strip(layer: Layer, elements: int) -> None:
    found = loads(scheduled(layer, tensors(layer)[1], GroupWindows(8, 4)))
    assert [load.buffer for load in found].count("x0") == elements
    assert [load.buffer for load in found].count("x1") == 3


MODEL = Layer(BF16, (14, 14), 384, (7, 7), pad=3)


def test_layers_of_models_have_strips_of_pairs_of_channels() -> None:
    """Weights lie like the image, so that threads read both side by side; of a whole row nothing
    that is beyond it."""
    program = scheduled(MODEL, tensors(MODEL)[1], None, H100)
    found = loads(program)
    assert {(load.lanes, load.stride) for load in found} == {(2, 1)}
    assert len(found) == 14 + 7


@pytest.mark.parametrize("machine", [H100, INTEGRATED, PROCESSOR], ids=lambda m: m.name)
@pytest.mark.parametrize("last", [True, False])
def test_other_machines_have_strips_too(machine: GpuModel, last: bool) -> None:
    layer = replace(MODEL, dtype=F32, last=last)
    found = loads(scheduled(layer, tensors(layer)[1], None, machine))
    assert len({load.buffer for load in found}) == 2
    assert len(found) < 2 * 14 + 7


REFUSED = [
    (Layer(), GroupWindows(0, 3), "strips have points"),
    (Layer(), GroupWindows(8, 3, 3), "strips have points"),
    (Layer(channels=5), GroupWindows(8, 3, 2), "no whole vectors side by side"),
    (Layer(last=False), GroupWindows(8, 3, 2), "no whole vectors side by side"),
    (Layer(), GroupWindows(8, 3, 1, 2, 3), "no whole blocks"),
    (Layer(size=(16, 17), stride=3, pad=0), GroupWindows(8, 2), "windows that overlap"),
    (Layer(window=(1, 1), pad=0), GroupWindows(8, 2), "windows that overlap"),
]


@pytest.mark.parametrize(("layer", "schedule", "why"), REFUSED, ids=str)
def test_what_does_not_fit_is_refused(layer: Layer, schedule: Schedule, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        scheduled(layer, tensors(layer)[1], schedule)


def test_maxima_of_windows_have_strips() -> None:
    x = np.random.default_rng(7).standard_normal((1, 8, 8, 4)).astype(np.float32)
    text = """program @p(%x: f32[1, 8, 8, 4]) -> (%y) dims() {
  kernel @Pool(%x: f32[1, 8, 8, 4]) -> (%y: f32[1, 6, 6, 4]) {
    %y: f32[1, 6, 6, 4] = [n < 1, p < 6, q < 6, c < 4] max[u < 3, v < 3]
      %x[n, p + u, q + v, c] } }"""
    made = schedule_groups(parse_tensor_program(text, {}), GroupWindows(8, 4, 2))
    found = run_scheduled(made, interpreted(made), {"x": x}, {})["y"]
    views = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    assert np.array_equal(found, views.max(axis=(4, 5)))


def first_layer(columns: int, size: int, digest: str) -> str:
    """Windows of 5 x 5 over all three channels of images, every second pixel."""
    side, half = 2 * size, f"[0 <= 2*p + u - 2, 2*p + u - 2 < {2 * size}"
    guard = f"{half}, 0 <= 2*q + v - 2, 2*q + v - 2 < {side}]"
    image, weights = f"%x: f32[n, 3, {side}, {side}]", f"%w: f32[{columns}, 3, 5, 5]"
    shape = f"f32[n, {size}, {size}, {columns}]"
    return f"""program @p({image}) -> (%y) dims(n in 0:) {{
  constant {weights} = "{digest}"
  kernel @Conv({image}, {weights}) -> (%y: {shape}) {{
    %y: {shape} = [i < n, p < {size}, q < {size}, o < {columns}] sum[c < 3, u < 5, v < 5]
      (%x[i, c, 2*p + u - 2, 2*q + v - 2] if {guard} else 0.0) * %w[o, c, u, v] }} }}"""


@pytest.mark.parametrize("schedule", [GroupWindows(8, 3, 2, 2, 2), GroupWindows(16, 2, 4), None])
def test_images_of_three_channels_have_strips_of_output_channels(
    schedule: GroupWindows | None,
) -> None:
    """By default, too: products would gather each pixel by itself."""
    rng = np.random.default_rng(11)
    x, w = (rng.integers(-3, 4, s).astype(np.float32) for s in ((2, 3, 10, 10), (8, 3, 5, 5)))
    weights = Constant(w)
    text = first_layer(8, 5, weights.digest)
    program = schedule_groups(parse_tensor_program(text, {weights.digest: weights}), schedule, H100)
    assert {load.lanes for load in loads(program) if load.buffer == "x0"} == {1}
    assert {load.lanes > 1 for load in loads(program) if load.buffer == "x1"} == {True}
    found = run_scheduled(program, interpreted(program), {"x": x}, {"n": 2})["y"]
    wide = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    views = np.lib.stride_tricks.sliding_window_view(wide, (5, 5), axis=(2, 3))[:, :, ::2, ::2]
    assert np.array_equal(found, np.einsum("ncpquv,ocuv->npqo", views[:, :, :5, :5], w))
