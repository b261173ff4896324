"""Contractions whose terms several groups have parts of, which the last one adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from cuda_products import kernel_of
from cuda_products import product as product_of
from group_products import assert_same_meaning, function_of, program_of, run_in_order

from modelcc.ir.loop import Arrive, Barrier, Stmt
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_traversal import map_blocks, statements
from modelcc.ir.tensor import TensorProgram
from modelcc.schedule.group_schedule import GroupProduct, TensorProduct
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.targets.gpu.contraction import find_contraction
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import H100
from modelcc.targets.gpu.partial_sums import parts_of

SIZES = {"m": 19, "n": 24, "k": 21}
ONE = TensorProduct(16, 16, 16, 1, 1, parts=2)
FOUR = TensorProduct(32, 32, 16, 2, 2, 3, parts=3)
BYTES = TensorProduct(16, 32, 32, 1, 2, 2, parts=2)
ROUNDED = TensorProduct(32, 16, 8, 2, 1, 2, "mma_tf32", parts=3)

PRODUCTS: Mapping[str, tuple[TensorProduct | GroupProduct, str]] = {
    "what is added": (FOUR, """%a: f16[40, 96], %b: f16[96, 48], %c: f32[48], %r: f16[40, 48])
      -> (%y: f16[40, 48]) {
      %p: f32[40, 48] = [i < 40, j < 48] sum[l < 96] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[40, 48] = [i < 40, j < 48] f16(max(%p[i, j] + %c[j] + f32(%r[i, j]), 0.0)) }"""),
    "two results": (ONE, """%a: bf16[16, 64], %b: bf16[20, 64], %r: bf16[16, 20])
      -> (%y: bf16[16, 20], %z: f32[16, 20]) {
      %p: f32[16, 20] = [i < 16, j < 20] sum[l < 64] f32(%a[i, l]) * f32(%b[j, l])
      %z: f32[16, 20] = [i < 16, j < 20] %p[i, j] * 0.5
      %y: bf16[16, 20] = [i < 16, j < 20] bf16(%z[i, j] + f32(%r[i, j])) }"""),
    "batches, few terms at the end": (ONE, """%a: f16[3, 17, 55], %b: f16[3, 55, 19])
      -> (%y: f16[3, 19, 17]) {
      %p: f32[3, 17, 19] = [h < 3, i < 17, j < 19] sum[l < 55] f32(%a[h, i, l]) * f32(%b[h, l, j])
      %y[h, j, i]: f16[3, 19, 17] = [h < 3, i < 17, j < 19] f16(%p[h, i, j]) }"""),
    "fewer blocks than buffers": (
      TensorProduct(16, 16, 16, 1, 1, 4, parts=3), """%a: f16[16, 48], %b: f16[48, 16])
      -> (%y: f32[16, 16]) {
      %y: f32[16, 16] = [i < 16, j < 16] sum[l < 48] f32(%a[i, l]) * f32(%b[l, j]) }"""),
    "what precedes": (ONE, """%a: f16[16, 24], %b: f16[24, 16]) -> (%y: f32[16, 16]) {
      %y: f32[16, 16] = [i < 16, j < 16] sum[l < 24]
        f32(max(%a[i, l], 0.0:f16)) * f32(%b[l, j]) }"""),
    "bytes": (BYTES, """%a: i8[18, 120], %b: i8[40, 120], %s: f32[40]) -> (%y: f32[18, 40]) {
      %p: i32[18, 40] = [i < 18, j < 40] sum[l < 120] i32(%a[i, l]) * i32(%b[j, l])
      %y: f32[18, 40] = [i < 18, j < 40] f32(%p[i, j]) * %s[j] }"""),
    "rounded": (ROUNDED, """%a: f32[40, 20], %b: f32[20, 16]) -> (%y: f32[40, 16]) {
      %y: f32[40, 16] = [i < 40, j < 16] sum[l < 20] %a[i, l] * %b[l, j] }"""),
    "convolution": (
      TensorProduct(32, 32, 16, 2, 2, 3, parts=5), """%x: f16[2, 6, 5, 8], %w: f16[3, 3, 8, 16],
      %c: f32[16]) -> (%y: f16[2, 6, 5, 16]) {
      %p: f32[2, 6, 5, 16] = [n < 2, i < 6, j < 5, o < 16] sum[u < 3, v < 3, c < 8]
        f32((%x[n, i + u - 1, j + v - 1, c] if [i + u >= 1, i + u < 7, j + v >= 1, j + v < 6]
          else 0.0:f16)) * f32(%w[u, v, c, o])
      %y: f16[2, 6, 5, 16] = [n < 2, i < 6, j < 5, o < 16]
        f16(max(%p[n, i, j, o] + %c[o], 0.0)) }"""),
    "numbers of 32 bits": (GroupProduct(8, 8, 4, 2, 4, 4, 2, parts=3), """%a: f32[2, 19, 24],
      %b: f32[2, 24, 20], %c: f32[20]) -> (%y: f32[2, 19, 20]) {
      %p: f32[2, 19, 20] = [h < 2, i < 19, j < 20] sum[l < 24] %a[h, i, l] * %b[h, l, j]
      %y: f32[2, 19, 20] = [h < 2, i < 19, j < 20] max(%p[h, i, j] + %c[j], 0.0) }"""),
    "copied ahead": (GroupProduct(8, 8, 4, 2, 4, 4, 4, parts=3), """%a: f32[2, 19, 24],
      %b: f32[2, 20, 24], %c: f32[20]) -> (%y: f32[2, 19, 20]) {
      %p: f32[2, 19, 20] = [h < 2, i < 19, j < 20] sum[l < 24] %a[h, i, l] * %b[h, j, l]
      %y: f32[2, 19, 20] = [h < 2, i < 19, j < 20] max(%p[h, i, j] + %c[j], 0.0) }"""),
    "more than a thread reads at once": (GroupProduct(16, 16, 4, 8, 4, 4, 4, parts=6),
      """%a: f32[19, 24], %b: f32[24, 20]) -> (%y: f32[19, 20]) {
      %y: f32[19, 20] = [i < 19, j < 20] sum[l < 24] %a[i, l] * %b[l, j] }"""),
    "one buffer": (GroupProduct(8, 4, 4, 2, 2, parts=2), """%x: f32[2, 4, 6, 5],
      %w: f32[7, 4, 2, 2]) -> (%y: f32[2, 7, 5, 4]) {
      %y: f32[2, 7, 5, 4] = [n < 2, o < 7, i < 5, j < 4] sum[c < 4, u < 2, v < 2]
        %x[n, c, i + u, j + v] * %w[o, c, u, v] }"""),
    "boxes": (TensorProduct(64, 64, 64, 1, 1, 2, "wgmma", 3), """%a: f16[40, 376], %b: f16[376, 72],
      %c: f32[72]) -> (%y: f16[40, 72]) {
      %p: f32[40, 72] = [i < 40, j < 72] sum[l < 376] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[40, 72] = [i < 40, j < 72] f16(max(%p[i, j] + %c[j], 0.0)) }"""),
    "boxes in batches": (TensorProduct(128, 64, 64, 2, 1, 3, "wgmma", 2), """%a: bf16[2, 70, 128],
      %b: bf16[2, 20, 128], %r: bf16[70, 20]) -> (%y: bf16[2, 70, 20], %z: f32[2, 70, 20]) {
      %p: f32[2, 70, 20] = [h < 2, i < 70, j < 20] sum[l < 128]
        f32(%a[h, i, l]) * f32(%b[h, j, l])
      %z: f32[2, 70, 20] = [h < 2, i < 70, j < 20] %p[h, i, j] * 0.5
      %y: bf16[2, 70, 20] = [h < 2, i < 70, j < 20] bf16(%z[h, i, j] + f32(%r[i, j])) }"""),
    "boxes of 8 bits": (TensorProduct(64, 64, 128, 1, 1, 2, "wgmma", 2), """%a: f8e4m3fn[40, 496],
      %b: f8e4m3fn[72, 496]) -> (%y: f32[40, 72]) {
      %p: f32[40, 72] = [i < 40, j < 72] sum[l < 496] f32(%a[i, l]) * f32(%b[j, l])
      %y: f32[40, 72] = [i < 40, j < 72] %p[i, j] * 0.5 }"""),
    "boxes of padded images": (
      TensorProduct(64, 64, 64, 1, 1, 2, "wgmma", 3), """%x: bf16[2, 6, 10, 64],
      %w: bf16[3, 3, 64, 24], %r: bf16[24]) -> (%y: bf16[2, 6, 10, 24]) {
      %p: f32[2, 6, 10, 24] = [n < 2, h < 6, w < 10, j < 24] sum[c < 64, a < 3, b < 3]
        f32((%x[n, h + a - 1, w + b - 1, c]
          if [h + a >= 1, h + a < 7, w + b >= 1, w + b < 11] else 0.0:bf16)) * f32(%w[a, b, c, j])
      %y: bf16[2, 6, 10, 24] = [n < 2, h < 6, w < 10, j < 24]
        bf16(max(%p[n, h, w, j] + f32(%r[j]), 0.0)) }"""),
    "convolution in groups": (ONE, """%x: f16[7, 7, 2, 8], %w: f16[2, 8, 2, 2, 8])
      -> (%y: f16[3, 3, 2, 8]) {
      %p: f32[3, 3, 2, 8] = [i < 3, j < 3, g < 2, o < 8] sum[u < 2, v < 2, c < 8]
        f32(%x[2*i + u, 2*j + v, g, c]) * f32(%w[g, o, u, v, c])
      %y: f16[3, 3, 2, 8] = [i < 3, j < 3, g < 2, o < 8] f16(%p[i, j, g, o]) }"""),
}  # fmt: skip


def named(name: str) -> TensorProgram:
    return program_of(PRODUCTS[name][1], SIZES)


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_last_group_finishes_what_the_stages_say(name: str) -> None:
    program, schedule = named(name), PRODUCTS[name][0]
    function = function_of(program, schedule)
    (arrive,) = (s for s in statements(function.body) if isinstance(s, Arrive))
    assert arrive.count == schedule.parts
    assert_same_meaning(program, schedule, SIZES)


@pytest.mark.parametrize("name", ["what is added", "convolution"])
def test_bits_are_the_same_in_any_order_of_groups(name: str) -> None:
    function = function_of(named(name), PRODUCTS[name][0])
    expected, _, counters = run_in_order(function, 0)
    assert np.isfinite(expected.astype(np.float32)).all()
    assert not counters.any()
    for order in range(1, 4):
        found, _, counters = run_in_order(function, order)
        assert found.tobytes() == expected.tobytes()
        assert not counters.any()


def test_a_group_that_does_not_wait_for_the_last_one_is_found() -> None:
    function = function_of(named("what is added"), FOUR)

    def alone(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        found: list[Stmt] = []
        for s in body:
            found += (Barrier(), *s.body) if isinstance(s, Arrive) else (map_blocks(s, alone),)
        return tuple(found)

    broken = replace(function, body=alone(function.body))
    with pytest.raises(RaceError, match="nothing orders groups"):
        run_in_order(broken, 0)


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("what is added", 4, "6 blocks of terms are not cut into 4 parts"),
        ("what is added", 0, "tiles have rows, columns, terms and parts"),
    ],
)
def test_parts_are_alike(name: str, parts: int, message: str) -> None:
    schedule = TensorProduct(32, 32, 16, 2, 2, 3, parts=parts)
    with pytest.raises(ScheduleError, match=message):
        function_of(named(name), schedule)


def test_a_named_number_of_tiles_is_refused() -> None:
    text = """%a: f16[m, 32], %b: f16[32, 16]) -> (%y: f32[m, 16]) {
      %y: f32[m, 16] = [i < m, j < 16] sum[l < 32] f32(%a[i, l]) * f32(%b[l, j]) }"""
    program = program_of(text, SIZES)
    with pytest.raises(ScheduleError, match="tiles whose number is known"):
        function_of(program, ONE)


def test_the_text_of_a_schedule_has_its_parts() -> None:
    assert "parts=3" in print_schedule(FOUR)
    assert parse_schedule(print_schedule(FOUR)) == FOUR


CHOICES = {
    "few rows": ((128, 768, 3072), True, True),
    "enough tiles": ((4096, 4096, 4096), True, False),
    "few terms": ((128, 768, 32), True, False),
    "groups that do not count": ((128, 768, 3072), False, False),
}


@pytest.mark.parametrize("name", CHOICES)
def test_sums_are_cut_where_that_is_expected_to_be_faster(name: str) -> None:
    sizes, arrivals, cut = CHOICES[name]
    for dtype in ("f16", "f32"):
        gpu = replace(H100, matrix=("mma",), arrivals=arrivals)
        found = default_schedule(kernel_of(product_of(*sizes, dtype)).kernel, gpu)
        assert isinstance(found, TensorProduct if dtype == "f16" else GroupProduct)
        assert (found.parts > 1) == cut


def test_parts_stay_in_half_of_the_cache() -> None:
    anchor = kernel_of(product_of(128, 768, 3072, "f16")).group.anchor
    found = None if anchor is None else find_contraction(anchor)
    assert found is not None
    small = replace(H100, arrivals=True, l2_bytes=2 * 3 * 128 * 768 * 4)
    assert [*parts_of(64, 64, 64, found, replace(small, l2_bytes=50 << 20))] == [2, 3, 4]
    assert [*parts_of(64, 64, 64, found, small)] == [2, 3]
