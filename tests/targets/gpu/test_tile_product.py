"""Contractions on tiles that are copied as boxes: edges, layouts, what is fused, and no race."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Barrier, Function, Stmt
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import map_blocks, statements, tile_maps
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tiles import WaitArrival, WaitRoutines
from modelcc.ir.types import Array
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.schedule import schedule_groups

SIZES = {"m": 19}
ONE = TensorProduct(64, 64, 64, 1, 1, 2, "wgmma")
TWO = TensorProduct(128, 64, 64, 2, 1, 3, "wgmma")

PRODUCTS: Mapping[str, tuple[TensorProduct, str]] = {
    "rows by columns": (ONE, """%a: f16[40, 136], %b: f16[136, 72], %c: f32[72])
      -> (%y: f16[40, 72]) {
      %p: f32[40, 72] = [i < 40, j < 72] sum[l < 136] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[40, 72] = [i < 40, j < 72] f16(max(%p[i, j] + %c[j], 0.0)) }"""),
    "rows by rows": (TWO, """%a: bf16[2, 70, 64], %b: bf16[2, 20, 64], %r: bf16[70, 20])
      -> (%y: bf16[2, 70, 20], %z: f32[2, 70, 20]) {
      %p: f32[2, 70, 20] = [h < 2, i < 70, j < 20] sum[l < 64]
        f32(%a[h, i, l]) * f32(%b[h, j, l])
      %z: f32[2, 70, 20] = [h < 2, i < 70, j < 20] %p[h, i, j] * 0.5
      %y: bf16[2, 70, 20] = [h < 2, i < 70, j < 20] bf16(%z[h, i, j] + f32(%r[i, j])) }"""),
    "columns by columns": (ONE, """%a: f16[24, 32], %b: f16[24, 24]) -> (%y: f32[32, 24]) {
      %y: f32[32, 24] = [i < 32, j < 24] sum[l < 24] f32(%a[l, i]) * f32(%b[l, j]) }"""),
    "several axes": (ONE, """%a: f16[3, 5, 2, 32], %b: f16[2, 32, 24]) -> (%y: f32[5, 3, 24]) {
      %p: f32[3, 5, 24] = [g < 3, h < 5, j < 24] sum[k < 2, l < 32]
        f32(%a[g, h, k, l]) * f32(%b[k, l, j])
      %y[h, g, j]: f32[5, 3, 24] = [g < 3, h < 5, j < 24] %p[g, h, j] }"""),
    "named sizes": (ONE, """%a: f16[m, 72], %b: f16[72, 16]) -> (%y: f16[m, 16]) {
      %p: f32[m, 16] = [i < m, j < 16] sum[l < 72] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[m, 16] = [i < m, j < 16] f16(%p[i, j]) }"""),
}  # fmt: skip


def program_of(kernel: str) -> TensorProgram:
    inputs, outputs = kernel.split("->")[0], kernel.split("->")[1].split("{")[0]
    found = ", ".join(part.split(":")[0] for part in outputs.strip(" ()\n").split(", %"))
    found = found.replace(", ", ", %")
    dims = "dims(m in 1:) " if "[m, " in inputs else ""
    text = f"program @p({inputs.strip()} -> ({found}) {dims}{{ kernel @k({kernel} }}"
    return parse_tensor_program(text, {})


def feeds_of(program: TensorProgram) -> dict[str, Array]:
    """Small whole numbers: sums of their products are exact in any order."""
    rng = np.random.default_rng(1)
    types = {name: program.types[name] for name in program.inputs}
    shapes = {n: [evaluate(e, SIZES) for e in t.shape] for n, t in types.items()}
    return {n: rng.integers(-4, 5, shapes[n]).astype(t.dtype.numpy) for n, t in types.items()}


def function_of(kernel: str, schedule: TensorProduct) -> Function:
    (function,) = schedule_groups(program_of(kernel), schedule).functions
    assert isinstance(function, Function)
    return function


@pytest.mark.parametrize("name", PRODUCTS)
def test_warps_compute_what_the_stages_say(name: str) -> None:
    schedule, kernel = PRODUCTS[name]
    program = program_of(kernel)
    feeds, env = feeds_of(program), {d: SIZES[d] for d in program.dims}
    scheduled = schedule_groups(program, schedule)
    wanted = run_program(program, feeds, env)
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, env)
    for output in program.outputs:
        np.testing.assert_array_equal(found[output], wanted[output])


WAITING = (Barrier, WaitArrival, WaitRoutines)


def without(function: Function, number: int) -> Function:
    """``function`` without one of the places where it waits."""
    left = iter(range(10**6))

    def rewrite(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        kept = (s for s in body if not isinstance(s, WAITING) or next(left) != number)
        return tuple(map_blocks(s, rewrite) for s in kept)

    return replace(function, body=rewrite(function.body))


def test_each_wait_is_needed() -> None:
    """For tiles, for products, for other threads: in the loop and between parts of the sums."""
    kernel = """%a: f16[40, 136], %b: f16[136, 24]) -> (%y: f32[40, 24]) {
      %y: f32[40, 24] = [i < 40, j < 24] sum[l < 136] f32(%a[i, l]) * f32(%b[l, j]) }"""
    function = function_of(kernel, ONE)
    feeds = [*feeds_of(program_of(kernel)).values(), np.zeros((40, 24), np.float32)]
    kinds = [type(s) for s in statements(function.body) if isinstance(s, WAITING)]
    block = [WaitArrival, WaitRoutines, Barrier]
    assert kinds == [*block, *block, WaitRoutines, *[Barrier] * 7]
    for number in (0, 1, 2, 6, 7):
        broken = without(function, number)
        verify_function(broken)
        with pytest.raises(RaceError):
            interpret_loops(broken, feeds, [])


def test_tensors_are_told_in_rows_of_128_bytes() -> None:
    left, right = tile_maps(function_of(PRODUCTS["rows by rows"][1], TWO))
    assert (left.sizes, left.strides, left.box) == ((2, 70, 64), (4480, 64, 1), (1, 128, 64))
    assert (right.sizes, right.strides, right.box) == ((2, 20, 64), (1280, 64, 1), (1, 64, 64))


REFUSED = {
    "odd rows": "%a: f16[16, 20], %b: f16[20, 16]) -> (%y: f32[16, 16]) { %y: f32[16, 16] = "
    "[i < 16, j < 16] sum[l < 20] f32(%a[i, l]) * f32(%b[l, j]) }",
    "what precedes": "%a: f16[16, 24], %b: f16[24, 16]) -> (%y: f32[16, 16]) { %y: f32[16, 16] = "
    "[i < 16, j < 16] sum[l < 24] f32(max(%a[i, l], 0.0:f16)) * f32(%b[l, j]) }",
    "bytes": "%a: i8[16, 32], %b: i8[32, 16]) -> (%y: i32[16, 16]) { %y: i32[16, 16] = "
    "[i < 16, j < 16] sum[l < 32] i32(%a[i, l]) * i32(%b[l, j]) }",
}


@pytest.mark.parametrize("name", REFUSED)
def test_operands_that_are_no_boxes_are_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="with rows on boundaries"):
        function_of(REFUSED[name], ONE)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (replace(ONE, rows=128), "four warps have 64 rows"),
        (replace(ONE, columns=80), "four warps have 64 rows"),
        (replace(ONE, terms=32), "blocks of 64 terms, two or more"),
        (replace(ONE, buffers=1), "blocks of 64 terms, two or more"),
    ],
)
def test_tiles_that_no_instruction_has_are_refused(schedule: TensorProduct, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        function_of(PRODUCTS["rows by columns"][1], schedule)
