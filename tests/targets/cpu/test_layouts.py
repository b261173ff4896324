"""Kernels on blocked channels and zero borders agree with row-major results.

Layouts are forced on the operands and results of every sample with four dimensions, and on
convolutions, pooling and elementwise kernels whose channels do not fill their blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from kernel_runs import interpreted, native, run_scheduled
from machines import chosen_cpu
from op_kernels import FAILURES, assert_close, check, expecting, graph_of

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.op import Op, Sample
from modelcc.ir.tensor import TensorProgram, View
from modelcc.ir.types import F32, Layout, TensorType, blocked, row_major
from modelcc.ops.activation import Relu
from modelcc.ops.arithmetic import Add
from modelcc.ops.conv import Conv
from modelcc.ops.pool import AveragePool, MaxPool
from modelcc.ops.resize import Resize
from modelcc.ops.samples import arrays, sizes
from modelcc.ops.shape import Concat
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.targets.cpu.schedule import schedule_program

BLOCKED = blocked(4, 1, 16)
HALO = ((0, 0), (0, 0), (1, 2), (2, 1))
LAYOUTS: dict[str, Layout | None] = {
    "plain": None,
    "blocked": BLOCKED,
    "bordered": Layout(row_major(4).parts, HALO),
    "blocked and bordered": Layout(BLOCKED.parts, HALO),
}
SAMPLE_PAIRS = [
    ("plain", "blocked"),
    ("blocked", "plain"),
    ("bordered", "blocked"),
    ("blocked", "blocked and bordered"),
]
KERNEL_PAIRS = [
    *SAMPLE_PAIRS,
    ("plain", "bordered"),
    ("blocked and bordered", "blocked and bordered"),
]
"""Layouts of inputs and of everything else."""

CHANNELS = (3, 8, 16, 24, 40)


def laid_out(program: TensorProgram, inputs: str, others: str) -> TensorProgram:
    """The program with layouts for its inputs and for all else that a kernel makes."""
    viewed = {n for i in program.items if isinstance(i, View) for n in (i.input, i.output)}
    types: dict[str, TensorType] = {}
    for name, type_ in program.types.items():
        fixed = type_.rank != 4 or not isinstance(type_.shape[1], int) or 0 in type_.shape
        layout = LAYOUTS[inputs if name in program.inputs else others]
        keep = fixed or name in viewed or name in program.constants
        types[name] = type_ if keep else type_.with_layout(layout)
    return replace(program, types=types)


def four_dimensional(op: Op, sample: Sample) -> bool:
    return any(t is not None and len(t.shape) == 4 for t in sample.operands)


@pytest.mark.share(4, "sample", "pair")
@pytest.mark.parametrize("pair", SAMPLE_PAIRS, ids=" to ".join)
@pytest.mark.parametrize(("op", "sample"), expecting(FAILURES, four_dimensional))
def test_samples(op: Op, sample: Sample, pair: tuple[str, str]) -> None:
    data = arrays(op, sample)
    lowered = lower_graph(graph_of(op, sample, data, constant=True))
    program = schedule_program(laid_out(FuseKernels()(lowered), *pair), chosen_cpu())
    check(op, program, interpreted(program), data, sizes(op, sample))


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize(
    ("op", "sample"),
    expecting(FAILURES, lambda op, sample: isinstance(op, Resize)),
)
def test_channels_that_end_before_a_block_of_several_vectors(
    op: Op, sample: Sample, bits: int
) -> None:
    if not four_dimensional(op, sample):
        return
    data = arrays(op, sample)
    lowered = lower_graph(graph_of(op, sample, data, constant=True))
    machine = replace(chosen_cpu(), vector_bits=bits)
    program = schedule_program(laid_out(FuseKernels()(lowered), "plain", "blocked"), machine)
    check(op, program, interpreted(program), data, sizes(op, sample))


def conv(
    channels: int, outputs: int, kernel: int, pad: int, groups: int = 1
) -> Callable[[], Graph]:
    """relu(conv(x) + r)"""

    def build() -> Graph:
        make, rng = GraphBuilder(), np.random.default_rng(0)
        x = make.input("x", TensorType((1, channels, 6, 9), F32))
        shape = (outputs, channels // groups, kernel, kernel)
        w = make.constant(rng.standard_normal(shape).astype(np.float32))
        b = make.constant(rng.standard_normal(outputs).astype(np.float32))
        pads = (pad, pad)
        y = make.emit(Conv((1, 1), pads, pads, (1, 1), groups), x, w, b)
        r = make.input("r", make.type_of(y))
        return make.build([make.emit(Relu(), make.emit(Add(), y, r))])

    return build


def pool(op: Op, channels: int) -> Callable[[], Graph]:
    def build() -> Graph:
        make = GraphBuilder()
        x = make.input("x", TensorType((2, channels, 6, 9), F32))
        return make.build([make.emit(op, x)])

    return build


def concat(channels: int) -> Callable[[], Graph]:
    def build() -> Graph:
        make = GraphBuilder()
        parts = [
            make.emit(Relu(), make.input(f"x{i}", TensorType((1, c, 3, 5), F32)))
            for i, c in enumerate((16, channels, 8))
        ]
        return make.build([make.emit(Concat(1), *parts)])

    return build


MAX_POOL = MaxPool((3, 3), (2, 2), (1, 1), (1, 1), (1, 1), False)
AVERAGE_POOL = AveragePool((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
KERNELS: dict[str, Callable[[], Graph]] = {
    name: build
    for c in CHANNELS
    for name, build in (
        (f"conv {c} to 24", conv(c, 24, 3, 1)),
        (f"conv 24 to {c}", conv(24, c, 1, 0)),
        (f"conv {c} to {c}", conv(c, c, 5, 2)),
        (f"depthwise {c}", conv(c, c, 3, 1, c)),
        (f"max pool {c}", pool(MAX_POOL, c)),
        (f"average pool {c}", pool(AVERAGE_POOL, c)),
        (f"concat {c}", concat(c)),
    )
}


@pytest.mark.share(6, "name", "pair")
@pytest.mark.parametrize("pair", KERNEL_PAIRS, ids=" to ".join)
@pytest.mark.parametrize("name", KERNELS)
def test_ragged_channels(name: str, pair: tuple[str, str]) -> None:
    graph, rng = KERNELS[name](), np.random.default_rng(1)
    shapes = {n: graph.types[n].static_shape() for n in graph.inputs}
    feeds = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    (wanted,) = interpret(graph, feeds).values()
    program = schedule_program(laid_out(FuseKernels()(lower_graph(graph)), *pair), chosen_cpu())
    for executor in (interpreted, native):
        (got,) = run_scheduled(program, executor(program), feeds, {}).values()
        assert_close(got, wanted)
