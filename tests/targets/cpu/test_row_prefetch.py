"""What tiles of a product fetch: places of their results, residuals, rows from afar."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from machines import chosen_cpu

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.loop_text import print_functions
from modelcc.ir.types import F32, TensorType, blocked
from modelcc.ops.arithmetic import Add
from modelcc.ops.conv import Conv
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
    lines = print_functions(program.functions).splitlines()
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


def planes(images: int, channels: int, kernel: int = 1) -> list[str]:
    """Prefetches of the input of a convolution in blocks of 16 channels, to 64 channels."""
    make = GraphBuilder()
    x = make.input("x", TensorType((images, channels, 28, 28), F32))
    w = make.constant(np.zeros((64, channels, kernel, kernel), np.float32))
    conv = Conv((1, 1), (0, 0), (0, 0), (1, 1))
    program = lower_graph(make.build([make.emit(conv, x, w)]))
    types = {
        name: type_ if name in program.constants else type_.with_layout(blocked(4, 1, 16))
        for name, type_ in program.types.items()
    }
    scheduled = schedule_program(FuseKernels()(replace(program, types=types)), MACHINE)
    lines = print_functions(scheduled.functions).splitlines()
    return [line.strip() for line in lines if "prefetch %x0" in line]


def test_the_next_plane_of_channels_is_fetched_if_planes_exceed_the_cache() -> None:
    found = planes(4, 256)
    assert found and all(line.endswith("level 1") for line in found)
    assert len(set(found)) == len(found)
    assert not planes(2, 64)


def test_a_plane_that_is_all_of_the_sum_has_no_next() -> None:
    assert not planes(64, 16)


def test_windows_fetch_each_line_of_the_next_plane_once() -> None:
    found = planes(8, 128, kernel=3)
    assert found and len(set(found)) == len(found)
