"""Row kernels: rows that do not fill their last vector."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runs import host_cpu, interpreted, native, run_scheduled

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.loop_text import print_functions
from modelcc.ir.scheduled import ScheduledProgram
from modelcc.ir.types import F32, TensorType
from modelcc.levels import scheduled_functions
from modelcc.ops.attention import Softmax
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.llvm.emitter import emit_llvm


def softmax_of(length: int) -> ScheduledProgram:
    make = GraphBuilder()
    x = make.input("x", TensorType((5, length), F32))
    graph = make.build([make.emit(Softmax(axis=1), x)])
    return schedule_program(FuseKernels()(lower_graph(graph)), host_cpu())


@pytest.mark.parametrize("length", [15, 16, 17, 33, 49, 50, 61, 65])
def test_softmax_of_any_length(length: int) -> None:
    program = softmax_of(length)
    x = np.random.default_rng(0).standard_normal((5, length)).astype(np.float32)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    for executor in (interpreted, native):
        found = run_scheduled(program, executor(program), {"x": x}, {})
        (result,) = found.values()
        assert np.abs(result - powers / powers.sum(axis=1, keepdims=True)).max() < 1e-6


@pytest.mark.parametrize("length", [49, 50, 61])
def test_no_masked_store_holds_up_the_next_row(length: int) -> None:
    functions = scheduled_functions(softmax_of(length))
    assert "masked.store" not in emit_llvm([expand_math(f) for f in functions])


def test_a_single_element_left_over_is_a_scalar() -> None:
    assert "mask(" not in print_functions(scheduled_functions(softmax_of(49)))
    assert "mask(2)" in print_functions(scheduled_functions(softmax_of(50)))
