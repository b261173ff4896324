"""Weights of convolutions lie as they are read, and mean the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.constant import Constant
from modelcc.ir.loop_traversal import tile_maps
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.schedule.group_schedule import GroupProduct, TensorProduct
from modelcc.schedule.schedule import Schedule
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.gpu.schedule import schedule_groups

TEXT = """program @p(%x: {t}[1, 5, 6, 16]) -> (%y) dims() {{
  constant %w: {t}[16, 16, 2, 3] = "{w}"
  kernel @Conv(%x: {t}[1, 5, 6, 16], %w: {t}[16, 16, 2, 3]) -> (%y: {s}[1, 4, 4, 16]) {{
    %y: {s}[1, 4, 4, 16] = [n < 1, p < 4, q < 4, o < 16] sum[c < 16, u < 2, v < 3]
      {s}(%x[n, p + u, q + v, c]) * {s}(%w[o, c, u, v]) }} }}"""

PARTS = """program @p(%x: {t}[1, 5, 6, 16]) -> (%y) dims() {{
  constant %w: {t}[16, 16, 2, 3] = "{w}"
  kernel @Conv(%x: {t}[1, 5, 6, 16], %w: {t}[16, 16, 2, 3]) -> (%y: {s}[2, 1, 4, 4, 16]) {{
    %y: {s}[2, 1, 4, 4, 16] = [h < 2, n < 1, p < 4, q < 4, o < 16] sum[c < 8, u < 2, v < 3]
      {s}(%x[n, p + u, q + v, c + 8*h]) * {s}(%w[o, c + 8*h, u, v]) }} }}"""

MATRIX = """program @p(%x: f16[40, 64]) -> (%y) dims() {{
  constant %w: f16[64, {n}] = "{w}"
  kernel @MatMul(%x: f16[40, 64], %w: f16[64, {n}]) -> (%y: f32[40, {n}]) {{
    %y: f32[40, {n}] = [i < 40, o < {n}] sum[c < 64] f32(%x[i, c]) * f32(%w[c, o]) }} }}"""

WARPS = TensorProduct(16, 16, 32, 1, 1)
BOXES = TensorProduct(64, 64, 64, 1, 1, 2, "wgmma")
THREADS = GroupProduct(4, 8, 4, 2, 4)


@pytest.mark.parametrize(
    ("program", "kinds", "schedule", "order"),
    [
        (TEXT, ("f16", "f32", "float16"), WARPS, (2, 3, 1, 0)),
        (TEXT, ("i8", "i32", "int8"), WARPS, (0, 2, 3, 1)),
        (TEXT, ("f16", "f32", "float16"), THREADS, (2, 3, 1, 0)),
        (PARTS, ("f16", "f32", "float16"), WARPS, (2, 3, 1, 0)),
    ],
    ids=["warps", "bytes", "threads", "parts"],
)
def test_terms_lie_as_the_image_has_them(
    program: str, kinds: tuple[str, str, str], schedule: Schedule, order: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(3)
    shapes = (1, 5, 6, 16), (16, 16, 2, 3)
    x, w = (rng.integers(-4, 5, shape).astype(kinds[2]) for shape in shapes)
    weights = Constant(w)
    text = program.format(t=kinds[0], s=kinds[1], w=weights.digest)
    parsed = parse_tensor_program(text, {weights.digest: weights})
    scheduled = schedule_groups(parsed, schedule)
    found = run_scheduled(scheduled, interpreted(scheduled), {"x": x}, {})
    np.testing.assert_array_equal(found["y"], run_program(parsed, {"x": x}, {})["y"])
    (packed,) = scheduled.constants.values()
    np.testing.assert_array_equal(packed.data, w.transpose(order))


@pytest.mark.parametrize(("columns", "order"), [(257, (1, 0)), (264, (0, 1))])
def test_rows_of_a_matrix_begin_on_boundaries(columns: int, order: tuple[int, ...]) -> None:
    """So that they are copied as boxes, as a table of 50,257 words is."""
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-4, 5, shape).astype("float16") for shape in ((40, 64), (64, columns)))
    weights = Constant(w)
    text = MATRIX.format(n=columns, w=weights.digest)
    parsed = parse_tensor_program(text, {weights.digest: weights})
    scheduled = schedule_groups(parsed, BOXES, find_chip("sm_90a").gpu)
    (function,) = scheduled.functions
    assert len(tile_maps(function)) == 2
    (packed,) = scheduled.constants.values()
    np.testing.assert_array_equal(packed.data, w.transpose(order))
    found = run_scheduled(scheduled, interpreted(scheduled), {"x": x}, {})
    np.testing.assert_array_equal(found["y"], run_program(parsed, {"x": x}, {})["y"])


BYTES_MATRIX = """program @p(%x: u8[40, 64]) -> (%y) dims() {{
  constant %w: i8[64, 96] = "{w}"
  kernel @MatMul(%x: u8[40, 64], %w: i8[64, 96]) -> (%y: i32[40, 96]) {{
    %y: i32[40, 96] = [i < 40, o < 96] sum[c < 64] i32(%x[i, c]) * i32(%w[c, o]) }} }}"""


@pytest.mark.parametrize(("on_units", "order"), [(True, (1, 0)), (False, (0, 1))])
def test_bytes_lie_by_terms_for_tensor_cores(on_units: bool, order: tuple[int, ...]) -> None:
    """Which read them in no other way; others have the model's order."""
    rng = np.random.default_rng(3)
    x, w = rng.integers(0, 256, (40, 64)), rng.integers(-128, 128, (64, 96)).astype("int8")
    weights = Constant(w)
    text = BYTES_MATRIX.format(w=weights.digest)
    parsed = parse_tensor_program(text, {weights.digest: weights})
    gpu = find_chip("sm_80").gpu
    machine = gpu if on_units else replace(gpu, matrix=())
    scheduled = schedule_groups(parsed, None, machine)
    (packed,) = scheduled.constants.values()
    np.testing.assert_array_equal(packed.data, w.transpose(order))
    found = run_scheduled(scheduled, interpreted(scheduled), {"x": x.astype("uint8")}, {})
    np.testing.assert_array_equal(found["y"], x @ w.astype(np.int64))


TWINS = """program @p(%x: f16[40, 64]) -> (%y) dims() {{
  constant %g: f16[{shape}] = "{g}"
  constant %u: f16[{shape}] = "{u}"
  kernel @k(%x: f16[40, 64], %g: f16[{shape}], %u: f16[{shape}]) -> (%y: f32[40, 96]) {{
    %p: f32[40, 96] = [i < 40, o < 96] sum[c < 64] f32(%x[i, c]) * f32(%g[{g_at}])
    %q: f32[40, 96] = [i < 40, o < 96] sum[c < 64] f32(%x[i, c]) * f32(%u[{u_at}])
    %y: f32[40, 96] = [i < 40, o < 96] max(%p[i, o], 0.0) * %q[i, o] }} }}"""


def test_twins_lie_by_terms() -> None:
    """A tile of 192 sums has 96 columns of either, which are no whole boxes of columns."""
    rng = np.random.default_rng(3)
    x, g, u = (rng.integers(-4, 5, s).astype("float16") for s in ((40, 64), (64, 96), (64, 96)))
    found = {(c := Constant(array)).digest: c for array in (g, u)}
    first, second = found
    text = TWINS.format(shape="64, 96", g=first, u=second, g_at="c, o", u_at="c, o")
    parsed = parse_tensor_program(text, found)
    schedule = TensorProduct(64, 192, 64, 1, 1, 2, "wgmma")
    scheduled = schedule_groups(parsed, schedule, find_chip("sm_90a").gpu)
    packed = [constant.data for constant in scheduled.constants.values()]
    for one, other in zip(packed, (g, u), strict=True):
        np.testing.assert_array_equal(one, other.T)
    results = run_scheduled(scheduled, interpreted(scheduled), {"x": x}, {})
    np.testing.assert_array_equal(results["y"], run_program(parsed, {"x": x}, {})["y"])


def test_twins_that_lie_in_two_ways_are_left_so() -> None:
    rng = np.random.default_rng(3)
    g, u = (rng.integers(-4, 5, (96, 96)).astype("float16") for _ in range(2))
    found = {(c := Constant(array)).digest: c for array in (g, u)}
    first, second = found
    text = TWINS.format(shape="96, 96", g=first, u=second, g_at="c, o", u_at="o, c")
    parsed = parse_tensor_program(text, found)
    scheduled = schedule_groups(parsed, None, find_chip("sm_90a").gpu)
    x = rng.integers(-4, 5, (40, 64)).astype("float16")
    results = run_scheduled(scheduled, interpreted(scheduled), {"x": x}, {})
    np.testing.assert_array_equal(results["y"], run_program(parsed, {"x": x}, {})["y"])
