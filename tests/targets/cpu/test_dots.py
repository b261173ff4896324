"""Sums of products of bf16 by pairs and by tiles: which are computed so, and that they are what is
meant."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from kernel_runs import Executor, interpreted, native, run_scheduled

from modelcc.ir.constant import Constant
from modelcc.ir.instructions import DOT2, instructions_in
from modelcc.ir.loop_traversal import routines_in
from modelcc.ir.program import Program
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import Array
from modelcc.targets.base import TargetOptions
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.passes.assign_layouts import AssignLayouts
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.native.host import processor_of
from modelcc.targets.native.toolchain import host_machine
from tests.machines import chosen_cpu


def product(m: int, k: int, n: int) -> str:
    x, w, y = f"bf16[{m}, {k}]", f"bf16[{k}, {n}]", f"f32[{m}, {n}]"
    body = f"[i < {m}, j < {n}] sum[c < {k}] f32(%x[i, c]) * f32(%w[c, j])"
    return _program(x, w, y, body)


def convolution(channels: int, outputs: int, step: int = 1) -> str:
    h, w = (5 - 1) // step + 1, (9 - 1) // step + 1
    x, y = f"bf16[1, {channels}, 5, 9]", f"f32[1, {outputs}, {h}, {w}]"
    axes = f"[n < 1, o < {outputs}, h < {h}, w < {w}] sum[c < {channels}, a < 3, b < 3]"
    places = f"a + {step}*h", f"b + {step}*w"
    inside = f"{places[0]} >= 1, {places[0]} < 6, {places[1]} >= 1, {places[1]} < 10"
    image = f"(%x[n, c, {places[0]} - 1, {places[1]} - 1] if [{inside}] else 0.0:bf16)"
    body = f"{axes} f32({image}) * f32(%w[o, c, a, b])"
    return _program(x, f"bf16[{outputs}, {channels}, 3, 3]", y, body)


def _program(x: str, w: str, y: str, body: str) -> str:
    return f"""program @main(%x: {x}) -> (%y) {{
      constant %w: {w} = "w"
      kernel @p(%x: {x}, %w: {w}) -> (%y: {y}) {{ %y: {y} = {body} }}
    }}"""


def whole_numbers(*shape: int) -> Array:
    """Of which all sums are exact."""
    return np.random.default_rng(0).integers(-4, 5, shape).astype(ml_dtypes.bfloat16)


CASES = {
    "product": (product(11, 24, 40), (11, 24), (24, 40), True),
    "one row": (product(1, 64, 48), (1, 64), (64, 48), True),
    "odd": (product(11, 25, 40), (11, 25), (25, 40), False),
    "convolution": (convolution(32, 16), (1, 32, 5, 9), (16, 32, 3, 3), True),
    "few channels": (convolution(24, 16), (1, 24, 5, 9), (16, 24, 3, 3), True),
}


TILES = {
    "product": (product(37, 64, 40), (37, 64), (64, 40), True),
    "half of a tile": (product(5, 48, 16), (5, 48), (48, 16), True),
    "few rows": (product(3, 64, 48), (3, 64), (64, 48), False),
    "no whole step": (product(37, 72, 40), (37, 72), (72, 40), False),
    "convolution": (convolution(32, 16), (1, 32, 5, 9), (16, 32, 3, 3), True),
    "every second": (convolution(48, 16, 2), (1, 48, 5, 9), (16, 48, 3, 3), True),
    "few channels": (convolution(24, 16), (1, 24, 5, 9), (16, 24, 3, 3), False),
}


@pytest.mark.parametrize("execute", [interpreted, native])
@pytest.mark.parametrize("name", CASES)
def test_pairs_are_summed_exactly(name: str, execute: Callable[[Program], Executor]) -> None:
    text, x, w, pairs = CASES[name]
    given = parse_tensor_program(text, {"w": Constant(whole_numbers(*w))})
    program = schedule_program(AssignLayouts()(given), CpuModel(multiplies_bf16=True))
    used = [i for f in program.functions for i in instructions_in(f.body)]
    assert used == [DOT2] * pairs
    feeds = {"x": whole_numbers(*x)}
    found = run_scheduled(program, execute(program), feeds, {})["y"]
    np.testing.assert_array_equal(found, run_program(given, feeds, {})["y"])


@pytest.mark.parametrize("execute", [interpreted, native])
def test_pairs_of_an_image_end_with_its_row(execute: Callable[[Program], Executor]) -> None:
    """Windows beside each other, of filters that are no constants: lanes are fewer than a vector,
    and nothing is read behind the image."""
    x, w, y = "bf16[2, 8, 8, 8]", "bf16[8, 8, 2, 2]", "f32[2, 8, 4, 4]"
    axes = "[n < 2, o < 8, h < 4, w < 4] sum[c < 8, a < 2, b < 2]"
    body = f"{axes} f32(%x[n, c, a + 2*h, b + 2*w]) * f32(%w[o, c, a, b])"
    text = f"""program @main(%x: {x}, %w: {w}) -> (%y) {{
      kernel @p(%x: {x}, %w: {w}) -> (%y: {y}) {{ %y: {y} = {body} }}
    }}"""
    given = parse_tensor_program(text, {})
    program = schedule_program(AssignLayouts()(given), CpuModel(multiplies_bf16=True))
    assert [i for f in program.functions for i in instructions_in(f.body)] == [DOT2]
    feeds = {"x": whole_numbers(2, 8, 8, 8), "w": whole_numbers(8, 8, 2, 2)}
    found = run_scheduled(program, execute(program), feeds, {})["y"]
    np.testing.assert_array_equal(found, run_program(given, feeds, {})["y"])


@pytest.mark.parametrize("execute", [interpreted, native])
@pytest.mark.parametrize("name", TILES)
def test_tiles_are_summed_exactly(name: str, execute: Callable[[Program], Executor]) -> None:
    text, x, w, tiles = TILES[name]
    given = parse_tensor_program(text, {"w": Constant(whole_numbers(*w))})
    program = schedule_program(AssignLayouts()(given), CpuModel(multiplies_tiles=True))
    routines = [r for f in program.functions for r in routines_in(f.body)]
    assert bool(routines) == tiles
    if execute is native and not (tiles and chosen_cpu().multiplies_tiles):
        pytest.skip("of other kernels, or this processor has no AMX")
    feeds = {"x": whole_numbers(*x)}
    found = run_scheduled(program, execute(program), feeds, {})["y"]
    np.testing.assert_array_equal(found, run_program(given, feeds, {})["y"])


@pytest.mark.parametrize(
    ("cpu", "pairs"), [("znver5", True), ("znver4", True), ("emeraldrapids", False)]
)
def test_processors_multiply_pairs_where_that_is_faster(cpu: str, pairs: bool) -> None:
    assert processor_of(TargetOptions(cpu=cpu), host_machine())[1].multiplies_bf16 == pairs
