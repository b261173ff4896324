"""Attention on tiles that are copied as boxes: edges, masks, grouped queries, waits and choice."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from attention_programs import attention, feeds_of
from cuda_products import kernel_of
from group_products import without
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import statements, tile_maps
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tiles import WaitArrival, WaitRoutines
from modelcc.schedule.group_schedule import TensorAttention
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.schedule import schedule_groups

ONE, TWO = (TensorAttention(rows, 64, "wgmma") for rows in (64, 128))
WHOLE = attention(1, 1, 16, 128, 16, 16, "f16", "{} * 0.5", "f16")
SEEN = "select(ge(index(i - j + 140):i64, 0), {} * 0.25, -inf)"
"""Rows see two blocks of 64 keys, and some of a third one."""

CASES: Mapping[str, tuple[TensorProgram, TensorAttention, float]] = {
    "causal": (attention(1, 1, 20, 190, 32, 48, "bf16", SEEN, "bf16"), ONE, 1e-2),
    "in groups": (attention(1, 2, 9, 16, 16, 16, "f16", "{}"), ONE, 2e-5),
    "masked": (attention(1, 1, 70, 60, 16, 16, "f16", "{} * 0.5 + %b[i, j]"), TWO, 2e-5),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_warps_compute_what_the_stages_say(case: str) -> None:
    """Results of 16 bits are made of powers of as many, others of 22 bits of f16."""
    program, schedule, error = CASES[case]
    scheduled, feeds = schedule_groups(program, schedule), feeds_of(program)
    assert len(scheduled.functions) == 1
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
    wanted = run_program(program, feeds, {})["y"]
    given = (one.astype(np.float32) for one in (found, wanted))
    np.testing.assert_allclose(*given, rtol=error, atol=error)


def one_function(program: TensorProgram, schedule: TensorAttention) -> Function:
    (function,) = schedule_groups(program, schedule).functions
    assert isinstance(function, Function)
    return function


WAITING = (Barrier, WaitArrival, WaitRoutines)


def test_each_wait_is_needed() -> None:
    """For tiles, for products that go on beside, and for the other warps."""
    function = one_function(WHOLE, ONE)
    feeds = [*feeds_of(WHOLE).values(), np.zeros((1, 16, 1, 16), np.float16)]
    kinds = [type(s) for s in statements(function.body) if isinstance(s, WAITING)]
    before = [WaitArrival, WaitArrival, WaitRoutines, WaitArrival, Barrier]
    loop = [WaitArrival, WaitRoutines, WaitArrival, WaitRoutines, Barrier]
    assert kinds == [*before, *loop, WaitRoutines]
    for number in (1, 2, 6, 8):  # others matter when what is copied is overwritten
        with pytest.raises(RaceError):
            interpret_loops(without(function, WAITING, number), feeds, [])


def test_keys_and_values_are_boxes_of_their_tensors() -> None:
    queries, keys, values = tile_maps(one_function(*CASES["causal"][:2]))
    assert (queries.sizes[-2:], queries.box[-2:]) == ((20, 32), (64, 64))
    assert (keys.sizes[-2:], keys.box[-2:]) == ((190, 32), (64, 64))
    assert (values.sizes[-2:], values.strides[-2:]) == ((190, 48), (48, 1))


LARGE = attention(16, 1, 4096, 4096, 128, 128, "bf16", "{}")
CHOSEN = {
    "large": (LARGE, TensorAttention(128, 128, "wgmma")),
    "few groups": (
        attention(12, 1, 128, 128, 64, 64, "f16", "{}"),
        TensorAttention(64, 128, "wgmma"),
    ),
    "few keys": (
        attention(12, 1, 64, 64, 64, 64, "f16", "{}"),
        TensorAttention(64, 64, "wgmma"),
    ),
    "rows on no boundaries": (attention(96, 1, 512, 512, 64, 64, "f32", "{}"), None),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOSEN)
def test_units_have_something_to_do(case: str) -> None:
    program, wanted = CHOSEN[case]
    found = default_schedule(kernel_of(program).kernel, find_chip("sm_90a").gpu)
    assert found == wanted or (wanted is None and not isinstance(found, TensorAttention))


@pytest.mark.parametrize(
    ("program", "schedule", "message"),
    [
        (
            CASES["causal"][0],
            TensorAttention(32, 64, "wgmma"),
            "four warps have 64 rows",
        ),
        (
            CASES["causal"][0],
            TensorAttention(64, 80, "wgmma"),
            "four warps have 64 rows",
        ),
        (attention(1, 1, 16, 16, 16, 16, "f32", "{}"), ONE, "multiply f16 and bf16"),
        (attention(1, 1, 16, 16, 16, 272, "f16", "{}"), ONE, "four warps have 64 rows"),
    ],
)
def test_what_warps_cannot_multiply_is_refused(
    program: TensorProgram, schedule: TensorAttention, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_groups(program, schedule)


LEAST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize(
    "score", ["{} + %b[i, j]", f"select(ge(%b[i, j], -1.0), {{}}, {LEAST!r})"], ids=["added", "put"]
)
def test_rows_of_padding_have_the_mean(score: str) -> None:
    """Of the least number in the place of all scores all keys have the same weight, though that
    number times log2(e) is infinite."""
    program = attention(1, 1, 70, 72, 16, 16, "bf16", score, "bf16")
    feeds = feeds_of(program)
    feeds["b"] = np.zeros_like(feeds["b"])
    feeds["b"][:, 67:] = feeds["b"][[4, 69]] = feeds["b"][5, :30] = LEAST
    scheduled = schedule_groups(program, ONE)
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"].astype(np.float32)
    mean = 2 * feeds["v"][0].astype(np.float32).mean(0)
    np.testing.assert_allclose(found[0, [4, 69], 0], [mean, mean], rtol=1e-2, atol=1e-2)
    q, k, v = (feeds[name].astype(np.float64).reshape(-1, 16) for name in "qkv")
    powers = np.exp(q[5] @ k[30:67].T)
    wanted = 2 * powers @ v[30:67] / powers.sum()
    np.testing.assert_allclose(found[0, 5, 0], wanted, rtol=2e-2, atol=2e-2)
