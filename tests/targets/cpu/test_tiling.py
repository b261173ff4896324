"""Register tiles of products, by what their panels take to come from the caches."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from machines import chosen_cpu

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Sym
from modelcc.ir.loop_text import print_functions
from modelcc.ir.types import F32, TensorType
from modelcc.ops.conv import Conv
from modelcc.ops.matmul import Einsum, MatMul
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.schedule.text import print_schedule
from modelcc.targets.cpu.passes.assign_layouts import AssignLayouts
from modelcc.targets.cpu.processors import PROCESSORS
from modelcc.targets.cpu.schedule import schedule_program, scheduled_kernels


def accumulators(rows: int, summed: int, columns: int) -> int:
    """Vectors that ``x @ w`` sums up at once."""
    make = GraphBuilder()
    x = make.input("x", TensorType((rows, summed), F32))
    w = make.constant(np.zeros((summed, columns), np.float32))
    return summed_at_once(make.build([make.emit(MatMul(), x, w)]))


def summed_at_once(graph: Graph) -> int:
    """Vectors of sums."""
    text = print_functions(schedule_program(lower_graph(graph), chosen_cpu()).functions)
    return len(set(re.findall(r"%acc\d*", text)))


def test_a_panel_that_is_read_once_is_wide_at_any_length() -> None:
    """It comes from the second-level cache however narrow it is."""
    short, long = accumulators(1, 64, 1024), accumulators(1, 256, 1024)
    assert short == long >= 4


@pytest.mark.parametrize(("bandwidth", "vectors"), [(48.0, 3), (128.0, 6)])
def test_a_long_panel_is_as_wide_as_its_cache_is_fast(bandwidth: float, vectors: int) -> None:
    """Tiles of 3 x 8 and 6 x 4 multiply and add as much in as many cycles."""
    machine = replace(PROCESSORS["sapphirerapids"].model, l2_bandwidth=bandwidth)
    make = GraphBuilder()
    x = make.input("x", TensorType((64, 2048), F32))
    w = make.constant(np.zeros((2048, 5632), np.float32))
    program = lower_graph(make.build([make.emit(MatMul(), x, w)]))
    (one,) = scheduled_kernels(program, machine)
    assert f"b: {vectors}, " in print_schedule(one.schedule)


def test_rows_share_what_they_read() -> None:
    assert accumulators(64, 512, 1024) > 8


def test_rows_far_from_each_other_are_read_in_long_parts() -> None:
    make = GraphBuilder()
    x = make.input("x", TensorType((64, 16), F32))
    w = make.input("w", TensorType((64, 16, 1024), F32))
    graph = make.build([make.emit(Einsum("ij,ijn->n"), x, w)])
    assert summed_at_once(graph) == 8


def test_the_only_image_of_a_named_batch_is_tiled() -> None:
    """Tiles of positions of several images would leave it to single points."""
    make = GraphBuilder()
    x = make.input("x", TensorType((Sym("n"), 16, 100), F32))
    w = make.constant(np.zeros((32, 16, 5), np.float32))
    graph = make.build([make.emit(Conv((1,), (2,), (2,), (1,), 1), x, w)])
    program = AssignLayouts()(lower_graph(graph))
    (function,) = (
        f
        for f in schedule_program(program, chosen_cpu()).functions
        if "acc" in print_functions([f])
    )
    divided = re.findall(r"n floordiv \d+", print_functions([function]))
    assert not divided
