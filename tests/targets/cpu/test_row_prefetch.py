"""What tiles of a product fetch: places of their results, residuals, rows from afar."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from machines import chosen_cpu

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.loop_text import print_functions
from modelcc.ir.types import F32, TensorType
from modelcc.levels import scheduled_functions
from modelcc.ops.arithmetic import Add
from modelcc.ops.matmul import MatMul
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.targets.cpu.schedule import schedule_program

MACHINE = replace(chosen_cpu(), l2_bandwidth=64, l3_bandwidth=64, memory_bandwidth=64)
"""One on which sums are not cut into blocks, which walk short parts of rows."""


def fetches(rows: int, summed: int, columns: int = 48) -> list[str]:
    """Prefetches of everything but weights, in ``x @ w + r``."""
    make = GraphBuilder()
    x = make.input("x", TensorType((rows, summed), F32))
    r = make.input("r", TensorType((rows, columns), F32))
    w = make.constant(np.zeros((summed, columns), np.float32))
    graph = make.build([make.emit(Add(), make.emit(MatMul(), x, w), r)])
    program = schedule_program(FuseKernels()(lower_graph(graph)), MACHINE)
    lines = print_functions(scheduled_functions(program)).splitlines()
    found = [line.strip() for line in lines if "prefetch" in line]
    return [line for line in found if "%x1" not in line]


def test_residuals_and_results_are_fetched_while_products_are_summed() -> None:
    found = fetches(64, 256)
    places = [{line.split("[")[1] for line in found if name in line} for name in ("%x2", "%y0")]
    assert places[0] and places[0] == places[1]
    assert all(line.endswith("level 1") for line in found)


def test_short_sums_fetch_nothing() -> None:
    assert not fetches(64, 64)


def test_rows_side_by_side_are_left_to_the_core() -> None:
    assert not fetches(64, 256, columns=16)


def test_rows_are_fetched_if_all_of_them_exceed_the_cache() -> None:
    assert not [line for line in fetches(64, 3088) if "%x0" in line]
    far = [line for line in fetches(512, 3088) if "%x0" in line]
    assert far and all(line.endswith("level 2") for line in far)


def test_rows_that_would_drive_each_other_out_are_not_fetched() -> None:
    assert not [line for line in fetches(512, 3072) if "%x0" in line]
