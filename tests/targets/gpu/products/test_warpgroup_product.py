"""Contractions on tiles that are copied as boxes: edges, layouts, what is fused, and no race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from group_products import assert_same_meaning, feeds_of, function_of, program_of, without

from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import statements, tile_maps
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.shared_layout import shared_layout
from modelcc.ir.tiles import WaitArrival, WaitRoutines
from modelcc.ir.types import I64, Array
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.products.warpgroup_product import tile_bytes

SIZES = {"m": 19}
EIGHT = TensorProduct(64, 64, 128, 1, 1, 2, "wgmma")
"""For floats of 8 bits."""

ONE = TensorProduct(64, 64, 64, 1, 1, 2, "wgmma")
TWO = TensorProduct(128, 64, 64, 2, 1, 3, "wgmma")

FEW = TensorProduct(8, 64, 64, 1, 1, 3, "wgmma")
MORE = TensorProduct(32, 128, 64, 1, 2, 2, "wgmma")
"""Of fewer rows than units have on a side."""

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
    "floats of 8 bits": (EIGHT, """%a: f8e4m3fn[40, 336], %b: f8e4m3fn[72, 336])
      -> (%y: f32[40, 72]) {
      %p: f32[40, 72] = [i < 40, j < 72] sum[l < 336] f32(%a[i, l]) * f32(%b[j, l])
      %y: f32[40, 72] = [i < 40, j < 72] %p[i, j] * 0.5 }"""),
    "padded images": (TWO, """%x: bf16[2, 6, 10, 64], %w: bf16[3, 3, 64, 24], %r: bf16[24])
      -> (%y: bf16[2, 6, 10, 24]) {
      %p: f32[2, 6, 10, 24] = [n < 2, h < 6, w < 10, j < 24] sum[c < 64, a < 3, b < 3]
        f32((%x[n, h + a - 1, w + b - 1, c]
          if [h + a >= 1, h + a < 7, w + b >= 1, w + b < 11] else 0.0:bf16)) * f32(%w[a, b, c, j])
      %y: bf16[2, 6, 10, 24] = [n < 2, h < 6, w < 10, j < 24]
        bf16(max(%p[n, h, w, j] + f32(%r[j]), 0.0)) }"""),
    "padded images in steps": (ONE, """%x: f16[2, 8, 12, 64], %w: f16[3, 3, 64, 24])
      -> (%y: f32[2, 4, 6, 24]) {
      %y: f32[2, 4, 6, 24] = [n < 2, h < 4, w < 6, j < 24] sum[c < 64, a < 3, b < 3]
        f32((%x[n, 2*h + a - 1, 2*w + b - 1, c] if [2*h + a >= 1, 2*h + a < 9, 2*w + b >= 1,
          2*w + b < 13] else 0.0:f16)) * f32(%w[a, b, c, j]) }"""),
    "images without borders": (ONE, """%x: f16[2, 7, 9, 64], %w: f16[24, 3, 3, 64])
      -> (%y: f32[2, 5, 7, 24]) {
      %y: f32[2, 5, 7, 24] = [n < 2, h < 5, w < 7, j < 24] sum[c < 64, a < 3, b < 3]
        f32(%x[n, h + a, w + b, c]) * f32(%w[j, a, b, c]) }"""),
    "images in steps": (ONE, """%x: f16[3, 8, 14, 64], %w: f16[24, 64]) -> (%y: f32[3, 4, 7, 24]) {
      %y: f32[3, 4, 7, 24] = [n < 3, h < 4, w < 7, j < 24] sum[c < 64]
        f32(%x[n, 2*h, 2*w, c]) * f32(%w[j, c]) }"""),
    "patches": (ONE, """%x: f16[2, 6, 10, 32], %w: f16[2, 2, 32, 16]) -> (%y: f32[2, 3, 5, 16]) {
      %y: f32[2, 3, 5, 16] = [n < 2, h < 3, w < 5, j < 16] sum[c < 32, a < 2, b < 2]
        f32(%x[n, 2*h + a, 2*w + b, c]) * f32(%w[a, b, c, j]) }"""),
    "few rows by columns": (FEW, """%a: f16[20, 136], %b: f16[136, 72], %c: f32[72])
      -> (%y: f16[20, 72]) {
      %p: f32[20, 72] = [i < 20, j < 72] sum[l < 136] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[20, 72] = [i < 20, j < 72] f16(max(%p[i, j] + %c[j], 0.0)) }"""),
    "few rows by rows": (MORE, """%a: bf16[2, 40, 64], %b: bf16[2, 200, 64], %r: bf16[40, 200])
      -> (%y: bf16[2, 40, 200], %z: f32[2, 40, 200]) {
      %p: f32[2, 40, 200] = [h < 2, i < 40, j < 200] sum[l < 64]
        f32(%a[h, i, l]) * f32(%b[h, j, l])
      %z: f32[2, 40, 200] = [h < 2, i < 40, j < 200] %p[h, i, j] * 0.5
      %y: bf16[2, 40, 200] = [h < 2, i < 40, j < 200] bf16(%z[h, i, j] + f32(%r[i, j])) }"""),
    "few rows of 8 bits": (replace(EIGHT, rows=16), """%a: f8e4m3fn[20, 336],
      %b: f8e4m3fn[72, 336]) -> (%y: f32[20, 72]) {
      %y: f32[20, 72] = [i < 20, j < 72] sum[l < 336] f32(%a[i, l]) * f32(%b[j, l]) }"""),
    "few pixels": (MORE, """%x: bf16[2, 6, 10, 64], %w: bf16[3, 3, 64, 24])
      -> (%y: f32[2, 6, 10, 24]) {
      %y: f32[2, 6, 10, 24] = [n < 2, h < 6, w < 10, j < 24] sum[c < 64, a < 3, b < 3]
        f32((%x[n, h + a - 1, w + b - 1, c]
          if [h + a >= 1, h + a < 7, w + b >= 1, w + b < 11] else 0.0:bf16)) * f32(%w[a, b, c, j])
      }"""),
    "parts of channels": (FEW, """%x: bf16[1, 6, 5, 128], %w: bf16[3, 3, 128, 72])
      -> (%y: f32[2, 1, 6, 5, 72]) {
      %y: f32[2, 1, 6, 5, 72] = [q < 2, n < 1, h < 6, w < 5, j < 72] sum[c < 64, a < 3, b < 3]
        f32((%x[n, h + a - 1, w + b - 1, c + 64*q]
          if [h + a >= 1, h + a < 7, w + b >= 1, w + b < 6] else 0.0:bf16))
        * f32(%w[a, b, c + 64*q, j]) }"""),
    "parts of channels in steps": (ONE, """%x: f16[1, 8, 6, 128], %w: f16[72, 3, 3, 128])
      -> (%y: f32[2, 1, 4, 3, 72]) {
      %y: f32[2, 1, 4, 3, 72] = [q < 2, n < 1, h < 4, w < 3, j < 72] sum[c < 64, a < 3, b < 3]
        f32((%x[n, 2*h + a - 1, 2*w + b - 1, c + 64*q]
          if [2*h + a >= 1, 2*h + a < 9, 2*w + b >= 1, 2*w + b < 7] else 0.0:f16))
        * f32(%w[j, a, b, c + 64*q]) }"""),
    "channels in no whole blocks": (ONE, """%x: bf16[2, 6, 5, 24], %w: bf16[3, 3, 24, 72])
      -> (%y: f32[2, 6, 5, 72]) {
      %y: f32[2, 6, 5, 72] = [n < 2, h < 6, w < 5, j < 72] sum[c < 24, a < 3, b < 3]
        f32((%x[n, h + a - 1, w + b - 1, c]
          if [h + a >= 1, h + a < 7, w + b >= 1, w + b < 6] else 0.0:bf16)) * f32(%w[a, b, c, j])
      }"""),
    "patches of three channels": (FEW, """%x: f16[2, 32, 48, 3], %w: f16[72, 16, 16, 3])
      -> (%y: f32[2, 2, 3, 72]) {
      %y: f32[2, 2, 3, 72] = [n < 2, h < 2, w < 3, j < 72] sum[a < 16, b < 16, c < 3]
        f32(%x[n, 16*h + a, 16*w + b, c]) * f32(%w[j, a, b, c]) }"""),
    "more channels in steps": (TWO, """%x: f16[1, 8, 6, 96], %w: f16[3, 3, 96, 72])
      -> (%y: f32[1, 4, 3, 72]) {
      %y: f32[1, 4, 3, 72] = [n < 1, h < 4, w < 3, j < 72] sum[c < 96, a < 3, b < 3]
        f32((%x[n, 2*h + a - 1, 2*w + b - 1, c]
          if [2*h + a >= 1, 2*h + a < 9, 2*w + b >= 1, 2*w + b < 7] else 0.0:f16))
        * f32(%w[a, b, c, j]) }"""),
    "parts of a window": (ONE, """%x: f16[2, 6, 5, 64], %w: f16[3, 3, 64, 72])
      -> (%y: f32[3, 2, 6, 5, 72]) {
      %y: f32[3, 2, 6, 5, 72] = [q < 3, n < 2, h < 6, w < 5, j < 72] sum[c < 64, a < 3, b < 1]
        f32((%x[n, h + a - 1, w + b + q - 1, c]
          if [h + a >= 1, h + a < 7, w + b + q >= 1, w + b + q < 6] else 0.0:f16))
        * f32(%w[a, b + q, c, j]) }"""),
    "named sizes, few rows": (FEW, """%a: f16[m, 72], %b: f16[72, 16]) -> (%y: f16[m, 16]) {
      %p: f32[m, 16] = [i < m, j < 16] sum[l < 72] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[m, 16] = [i < m, j < 16] f16(%p[i, j]) }"""),
    "named sizes": (ONE, """%a: f16[m, 72], %b: f16[72, 16]) -> (%y: f16[m, 16]) {
      %p: f32[m, 16] = [i < m, j < 16] sum[l < 72] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[m, 16] = [i < m, j < 16] f16(%p[i, j]) }"""),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_warps_compute_what_the_stages_say(name: str) -> None:
    schedule, kernel = PRODUCTS[name]
    assert_same_meaning(program_of(kernel, SIZES), schedule, SIZES)


WAITING = (Barrier, WaitArrival, WaitRoutines)


def test_each_wait_is_needed() -> None:
    """For tiles, for products, for other threads: in the loop and behind the sums."""
    kernel = """%a: f16[40, 136], %b: f16[136, 24]) -> (%y: f32[40, 24]) {
      %y: f32[40, 24] = [i < 40, j < 24] sum[l < 136] f32(%a[i, l]) * f32(%b[l, j]) }"""
    program = program_of(kernel, SIZES)
    function = function_of(program, ONE)
    feeds = [*feeds_of(program, SIZES).values(), np.zeros((40, 24), np.float32)]
    kinds = [type(s) for s in statements(function.body) if isinstance(s, WAITING)]
    block = [WaitArrival, WaitRoutines, Barrier]
    assert kinds == [*block, *block, WaitRoutines, Barrier, Barrier]
    _assert_needed(function, feeds, (0, 1, 2, 6, 8))


@pytest.mark.parametrize("schedule", [ONE, TWO, FEW, MORE])
def test_sums_lie_where_the_tiles_were(schedule: TensorProduct) -> None:
    """Behind the products and a barrier; without either they have memory of their own."""
    function = function_of(program_of(PRODUCTS["rows by columns"][1], SIZES), schedule)
    layout = shared_layout(function)
    ends = {name: end for name, (_, end) in layout.places.items()}
    arrivals = schedule.buffers * I64.bytes
    assert layout.overlaid and layout.places["slab0"][0] == 0
    assert layout.size == max(ends["right0"], ends["slab0"]) + arrivals == tile_bytes(schedule)
    assert layout.places["there0"][0] >= max(ends["right0"], ends["slab0"])
    waits = [s for s in statements(function.body) if isinstance(s, WAITING)]
    for missing in (len(waits) - 3, len(waits) - 2):
        apart = shared_layout(without(function, WAITING, missing))
        assert not apart.overlaid
        assert apart.size > layout.size


def _assert_needed(function: Function, feeds: Sequence[Array], numbers: Sequence[int]) -> None:
    """Without any of these waits threads race."""
    for number in numbers:
        broken = without(function, WAITING, number)
        verify_function(broken)
        with pytest.raises(RaceError):
            interpret_loops(broken, feeds, [])


def test_each_wait_is_needed_of_few_rows() -> None:
    """They are put into shared memory at once."""
    kernel = """%a: f16[20, 136], %b: f16[136, 24]) -> (%y: f32[20, 24]) {
      %y: f32[20, 24] = [i < 20, j < 24] sum[l < 136] f32(%a[i, l]) * f32(%b[l, j]) }"""
    program = program_of(kernel, SIZES)
    function = function_of(program, replace(FEW, buffers=2))
    feeds = [*feeds_of(program, SIZES).values(), np.zeros((20, 24), np.float32)]
    kinds = [type(s) for s in statements(function.body) if isinstance(s, WAITING)]
    block = [WaitArrival, WaitRoutines, Barrier]
    assert kinds == [*block, *block, WaitRoutines, Barrier, Barrier]
    _assert_needed(function, feeds, (0, 1, 2, 6, 8))


def test_tensors_are_told_in_rows_of_128_bytes() -> None:
    left, right = tile_maps(function_of(program_of(PRODUCTS["rows by rows"][1], SIZES), TWO))
    assert (left.sizes, left.strides, left.box) == ((2, 70, 64), (4480, 64, 1), (1, 128, 64))
    assert (right.sizes, right.strides, right.box) == ((2, 20, 64), (1280, 64, 1), (1, 64, 64))


REFUSED = {
    "odd rows": "%a: f16[16, 20], %b: f16[20, 16]) -> (%y: f32[16, 16]) { %y: f32[16, 16] = "
    "[i < 16, j < 16] sum[l < 20] f32(%a[i, l]) * f32(%b[l, j]) }",
    "what precedes": "%a: f16[16, 24], %b: f16[24, 16]) -> (%y: f32[16, 16]) { %y: f32[16, 16] = "
    "[i < 16, j < 16] sum[l < 24] f32(max(%a[i, l], 0.0:f16)) * f32(%b[l, j]) }",
    "bytes in columns": "%a: f8e5m2[16, 32], %b: f8e5m2[32, 16]) -> (%y: f32[16, 16]) { %y: "
    "f32[16, 16] = [i < 16, j < 16] sum[l < 32] f32(%a[i, l]) * f32(%b[l, j]) }",
    "bytes": "%a: i8[16, 32], %b: i8[32, 16]) -> (%y: i32[16, 16]) { %y: i32[16, 16] = "
    "[i < 16, j < 16] sum[l < 32] i32(%a[i, l]) * i32(%b[l, j]) }",
}


@pytest.mark.parametrize("name", REFUSED)
def test_operands_that_are_no_boxes_are_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="with rows on boundaries"):
        function_of(program_of(REFUSED[name], SIZES), ONE)


def test_few_rows_side_by_side_are_refused() -> None:
    with pytest.raises(ScheduleError, match="few rows have their terms side by side"):
        function_of(program_of(PRODUCTS["columns by columns"][1], SIZES), FEW)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (replace(ONE, rows=128), "four warps have 64 rows"),
        (replace(ONE, rows=24), "or [(]8, 16, 32[)] rows and 64 columns"),
        (replace(FEW, columns=128), "or [(]8, 16, 32[)] rows and 64 columns"),
        (replace(FEW, warp_rows=2), "or [(]8, 16, 32[)] rows and 64 columns"),
        (replace(ONE, columns=80), "four warps have 64 rows"),
        (replace(ONE, terms=32), "blocks of 64 terms, two or more"),
        (replace(ONE, buffers=1), "blocks of 64 terms, two or more"),
    ],
)
def test_tiles_that_no_instruction_has_are_refused(schedule: TensorProduct, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        function_of(program_of(PRODUCTS["rows by columns"][1], SIZES), schedule)
