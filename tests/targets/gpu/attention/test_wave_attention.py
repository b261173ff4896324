"""Attention on fragments of which a thread has a row's sums as operands lie: edges, masks, grouped
queries, and every wait is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from attention_programs import CAUSAL, attention, feeds_of, named_attention
from group_products import without
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.schedule.group_schedule import TensorAttention
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.wave_attention import LAYOUTS, MATRIX
from modelcc.targets.gpu.schedule import schedule_groups

ONE, TWO = TensorAttention(16, 16, MATRIX), TensorAttention(32, 16, MATRIX)

CASES: Mapping[str, tuple[TensorProgram, TensorAttention, float]] = {
    "ragged": (attention(1, 1, 20, 40, 16, 16, "f16", "{}"), TWO, 2e-6),
    "causal in groups": (attention(1, 2, 17, 35, 32, 16, "bf16", CAUSAL), ONE, 4e-5),
    "mask": (attention(1, 1, 16, 33, 16, 32, "f16", "{} * 0.5 + %b[i, j]"), ONE, 2e-6),
    "four fragments of columns": (attention(2, 1, 9, 16, 16, 64, "f16", "{}"), TWO, 2e-6),
    "deep": (attention(1, 1, 20, 40, 128, 32, "bf16", CAUSAL), ONE, 4e-5),
    "halves": (attention(1, 1, 20, 40, 16, 48, "f16", "{}", "f16"), TWO, 2e-3),
}


@pytest.mark.parametrize("family", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_waves_compute_what_the_stages_say(case: str, family: str) -> None:
    """Powers have 22 bits of f16 and 16 of bf16, and 11 and 8 of results in these."""
    program, schedule, error = CASES[case]
    schedule = replace(schedule, instruction=family)
    scheduled, feeds = schedule_groups(program, schedule), feeds_of(program)
    assert len(scheduled.functions) == 1
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
    wanted = run_program(program, feeds, {})["y"]
    np.testing.assert_allclose(
        found.astype(np.float64), wanted.astype(np.float64), rtol=error, atol=error
    )


def test_rows_of_padding_have_the_mean() -> None:
    """Of the least number in the place of all scores all keys have the same weight, though that
    number times log2(e) is infinite."""
    least = np.finfo(np.float32).min
    program = attention(1, 1, 20, 40, 16, 16, "bf16", "{} + %b[i, j]", "bf16")
    feeds = feeds_of(program)
    feeds["b"] = np.zeros_like(feeds["b"])
    feeds["b"][:, 37:] = feeds["b"][[4, 19]] = feeds["b"][5, :30] = least
    scheduled = schedule_groups(program, TWO)
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"].astype(np.float32)
    mean = 2 * feeds["v"][0].astype(np.float32).mean(0)
    np.testing.assert_allclose(found[0, [4, 19], 0], [mean, mean], rtol=1e-2, atol=1e-2)
    q, k, v = (feeds[name].astype(np.float64).reshape(-1, 16) for name in "qkv")
    powers = np.exp(q[5] @ k[30:37].T)
    wanted = 2 * powers @ v[30:37] / powers.sum()
    np.testing.assert_allclose(found[0, 5, 0], wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("keys", [0, 21])
def test_rows_may_have_no_keys(keys: int) -> None:
    program, sizes = named_attention(16, "f16", "{}"), {"n": keys, "r": 5}
    rng = np.random.default_rng(2)
    shapes = {"q": (2, 5, 16), "k": (2, keys, 16), "v": (2, keys, 16)}
    feeds = {n: rng.standard_normal(shape).astype(np.float16) for n, shape in shapes.items()}
    scheduled = schedule_groups(program, ONE)
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, sizes)["y"]
    wanted = run_program(program, feeds, sizes)["y"]
    np.testing.assert_allclose(found, wanted, rtol=4e-3, atol=2e-3)


def test_each_wait_is_needed() -> None:
    """Around the queries, before a block and behind it."""
    program = CASES["ragged"][0]
    (function,) = schedule_groups(program, TWO).functions
    assert isinstance(function, Function)
    data = [*feeds_of(program).values(), np.zeros((1, 20, 1, 16), np.float32)]
    interpret_loops(function, data, [])
    barriers = sum(isinstance(s, Barrier) for s in statements(function.body))
    assert barriers == 4
    for number in range(barriers):
        with pytest.raises(RaceError):
            interpret_loops(without(function, (Barrier,), number), data, [])


@pytest.mark.parametrize(
    ("program", "schedule", "message"),
    [
        (CASES["ragged"][0], TensorAttention(24, 16, MATRIX), "waves have 16 rows"),
        (attention(1, 1, 16, 16, 16, 16, "f32", "{}"), ONE, "multiply f16 and bf16"),
        (attention(1, 1, 16, 16, 24, 16, "f16", "{}"), ONE, "whole fragments of 16"),
        (attention(1, 1, 16, 128, 256, 16, "f16", "{}"), TensorAttention(16, 128, MATRIX),
         "holds its part of a block in registers"),
    ],
)  # fmt: skip
def test_what_waves_cannot_do_is_refused(
    program: TensorProgram, schedule: TensorAttention, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_groups(program, schedule)
