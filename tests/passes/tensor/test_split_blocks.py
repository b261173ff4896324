"""Concatenations whose parts meet within blocks of channels stay in blocks, and stay right."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runs import native, run_scheduled
from machines import chosen_cpu

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.loop import Store
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import F32, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.arithmetic import Add
from modelcc.ops.conv import Conv
from modelcc.ops.shape import Concat, Transpose
from modelcc.ops.slicing import Slice
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.targets.cpu.schedule import schedule_program
from tests.passes.tensor.networks import weights
from tests.passes.tensor.test_random_networks import PASSES, assert_same, feeds_of

SPLITS = ((8, 8), (24, 24), (20, 12, 20), (9, 40), (36, 36), (16, 20, 28), (8, 8, 8, 8))


def same(size: int, groups: int = 1) -> Conv:
    """A convolution whose results are as large as its operand."""
    pad = (size // 2, size // 2)
    return Conv((1, 1), pad, pad, (1, 1), groups)


def concatenation(channels: tuple[int, ...]) -> Graph:
    """Convolutions side by side, their results concatenated and convolved depthwise."""
    build = GraphBuilder()
    x = build.input("x", TensorType((1, 16, 6, 7), F32))
    parts: list[str] = []
    for count in channels:
        part = build.emit(same(1), x, build.constant(weights(count, 16, 1, 1)))
        parts.append(build.emit(Relu(), part) if len(parts) % 2 else part)
    total = sum(channels)
    whole = build.emit(Concat(1), *parts)
    y = build.emit(same(3, total), whole, build.constant(weights(total, 1, 3, 3)))
    return build.build([y])


def compiled(graph: Graph) -> TensorProgram:
    program = lower_graph(graph)
    for step in PASSES:
        program = step(program)
    return program


@pytest.mark.parametrize("channels", SPLITS, ids=str)
def test_parts_of_any_size_are_written_side_by_side(channels: tuple[int, ...]) -> None:
    graph = concatenation(channels)
    program = compiled(graph)
    feeds = feeds_of(graph)
    scheduled = schedule_program(program, chosen_cpu())
    got = run_scheduled(scheduled, native(scheduled), feeds, {})
    assert_same(got, interpret(graph, feeds))


@pytest.mark.parametrize("channels", SPLITS, ids=str)
def test_pieces_share_the_constants_of_their_part(channels: tuple[int, ...]) -> None:
    """Each part is a sum with one value per channel, which its pieces read from different ends."""
    build = GraphBuilder()
    x = build.input("x", TensorType((1, 16, 6, 7), F32))
    parts: list[str] = []
    for count in channels:
        part = build.emit(same(1), x, build.constant(weights(count, 16, 1, 1)))
        moved = build.emit(Transpose((0, 1, 3, 2)), part)
        shift = build.constant(weights(count, 1, 1))
        parts.append(build.emit(Relu(), build.emit(Add(), moved, shift)))
    whole = build.emit(Concat(1), *parts)
    total = sum(channels)
    y = build.emit(same(3, total), whole, build.constant(weights(total, 1, 3, 3)))
    graph = build.build([y])
    scheduled, feeds = schedule_program(compiled(graph), chosen_cpu()), feeds_of(graph)
    assert_same(run_scheduled(scheduled, native(scheduled), feeds, {}), interpret(graph, feeds))


@pytest.mark.parametrize("channels", SPLITS, ids=str)
def test_the_result_is_in_blocks(channels: tuple[int, ...]) -> None:
    program = compiled(concatenation(channels))
    written = [s.output for i in program.items if isinstance(i, Kernel) for s in i.stages]
    whole = max(set(written), key=written.count)
    assert np.prod(program.types[whole].static_shape()) == sum(channels) * 42
    assert program.types[whole].physical.parts[-1].mod == 16


def narrow_groups(width: int) -> Graph:
    """Results of a convolution in groups of ``width``, each added to what the last one became."""
    build = GraphBuilder()
    x = build.input("x", TensorType((1, 16, 6, 7), F32))
    wide = build.emit(same(1), x, build.constant(weights(3 * width, 16, 1, 1)))
    starts = [(0, n * width, 0, 0) for n in range(3)]
    groups = [build.emit(Slice(s, (1, width, 6, 7), (1, 1, 1, 1)), wide) for s in starts]
    y = groups[0]
    for group in groups[1:]:
        y = build.emit(Relu(), build.emit(same(3), y, build.constant(weights(width, width, 3, 3))))
        y = build.emit(Add(), y, group)
    return build.build([build.emit(same(1), y, build.constant(weights(16, width, 1, 1)))])


@pytest.mark.parametrize("width", [8, 14, 16, 20, 26])
def test_groups_from_within_blocks_are_read_in_vectors(width: int) -> None:
    graph = narrow_groups(width)
    scheduled, feeds = schedule_program(compiled(graph), chosen_cpu()), feeds_of(graph)
    assert_same(run_scheduled(scheduled, native(scheduled), feeds, {}), interpret(graph, feeds))
    stores = [s for f in scheduled.functions for s in statements(f.body) if isinstance(s, Store)]
    assert stores and all(s.value.lanes > 1 for s in stores)
