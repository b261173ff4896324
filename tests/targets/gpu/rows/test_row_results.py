"""Attention whose kernel gives what is made of rows' maximum and sums, too."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from attention_programs import CAUSAL, attention, feeds_of
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.schedule.group_schedule import GroupAttention, GroupSchedule, TensorAttention
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.schedule import schedule_groups

HALVES = attention(1, 2, 20, 40, 16, 32, "f16", CAUSAL, "f16", sums=True)
MASK = "{} * 0.5 + %b[i, j]"
CASES: Mapping[str, tuple[TensorProgram, GroupSchedule, float]] = {
    "threads": (attention(2, 2, 20, 40, 6, 5, "f32", CAUSAL, sums=True),
                GroupAttention(8, 8, 32, 2), 3e-6),
    "copied": (attention(2, 2, 20, 40, 8, 8, "f32", "{} * 0.5", sums=True),
               GroupAttention(16, 16, 32, 4, 4, 32), 3e-6),
    "warps": (HALVES, TensorAttention(16, 32), 2e-3),
    "waves": (HALVES, TensorAttention(32, 16, "mfma"), 2e-3),
    "boxes": (attention(1, 2, 70, 140, 64, 64, "bf16", CAUSAL, "bf16", sums=True),
              TensorAttention(64, 64, "wgmma"), 2e-2),
    "boxes and a mask": (attention(1, 1, 70, 140, 64, 64, "f16", MASK, sums=True),
                         TensorAttention(64, 64, "wgmma"), 5e-6),
}  # fmt: skip


@pytest.mark.share(2, "case")
@pytest.mark.parametrize("case", CASES)
def test_sums_are_results_of_the_same_kernel(case: str) -> None:
    """The logarithms of sums in f32, of however few bits other results are."""
    program, schedule, error = CASES[case]
    scheduled, feeds = schedule_groups(program, schedule), feeds_of(program)
    assert len(scheduled.functions) == 1
    found, wanted = (
        run_scheduled(scheduled, interpreted(scheduled), feeds, {}),
        run_program(program, feeds, {}),
    )
    for name, limit in (("y", error), ("l", 4e-6)):
        pair = found[name].astype(np.float64), wanted[name].astype(np.float64)
        np.testing.assert_allclose(*pair, rtol=limit, atol=limit)


def in_three(rows: int) -> TensorProgram:
    """The stages as fusion leaves them: scores, rows of these, and products with values."""
    whole = attention(1, 1, rows, 40, 6, 5, "f32", CAUSAL, sums=True)
    (kernel,) = whole.items
    assert isinstance(kernel, Kernel)
    parts = kernel.stages[:2], kernel.stages[2:7], kernel.stages[7:]
    ends = (("z",), ("l", "w"), ("y",))
    reads = (("q", "k"), ("z",), ("w", "v"))
    kernels = [
        Kernel(f"k{n}", read, end, stages)
        for n, (read, end, stages) in enumerate(zip(reads, ends, parts, strict=True))
    ]
    return whole.with_items(tuple(kernels))


def test_rows_are_set_aside_while_kernels_are_fused() -> None:
    program = in_three(20)
    (kernel,) = FuseContractions(1, 0, of_rows=True)(program).items
    assert isinstance(kernel, Kernel)
    assert set(kernel.outputs) == {"y", "l"}
    assert FuseContractions(1, 0)(program).items == program.items


def test_few_rows_are_left_apart() -> None:
    """No schedule that has all rows at once has such results."""
    program = in_three(9)
    assert FuseContractions(1, 0, rows=1, of_rows=True)(program).items == program.items


def test_results_of_other_numbers_are_refused() -> None:
    (kernel,) = HALVES.items
    assert isinstance(kernel, Kernel)
    program = HALVES.with_items(
        (Kernel(kernel.name, kernel.inputs, ("y", "t"), kernel.stages[:5] + kernel.stages[6:]),)
    )
    with pytest.raises(ScheduleError, match="made of the maximum and the sums"):
        schedule_groups(program, TensorAttention(16, 32))
