"""Contractions on a warp's fragments: types, layouts, edges, what is fused, and no race."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from group_products import assert_same_meaning, feeds_of, function_of, program_of, without

from modelcc.ir.copies import CopyAsync, WaitCopies
from modelcc.ir.loop import Alloc, Barrier, RoutineCall
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.shared_layout import shared_layout
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.types import F16, I8
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.products.tensor_product import DEEP, EXACT
from modelcc.targets.isa.fragments import depth

SIZES = {"m": 19, "n": 24, "k": 21}
ONE = TensorProduct(16, 16, 16, 1, 1)
FOUR = TensorProduct(32, 32, 32, 2, 2, 3)
BYTES = TensorProduct(16, 32, 32, 1, 2, 2)
UNSIGNED = TensorProduct(32, 32, 64, 2, 1, 3, "mma_u8")
ROUNDED = TensorProduct(32, 16, 8, 2, 1, 2, "mma_tf32")
THREE = TensorProduct(32, 32, 16, 1, 2, 3, "mma_tf32x3")

PRODUCTS: Mapping[str, tuple[TensorProduct, str]] = {
    "rows by columns": (FOUR, """%a: f16[40, 40], %b: f16[40, 48], %c: f32[48])
      -> (%y: f16[40, 48]) {
      %p: f32[40, 48] = [i < 40, j < 48] sum[l < 40] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[40, 48] = [i < 40, j < 48] f16(max(%p[i, j] + %c[j], 0.0)) }"""),
    "rows by rows": (ONE, """%a: bf16[16, 32], %b: bf16[20, 32], %r: bf16[16, 20])
      -> (%y: bf16[16, 20], %z: f32[16, 20]) {
      %p: f32[16, 20] = [i < 16, j < 20] sum[l < 32] f32(%a[i, l]) * f32(%b[j, l])
      %z: f32[16, 20] = [i < 16, j < 20] %p[i, j] * 0.5
      %y: bf16[16, 20] = [i < 16, j < 20] bf16(%z[i, j] + f32(%r[i, j])) }"""),
    "columns by columns": (ONE, """%a: f16[24, 32], %b: f16[24, 24]) -> (%y: f32[32, 24]) {
      %y: f32[32, 24] = [i < 32, j < 24] sum[l < 24] f32(%a[l, i]) * f32(%b[l, j]) }"""),
    "named sizes": (FOUR, """%a: f16[m, k], %b: f16[k, n]) -> (%y: f16[m, n]) {
      %p: f32[m, n] = [i < m, j < n] sum[l < k] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[m, n] = [i < m, j < n] f16(%p[i, j]) }"""),
    "odd sizes": (ONE, """%a: f16[2, 17, 7], %b: f16[2, 7, 19]) -> (%y: f16[2, 19, 17]) {
      %p: f32[2, 17, 19] = [h < 2, i < 17, j < 19] sum[l < 7] f32(%a[h, i, l]) * f32(%b[h, l, j])
      %y[h, j, i]: f16[2, 19, 17] = [h < 2, i < 17, j < 19] f16(%p[h, i, j]) }"""),
    "few terms": (TensorProduct(16, 16, 16, 1, 1, 4), """%a: f16[16, 16], %b: f16[16, 16])
      -> (%y: f32[16, 16]) {
      %y: f32[16, 16] = [i < 16, j < 16] sum[l < 16] f32(%a[i, l]) * f32(%b[l, j]) }"""),
    "what precedes": (ONE, """%a: f16[16, 24], %b: f16[24, 16]) -> (%y: f32[16, 16]) {
      %y: f32[16, 16] = [i < 16, j < 16] sum[l < 24]
        f32(max(%a[i, l], 0.0:f16)) * f32(%b[l, j]) }"""),
    "bytes": (BYTES, """%a: i8[18, 48], %b: i8[40, 48], %s: f32[40]) -> (%y: f32[18, 40]) {
      %p: i32[18, 40] = [i < 18, j < 40] sum[l < 48] i32(%a[i, l]) * i32(%b[j, l])
      %y: f32[18, 40] = [i < 18, j < 40] f32(%p[i, j]) * %s[j] }"""),
    "bytes by columns": (BYTES, """%a: i8[16, 48], %b: i8[48, 32]) -> (%y: i32[16, 32]) {
      %y: i32[16, 32] = [i < 16, j < 32] sum[l < 48] i32(%a[i, l]) * i32(%b[l, j]) }"""),
    "unsigned by signed": (UNSIGNED, """%a: u8[18, 48], %b: i8[40, 48], %s: f32[40])
      -> (%y: u8[18, 40]) {
      %p: i32[18, 40] = [i < 18, j < 40] sum[l < 48] i32(%a[i, l]) * i32(%b[j, l])
      %y: u8[18, 40] = [i < 18, j < 40] u8(min(max(f32(%p[i, j]) * %s[j], 0.0), 255.0)) }"""),
    "signed by unsigned": (UNSIGNED, """%a: i8[m, 45], %b: u8[45, 33]) -> (%y: i32[m, 33]) {
      %y: i32[m, 33] = [i < m, j < 33] sum[l < 45] i32(%a[i, l]) * i32(%b[l, j]) }"""),
    "unsigned": (UNSIGNED, """%a: u8[2, 17, 64], %b: u8[2, 19, 64]) -> (%y: i32[2, 17, 19]) {
      %y: i32[2, 17, 19] = [h < 2, i < 17, j < 19] sum[l < 64]
        i32(%a[h, i, l]) * i32(%b[h, j, l]) }"""),
    "image of bytes": (UNSIGNED, """%x: u8[2, 6, 5, 16], %w: i8[24, 3, 3, 16])
      -> (%y: i32[2, 6, 5, 24]) {
      %y: i32[2, 6, 5, 24] = [n < 2, i < 6, j < 5, o < 24] sum[u < 3, v < 3, c < 16]
        i32((%x[n, i + u - 1, j + v - 1, c] if [i + u >= 1, i + u < 7, j + v >= 1, j + v < 6]
          else 7:u8)) * i32(%w[o, u, v, c]) }"""),
    "rounded": (ROUNDED, """%a: f32[40, 20], %b: f32[20, 16]) -> (%y: f32[40, 16]) {
      %y: f32[40, 16] = [i < 40, j < 16] sum[l < 20] %a[i, l] * %b[l, j] }"""),
    "columns of f32": (ROUNDED, """%a: f32[20, 40], %b: f32[20, 16]) -> (%y: f32[40, 16]) {
      %y: f32[40, 16] = [i < 40, j < 16] sum[l < 20] %a[l, i] * %b[l, j] }"""),
    "split": (THREE, """%a: f32[40, 20], %b: f32[36, 20], %c: f32[36]) -> (%y: f32[40, 36]) {
      %p: f32[40, 36] = [i < 40, j < 36] sum[l < 20] %a[i, l] * %b[j, l]
      %y: f32[40, 36] = [i < 40, j < 36] max(%p[i, j] + %c[j], 0.0) }"""),
    "split columns": (replace(THREE, parts=2), """%a: f32[20, 40], %b: f32[20, 36])
      -> (%y: f32[40, 36]) {
      %y: f32[40, 36] = [i < 40, j < 36] sum[l < 20] %a[l, i] * %b[l, j] }"""),
    "convolution": (FOUR, """%x: f16[2, 6, 5, 8], %w: f16[3, 3, 8, 16], %c: f32[16])
      -> (%y: f16[2, 6, 5, 16]) {
      %p: f32[2, 6, 5, 16] = [n < 2, i < 6, j < 5, o < 16] sum[u < 3, v < 3, c < 8]
        f32((%x[n, i + u - 1, j + v - 1, c] if [i + u >= 1, i + u < 7, j + v >= 1, j + v < 6]
          else 0.0:f16)) * f32(%w[u, v, c, o])
      %y: f16[2, 6, 5, 16] = [n < 2, i < 6, j < 5, o < 16]
        f16(max(%p[n, i, j, o] + %c[o], 0.0)) }"""),
    "convolution in groups": (ONE, """%x: f16[7, 7, 2, 4], %w: f16[2, 8, 2, 2, 4])
      -> (%y: f16[3, 3, 2, 8]) {
      %p: f32[3, 3, 2, 8] = [i < 3, j < 3, g < 2, o < 8] sum[u < 2, v < 2, c < 4]
        f32(%x[2*i + u, 2*j + v, g, c]) * f32(%w[g, o, u, v, c])
      %y: f16[3, 3, 2, 8] = [i < 3, j < 3, g < 2, o < 8] f16(%p[i, j, g, o]) }"""),
    "channels first": (FOUR, """%x: f16[2, 4, 6, 5], %w: f16[8, 4, 2, 2]) -> (%y: f16[2, 8, 5, 4]) {
      %p: f32[2, 8, 5, 4] = [n < 2, o < 8, i < 5, j < 4] sum[c < 4, u < 2, v < 2]
        f32(%x[n, c, i + u, j + v]) * f32(%w[o, c, u, v])
      %y: f16[2, 8, 5, 4] = [n < 2, o < 8, i < 5, j < 4] f16(%p[n, o, i, j]) }"""),
}  # fmt: skip


def named(name: str) -> TensorProgram:
    return program_of(PRODUCTS[name][1], SIZES)


@pytest.mark.parametrize("name", PRODUCTS)
def test_warps_compute_what_the_stages_say(name: str) -> None:
    assert_same_meaning(named(name), PRODUCTS[name][0], SIZES)


@pytest.mark.parametrize(
    ("name", "schedule", "count"),
    [
        ("columns by columns", TensorProduct(32, 16, 16, 1, 1), 5),
        ("rounded", ROUNDED, 3),
        ("image of bytes", UNSIGNED, 3),
    ],
)
def test_each_wait_is_needed(name: str, schedule: TensorProduct, count: int) -> None:
    """For blocks of terms, rows of fragments, and what is copied."""
    program, kinds = named(name), (Barrier, WaitCopies)
    function = function_of(program, schedule)
    found = program.types[program.outputs[0]]
    data = [*feeds_of(program, SIZES).values(), np.zeros(found.static_shape(), found.dtype.numpy)]
    interpret_loops(function, data, [])
    assert sum(isinstance(s, kinds) for s in statements(function.body)) == count
    for number in range(count):
        broken = without(function, kinds, number)
        verify_function(broken)
        with pytest.raises(RaceError):
            interpret_loops(broken, data, [])


def held(schedule: TensorProduct, buffers: int) -> TensorProduct:
    """By waves of 64 threads that copy nothing beside."""
    return replace(schedule, warp=64, copies=False, buffers=buffers)


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("name", PRODUCTS)
def test_operands_may_pass_through_registers(name: str, buffers: int) -> None:
    schedule = held(PRODUCTS[name][0], buffers)
    function = function_of(named(name), schedule)
    assert not any(isinstance(s, CopyAsync) for s in statements(function.body))
    assert_same_meaning(named(name), schedule, SIZES)


@pytest.mark.parametrize("name", ["rows by columns", "columns by columns", "bytes", "convolution"])
def test_two_fragments_may_be_multiplied_at_once(name: str) -> None:
    one = held(PRODUCTS[name][0], 1)
    schedule = replace(one, terms=2 * one.terms, instruction=DEEP)
    assert_same_meaning(named(name), schedule, SIZES)
    with pytest.raises(ScheduleError, match="blocks of"):
        function_of(named(name), replace(schedule, terms=3 * depth(I8 if name == "bytes" else F16)))


@pytest.mark.parametrize("right", ["%b: f32[20, 16]", "%b: f32[16, 20]"])
def test_f32_may_be_multiplied_as_it_is(right: str) -> None:
    """Of more bits than TF32 has."""
    at = "l, j" if right == "%b: f32[20, 16]" else "j, l"
    program = program_of(f"""%a: f32[40, 20], {right}) -> (%y: f32[40, 16]) {{
      %y: f32[40, 16] = [i < 40, j < 16] sum[l < 20] %a[i, l] * %b[{at}] }}""", {})  # fmt: skip
    schedule = held(replace(ROUNDED, instruction=EXACT), 1)
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal(program.types[n].static_shape()).astype(np.float32) for n in "ab")
    found = np.zeros((40, 16), np.float32)
    interpret_loops(function_of(program, schedule), [a, b, found], [])
    wanted = a.astype(np.float64) @ (b.T if at == "j, l" else b).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


ALTERNATING = """%a: f16[24, 64], %b: f16[24, 128], %c: f32[128]) -> (%y: f32[64, 128]) {
  %p: f32[64, 128] = [i < 64, j < 128] sum[l < 24] f32(%a[l, i]) * f32(%b[l, j])
  %y: f32[64, 128] = [i < 64, j < 128] %p[i, j] + %c[j] }"""


@pytest.mark.parametrize(
    ("rows", "columns", "parts"), [(32, 64, 1), (64, 32, 1), (64, 128, 1), (32, 64, 3)]
)
def test_rows_and_columns_of_fragments_alternate(rows: int, columns: int, parts: int) -> None:
    """Where they lie side by side in memory, and terms do not: two or four of them."""
    schedule = held(TensorProduct(rows, columns, 8 * 2, 1, 2 if columns > 32 else 1), 1)
    program = program_of(ALTERNATING.replace("24", "48"), SIZES)
    function = function_of(program, replace(schedule, parts=parts))
    names = {s.routine.name for s in statements(function.body) if isinstance(s, RoutineCall)}
    assert f"load_a_f16_t_{min(rows // 16, 4)}" in names
    assert f"load_b_f16_{min(columns // 16 // schedule.warp_columns, 4)}" in names
    assert_same_meaning(program, replace(schedule, parts=parts), SIZES)


@pytest.mark.parametrize(("buffers", "count"), [(1, 4), (2, 3)])
def test_each_barrier_is_needed_where_registers_hold_blocks(buffers: int, count: int) -> None:
    """Before the products of a block, behind them if there is one buffer, around the sums."""
    program = named("columns by columns")
    function = function_of(program, held(TensorProduct(32, 16, 16, 2, 1), buffers))
    found = program.types[program.outputs[0]]
    data = [*feeds_of(program, SIZES).values(), np.zeros(found.static_shape(), found.dtype.numpy)]
    interpret_loops(function, data, [])
    barriers = sum(isinstance(s, Barrier) for s in statements(function.body))
    needed = 0
    for number in range(barriers):
        broken = without(function, (Barrier,), number)
        try:
            interpret_loops(broken, data, [])
        except RaceError:
            needed += 1
    assert (barriers, needed) == (count, count - 1), "memory of sums is another one here"


def test_sums_lie_where_operands_were() -> None:
    """If these are used no more, which a barrier says."""
    function = function_of(named("rows by columns"), held(FOUR, 1))
    layout = shared_layout(function)
    left, right, slab = (layout.places[s.buffer.name] for s in statements(function.body)
                         if isinstance(s, Alloc) and s.buffer.space == "shared")  # fmt: skip
    assert layout.overlaid
    assert slab[0] == left[0] == 0
    assert right[0] >= left[1]
    assert parse_function(print_function(function)) == function
    behind = [n for n, s in enumerate(statements(function.body)) if isinstance(s, Barrier)]
    apart = shared_layout(without(function, (Barrier,), 2))
    assert len(behind) > 2
    assert not apart.overlaid
    assert apart.size > layout.size


COPIED = {
    "rows by columns": 2,
    "bytes": 2,
    "bytes by columns": 1,
    "what precedes": 1,
    "convolution": 2,
    "rounded": 2,
    "columns of f32": 2,
    "split": 2,
    "odd sizes": 0,
}
"""Operands that are copied beside the products; others are moved, or lie on no boundaries."""


@pytest.mark.parametrize("name", COPIED)
def test_what_can_be_is_copied_while_warps_multiply(name: str) -> None:
    function = function_of(named(name), PRODUCTS[name][0])
    copied = {s.source for s in statements(function.body) if isinstance(s, CopyAsync)}
    assert len(copied) == COPIED[name]


@pytest.mark.parametrize(
    ("name", "schedule", "message"),
    [
        ("rounded", FOUR, "f32 if it may be rounded"),
        ("bytes", ROUNDED, "f32 if it may be rounded"),
        ("few terms", TensorProduct(16, 48, 16, 1, 2), "tiles of 16 rows and columns"),
        ("few terms", TensorProduct(16, 16, 24, 1, 1), "blocks of 16 terms of f16"),
        ("few terms", TensorProduct(16, 16, 16, 1, 1, 1), "two or more buffers"),
    ],
)
def test_what_warps_cannot_multiply_is_refused(
    name: str, schedule: TensorProduct, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        function_of(named(name), schedule)
