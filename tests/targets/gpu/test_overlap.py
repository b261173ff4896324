"""What kernels do while the one before them ends: constants they fetch, room they leave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.passes.program.apply_plan import apply_plan
from modelcc.passes.program.plan_memory import plan_memory
from modelcc.targets.gpu.device_program import with_places
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.schedule import schedule_groups
from tests.targets.gpu.products.test_few_rows import GPU, residual

NORM = """program @p(%x: f16[{rows}, 512]) -> (%y) dims() {{
  kernel @Norm(%x: f16[{rows}, 512]) -> (%y: f16[{rows}, 512]) {{
    %s: f32[{rows}] = [i < {rows}] sum[c < 512] f32(%x[i, c]) * f32(%x[i, c])
    %y: f16[{rows}, 512] = [i < {rows}, o < 512] f16(f32(%x[i, o]) / sqrt(%s[i])) }} }}"""


def product(rows: int, terms: int, columns: int, machine: GpuModel = GPU) -> Function:
    program, _ = residual(rows, terms, columns, "f16", np.random.default_rng(0))
    (function,) = schedule_groups(program, machine=machine).functions
    return function


def norm(rows: int) -> Function:
    program = parse_tensor_program(NORM.format(rows=rows), {})
    (function,) = schedule_groups(program, machine=GPU).functions
    return function


@pytest.mark.parametrize("rows", [1, 4, 64, 512])
def test_operands_of_products_are_prefetched(rows: int) -> None:
    function = product(rows, 512, 1024)
    found = [p.prefetched for p in function.parameters]
    x = rows * 512 * 2
    wanted = [x if x >= 32 << 10 else 0, 512 * 1024 * 2, 0, 0]
    assert found == wanted, "what is added is not, nor are results"


def test_what_a_program_makes_is_not() -> None:
    """The second product reads the first one's result, and a weight that a call gives."""
    text = """program @p(%x: f16[512, 64], %w: f16[64, 512], %v: f16[512, 512]) -> (%y) dims() {
  kernel @First(%x: f16[512, 64], %w: f16[64, 512]) -> (%t: f16[512, 512]) {
    %s: f32[512, 512] = [i < 512, j < 512] sum[k < 64] f32(%x[i, k]) * f32(%w[k, j])
    %t: f16[512, 512] = [i < 512, j < 512] f16(%s[i, j]) }
  kernel @Second(%t: f16[512, 512], %v: f16[512, 512]) -> (%y: f16[512, 512]) {
    %u: f32[512, 512] = [i < 512, j < 512] sum[k < 512] f32(%t[i, k]) * f32(%v[k, j])
    %y: f16[512, 512] = [i < 512, j < 512] f16(%u[i, j]) } }"""
    scheduled = schedule_groups(parse_tensor_program(text, {}), machine=GPU)
    program = apply_plan(scheduled, plan_memory(scheduled))
    first, second = with_places(program.functions, program)
    assert [p.prefetched for p in first.parameters] == [65536, 65536, 0]
    assert [p.prefetched for p in second.parameters] == [0, 524288, 0]


def test_small_ones_are_not() -> None:
    assert not any(p.prefetched for p in product(1, 64, 64).parameters)


def test_no_more_than_a_part_of_the_cache_is() -> None:
    small = replace(GPU, l2_bytes=400 << 10)
    assert product(1, 512, 1024, small).parameters[1].prefetched == 100 << 10


def test_machines_whose_kernels_wait_for_each_other_fetch_nothing() -> None:
    before = product(1, 512, 1024, replace(GPU, overlaps=False))
    assert not before.early and not any(p.prefetched for p in before.parameters)


@pytest.mark.parametrize(("rows", "early"), [(1, True), (197, True), (16384, False)])
def test_small_kernels_let_the_next_one_come(rows: int, early: bool) -> None:
    assert norm(rows).early is early


def test_tiles_of_products_let_nobody_crowd() -> None:
    assert not product(512, 512, 1024).early


def test_texts_say_it() -> None:
    for function in (product(1, 512, 1024), norm(1)):
        text = print_function(function)
        assert parse_function(text) == function, text


def test_what_is_prefetched_is_there_and_nobody_writes_it() -> None:
    text = """func @f(%x: {} f32[8], %y: mut f32[8]) {{
      grid g in 0 .. 1 {{ thread t in 0 .. 1 {{ store %y[0] = load %x[0] }} }} }}"""
    verify_function(parse_function(text.format("constant prefetched 32")))
    for words in ("prefetched 36", "mut prefetched 16"):
        with pytest.raises(ModelError, match="bytes of %x are prefetched"):
            verify_function(parse_function(text.format(words)))
