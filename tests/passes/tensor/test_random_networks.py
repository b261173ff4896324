"""Random networks mean the same after every tensor pass, and as scheduled loops."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given, settings
from kernel_runs import interpreted, native, run_scheduled
from machines import chosen_cpu

from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import Array
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.passes.tensor.inline import InlineStages
from modelcc.passes.tensor.split_blocks import SplitBlocks
from modelcc.targets.cpu.passes.assign_layouts import AssignLayouts
from modelcc.targets.cpu.passes.pack_operands import PackOperands
from modelcc.targets.cpu.schedule import schedule_program
from tests.passes.tensor.networks import networks

PASSES = (
    AssignLayouts(),
    InlineStages(),
    PackOperands(),
    FuseKernels(),
    FuseContractions(8, 512 << 10),
    SplitBlocks(),
)


def feeds_of(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {n: graph.types[n].static_shape() for n in graph.inputs}
    return {n: rng.uniform(-1, 1, shape).astype(np.float32) for n, shape in shapes.items()}


def assert_same(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    """Equal up to rounding, measured by the largest element."""
    assert got.keys() == wanted.keys()
    for name, array in wanted.items():
        assert got[name].shape == array.shape
        largest = max(1.0, float(np.abs(array).max(initial=0)))
        np.testing.assert_allclose(got[name], array, rtol=1e-3, atol=3e-5 * largest)


@settings(max_examples=40)
@given(networks())
def test_tensor_passes_keep_the_meaning(graph: Graph) -> None:
    feeds = feeds_of(graph)
    wanted = interpret(graph, feeds)
    program = lower_graph(graph)
    for step in (lambda p: p, *PASSES):
        program = step(program)
        verify_tensor_program(program)
        assert_same(run_program(program, feeds, {}), wanted)


@settings(max_examples=40)
@given(networks())
def test_scheduled_loops_keep_the_meaning(graph: Graph) -> None:
    feeds = feeds_of(graph)
    wanted = interpret(graph, feeds)
    program = lower_graph(graph)
    for step in PASSES:
        program = step(program)
    scheduled = schedule_program(program, chosen_cpu())
    execute = native(scheduled)
    assert_same(run_scheduled(scheduled, execute, feeds, {}), wanted)
    assert_same(run_scheduled(scheduled, execute, feeds, {}, in_place=True), wanted)


@settings(max_examples=15)
@given(networks())
def test_scheduled_loops_stay_in_their_buffers(graph: Graph) -> None:
    feeds = feeds_of(graph)
    program = lower_graph(graph)
    for step in PASSES:
        program = step(program)
    scheduled = schedule_program(program, chosen_cpu())
    got = run_scheduled(scheduled, interpreted(scheduled), feeds, {})
    assert_same(got, interpret(graph, feeds))
