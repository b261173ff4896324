"""Products and loops by Helium: what graphs say, on the host by what is meant, and in QEMU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.types import I8
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Add, Cast
from modelcc.targets.isa.arm_mve import DEPTHWISE_8, ROWS_BY_1, ROWS_BY_2
from modelcc.targets.isa.arm_mve_lanes import lanewise
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.emulation.build import build
from modelcc.targets.mcu.emulation.run import run
from modelcc.targets.mcu.machine import MODELS
from tests.embedded import WARNINGS, command, embedded, run_here, written
from tests.targets.mcu.test_kernels import BOTH, convolved, image


def several(b: GraphBuilder, x: str) -> str:
    """Rows that fill no four, columns that fill no vector, windows that reach out on all sides, and
    one that is the whole image."""
    x = convolved(b, x, 5, (3, 3), pads=BOTH, zero=7)
    x = convolved(b, x, 5, (5, 4), 2, ((2, 2), (1, 2)), groups=5, zero=-9)
    return convolved(b, convolved(b, x, 37, zero=11), 6, (3, 3))


def residual(b: GraphBuilder, x: str) -> str:
    """Every second pixel, whole vectors, a sum, and windows of three columns of 68 channels."""
    first = convolved(b, x, 68, stride=2, zero=-70)
    second = convolved(b, first, 68, zero=5)
    wide = b.emit(Add(), *(b.emit(Cast(I8), b.emit(Clip(-60.0, 60.0), n)) for n in (first, second)))
    return convolved(b, wide, 68, (3, 3), pads=BOTH, groups=68, zero=3)


def single_rows(b: GraphBuilder, x: str) -> str:
    """Windows of one row: numbers that are the same in all calls GCC takes for constants."""
    for channels, taps in ((24, 5), (32, 6), (40, 4)):
        x = convolved(b, x, channels, (1, taps), groups=channels, zero=3)
        x = convolved(b, x, channels + 8, zero=5)
    return x


GRAPHS: dict[str, Callable[[], Graph]] = {
    "several": lambda: image((1, 6, 5, 5), several),
    "residual": lambda: image((1, 3, 5, 16), residual),
    "single rows": lambda: image((1, 1, 14, 24), single_rows),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_graphs_say(name: str, tmp_path: Path) -> None:
    graph, model = GRAPHS[name](), MODELS["cortex-m55"]
    shape = graph.types["x"].static_shape()
    x = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    (want,) = interpret(graph, {"x": x}).values()
    folder = written(embedded(graph, model.name), tmp_path)
    text = (folder / "net.c").read_text()
    assert "vmladava" in text
    assert "vrmulhq" in text
    (got,) = run_here(folder, {"x": x}).values()
    np.testing.assert_array_equal(np.frombuffer(got, np.int8), want.ravel())
    if missing := missing_tools(model):
        pytest.skip(missing)
    (got,) = run(build(folder, "net", model), {"x": x.tobytes()}).outputs.values()
    np.testing.assert_array_equal(np.frombuffer(got, np.int8), want.ravel())


@pytest.mark.parametrize("name", ["cortex-m4", "cortex-m55"])
def test_compilers_have_nothing_to_say(name: str, tmp_path: Path) -> None:
    """Of kernels, with and without the optimisation that their texts need."""
    model = MODELS[name]
    if missing := missing_tools(model):
        pytest.skip(missing)
    folder = written(embedded(GRAPHS["several"](), name), tmp_path)
    for level in ("-O0", "-O2"):
        command([f"{model.compiler}gcc", *WARNINGS, *model.flags, level, "-c", "net.c"], folder)


@pytest.mark.parametrize("pixels", [1, 2])
def test_rows_are_products(pixels: int) -> None:
    """Of which NumPy makes the same; what fills blocks of weights up does not matter."""
    r, n, blocks = np.random.default_rng(0), 37, 2
    x, weights = r.integers(-128, 128, (pixels, n)), r.integers(-128, 128, (4 * blocks, 48))
    bias, sums = r.integers(-999, 999, 4 * blocks), np.zeros((pixels, 4 * blocks), np.int32)
    packed = weights.reshape(blocks, 4, 3, 16).transpose(0, 2, 1, 3)
    given = [*x.astype(np.int8), packed.astype(np.int8).ravel(), bias.astype(np.int32)]
    flat = sums.reshape(-1)
    interpret_loops(ROWS_BY_2 if pixels == 2 else ROWS_BY_1, [*given, flat], [n, blocks])
    np.testing.assert_array_equal(sums, x @ weights[:, :n].T + bias)


def test_windows_are_products() -> None:
    """Two rows by three columns of a window of four by three, of ten channels."""
    r, n, zero = np.random.default_rng(0), 10, 5
    x, weights = r.integers(-128, 128, (2, 3, n)), r.integers(-128, 128, (16, 4, 3))
    bias, sums = r.integers(-999, 999, 16), np.zeros(16, np.int32)
    packed = weights.reshape(2, 8, 4, 3).transpose(0, 2, 3, 1).reshape(-1)[3 * 8 :]
    given = [x.astype(np.int8).ravel(), packed.astype(np.int8), bias.astype(np.int32), sums]
    given[1] = given[1][: 8 * 12 + 8 * 3 + 8 * 3]
    interpret_loops(DEPTHWISE_8, given, [n, 2, 3, 3 * n, n, 12, 3, zero + 128])
    want = np.einsum("ijc,cij->c", x - zero, weights[:n, 1:3]) + bias[:n]
    np.testing.assert_array_equal(sums[:n], want)
    np.testing.assert_array_equal(sums[n:], bias[n:])


LOOP = """
func @lanes(%x: i32[n], %b: i8[n], %y: mut i8[n + step]; n, step) {{
  for r in 0 .. n {{
    let %v = convert[i32](load %b[r])
    store %y[r + step] = convert[i8](min({0}, i32(127)))
  }}
}}
"""


def test_loops_over_lanes_have_a_text() -> None:
    made = lanewise(parse_function(LOOP.format("shr(load %x[r], and(%v, i32(255)))")))
    assert made is not None
    assert made.c is not None
    for part in ("vctp32q", "vldrbq_z_u32", "vshlq_s32", "vstrbq_p_s32(y + r + step"):
        assert part in made.c.text


@pytest.mark.parametrize("value", ["div(load %x[r], %v)", "load %x[r floordiv 2]"])
def test_other_loops_have_none(value: str) -> None:
    assert lanewise(parse_function(LOOP.format(value))) is None
