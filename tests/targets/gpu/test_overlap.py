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
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.schedule import schedule_groups
from tests.targets.gpu.test_few_rows import GPU, residual

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
def test_constants_of_products_are_prefetched(rows: int) -> None:
    function = product(rows, 512, 1024)
    found = {p.buffer.name: p.prefetched for p in function.parameters}
    wanted = dict.fromkeys(found, 0) | {function.parameters[1].buffer.name: 512 * 1024 * 2}
    assert found == wanted, "the weight, and neither what is multiplied nor what is added"


def test_small_ones_are_not() -> None:
    assert not any(p.prefetched for p in product(1, 64, 64).parameters)


def test_no_more_than_a_part_of_the_cache_is() -> None:
    small = replace(GPU, l2_bytes=300 << 10)
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
