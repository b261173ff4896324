"""Attention on a warp's fragments: edges, masks, grouped queries, and every wait is needed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from attention_programs import CAUSAL, attention, feeds_of
from group_products import without
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.copies import WaitCopies
from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.schedule.group_schedule import TensorAttention
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.schedule import schedule_groups

ONE, TWO = TensorAttention(16, 16), TensorAttention(32, 16)


CASES: Mapping[str, tuple[TensorProgram, TensorAttention, float]] = {
    "ragged": (attention(1, 1, 20, 40, 16, 16, "f16", "{}"), TWO, 2e-6),
    "causal in groups": (attention(1, 2, 17, 35, 32, 16, "bf16", CAUSAL), ONE, 4e-5),
    "mask": (attention(1, 1, 16, 33, 16, 32, "f16", "{} * 0.5 + %b[i, j]"), ONE, 2e-6),
}


@pytest.mark.parametrize("case", CASES)
def test_warps_compute_what_the_stages_say(case: str) -> None:
    """Powers have 22 bits of f16 and 16 of bf16."""
    program, schedule, error = CASES[case]
    scheduled, feeds = schedule_groups(program, schedule), feeds_of(program)
    assert len(scheduled.functions) == 1
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
    wanted = run_program(program, feeds, {})["y"]
    np.testing.assert_allclose(found, wanted, rtol=error, atol=error)


def test_each_wait_is_needed() -> None:
    """For other threads, or for what is being copied."""
    program = CASES["ragged"][0]
    (function,) = schedule_groups(program, TWO).functions
    assert isinstance(function, Function)
    data = [*feeds_of(program).values(), np.zeros((1, 20, 1, 16), np.float32)]
    kinds = (Barrier, WaitCopies)
    waits = [type(s) for s in statements(function.body) if isinstance(s, kinds)]
    assert waits == [WaitCopies, Barrier, WaitCopies, *[Barrier] * 4]
    for number in range(len(waits)):
        with pytest.raises(RaceError):
            interpret_loops(without(function, kinds, number), data, [])


@pytest.mark.parametrize(
    ("program", "schedule", "message"),
    [
        (CASES["ragged"][0], TensorAttention(24, 16), "warps have 16 rows"),
        (attention(1, 1, 16, 16, 16, 16, "f32", "{}"), ONE, "multiply f16 and bf16"),
        (attention(1, 1, 16, 16, 24, 16, "f16", "{}"), ONE, "whole fragments of 16"),
    ],
)
def test_what_warps_cannot_multiply_is_refused(
    program: TensorProgram, schedule: TensorAttention, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_groups(program, schedule)
