"""Attention of few rows by many keys: each thread copies keys and values for itself, and the last
group of a batch puts all parts together."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from attention_programs import few_rows
from group_products import feeds_of as whole_numbers
from group_products import program_of, run_in_order, without
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.copies import WaitCopies
from modelcc.ir.index import evaluate
from modelcc.ir.loop import Arrive, Barrier, Function, Stmt
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import map_blocks, statements
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.types import Array
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import FlashDecoding, GroupSchedule
from modelcc.schedule.schedule import ScheduleError
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.passes.split_keys import SplitKeys
from modelcc.targets.gpu.schedule import schedule_groups

CAUSAL = "select(ge(index(j - i - 3):i64, 0), -inf, {} * 0.5)"
NOTHING = "select(ge(index(i - 1):i64, 0), -inf, {} * 0.5)"
MASKED = "{} + %b[j]"
GPU = CHIPS["sm_90a"].gpu

SCHEDULES = (
    FlashDecoding(8, 1, 1, 4),
    FlashDecoding(16, 2, 4, 4, 3, 2),
    FlashDecoding(8, 3, 2, 4, 2, 3),
    FlashDecoding(8, 2, 4, 2, 4, 5),
)
CASES = {
    "one row": few_rows(2, 1, 21, 8, 8),
    "causal": few_rows(1, 3, 29, 8, 8, score=CAUSAL),
    "rows that see nothing": few_rows(1, 2, 19, 8, 8, score=NOTHING),
    "mask": few_rows(1, 2, 16, 12, 12, score=MASKED),
    "halves": few_rows(2, 2, 33, 16, 16, "f16"),
    "bf16": few_rows(2, 1, 40, 16, 16, "bf16"),
    "odd sizes": few_rows(1, 1, 37, 20, 20),
}
TOLERANCE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}


def feeds_of(program: TensorProgram, sizes: dict[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    types = {name: program.types[name] for name in program.inputs}
    shapes = {n: [evaluate(e, sizes) for e in t.shape] for n, t in types.items()}
    return {n: rng.standard_normal(shapes[n]).astype(t.dtype.numpy) for n, t in types.items()}


def agrees(program: TensorProgram, schedule: GroupSchedule, sizes: dict[str, int]) -> None:
    """One kernel computes what the tensor level says, with no races and no copy unwaited for."""
    scheduled, feeds = schedule_groups(program, schedule), feeds_of(program, sizes)
    assert sum("clear" not in f.name for f in scheduled.functions) == 1
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, sizes)["y"]
    wanted = run_program(program, feeds, sizes)["y"]
    tolerance = TOLERANCE[str(wanted.dtype)]
    given = (one.astype(np.float32) for one in (found, wanted))
    np.testing.assert_allclose(*given, rtol=tolerance, atol=tolerance / 10)


def taken(program: TensorProgram) -> Function:
    function = next(f for f in schedule_groups(program, SCHEDULES[2]).functions if "k0" in f.name)
    assert isinstance(function, Function)
    return function


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_one_kernel_means_the_same(case: str, schedule: FlashDecoding) -> None:
    if schedule.lanes == 1 and case in ("halves", "bf16"):
        return  # of two bytes is no copy
    agrees(CASES[case], schedule, {})


def test_it_is_what_numpy_computes_in_f64() -> None:
    program = few_rows(2, 3, 77, 16, 16, score="{} * 0.25")
    feeds = feeds_of(program, {})
    q, k, v = (feeds[name].astype(np.float64) for name in ("q", "k", "v"))
    powers = np.exp(q @ k.swapaxes(1, 2) * 0.25)
    wanted = powers / powers.sum(-1, keepdims=True) @ v
    for schedule in SCHEDULES:
        scheduled = schedule_groups(program, schedule)
        found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("padded", [17, 40])
def test_padding_by_the_least_number_weighs_nothing(padded: int, dtype: str) -> None:
    """Also of whole parts, which have no other keys; if all are padding they weigh the same."""
    program = few_rows(1, 2, 40, 16, 16, dtype, score=MASKED)
    feeds = feeds_of(program, {})
    feeds["b"] = np.zeros_like(feeds["b"])
    feeds["b"][:padded] = np.finfo(np.float32).min
    q, k, v = (feeds[name].astype(np.float64) for name in ("q", "k", "v"))
    powers = np.exp(q @ k.swapaxes(1, 2)) if padded < 40 else np.ones((1, 2, 40))
    powers[..., : padded % 40] = 0
    wanted = powers / powers.sum(-1, keepdims=True) @ v
    for schedule in SCHEDULES[1:]:
        scheduled = schedule_groups(program, schedule)
        found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
        np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("keys", [0, 1, 9, 50])
@pytest.mark.parametrize("score", ["{}", CAUSAL])
def test_keys_may_have_a_name(keys: int, score: str) -> None:
    """Parts have as many as there are, and some of them none."""
    program = few_rows(2, 2, "n", 8, 8, score=score)
    for schedule in SCHEDULES:
        agrees(program, schedule, {"n": keys})


def test_bytes_are_scaled_where_they_are_used() -> None:
    text = """%q: f32[2, 1, 16], %k: i8[2, 37, 16], %v: i8[2, 37, 16], %s: f32[2])
      -> (%y: f32[2, 1, 16]) {
      %p: f32[2, 1, 37] = [h < 2, i < 1, j < 37] sum[d < 16]
        %q[h, i, d] * (f32(%k[h, j, d]) * %s[h])
      %t: f32[2, 1] = [h < 2, i < 1] max[j < 37] %p[h, i, j]
      %e: f32[2, 1, 37] = [h < 2, i < 1, j < 37] exp(%p[h, i, j] - %t[h, i])
      %z: f32[2, 1] = [h < 2, i < 1] sum[j < 37] %e[h, i, j]
      %w: f32[2, 1, 37] = [h < 2, i < 1, j < 37] %e[h, i, j] / %z[h, i]
      %y: f32[2, 1, 16] = [h < 2, i < 1, c < 16] sum[j < 37]
        %w[h, i, j] * (f32(%v[h, j, c]) * %s[h]) }"""
    program = program_of(text, {})
    scheduled = schedule_groups(program, FlashDecoding(8, 2, 8, 2, 2, 3))
    feeds = {name: array // 2 for name, array in whole_numbers(program, {}).items()}
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
    np.testing.assert_allclose(found, run_program(program, feeds, {})["y"], rtol=2e-5, atol=1e-6)


def test_bits_are_the_same_in_any_order_of_groups() -> None:
    function = taken(CASES["one row"])
    expected, *_, counters = run_in_order(function, 0)
    assert np.isfinite(expected).all()
    assert not counters.any()
    for order in range(1, 4):
        found, *_, counters = run_in_order(function, order)
        assert found.tobytes() == expected.tobytes()
        assert not counters.any()


def test_what_orders_threads_is_needed() -> None:
    """The wait of a step, and barriers."""
    function = taken(CASES["one row"])
    inside = statements(function.body)
    assert sum(isinstance(s, WaitCopies) for s in inside) == 1
    with pytest.raises(RaceError):
        run_in_order(without(function, (WaitCopies,), 0), 0)
    count = sum(isinstance(s, Barrier) for s in inside)
    assert count == 4, "slots of a group, and of the last one"
    for number in range(count):
        with pytest.raises(RaceError):
            run_in_order(without(function, (Barrier,), number), 0)


def test_a_group_that_does_not_wait_for_the_last_one_is_found() -> None:
    function = taken(CASES["one row"])

    def alone(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        found: list[Stmt] = []
        for s in body:
            found += (Barrier(), *s.body) if isinstance(s, Arrive) else (map_blocks(s, alone),)
        return tuple(found)

    with pytest.raises(RaceError, match="nothing orders groups"):
        run_in_order(replace(function, body=alone(function.body)), 0)


def test_a_step_is_requested_before_the_one_before_it_is_used() -> None:
    text = print_function(taken(CASES["one row"]))
    loop = text[text.index(" for k0 ") :]
    places = [loop.index(word) for word in ("wait 0", "copy %keys0", "copy %values0", "commit")]
    assert places == sorted(places)
    assert places[-1] < loop.index("load %keys0") < loop.index("exchange")
    assert "barrier" not in loop[: loop.index("store %tops0")]


def choice_of(program: TensorProgram) -> GroupSchedule:
    (item,) = program.items
    assert isinstance(item, Kernel)
    return default_schedule(canonical(item, program.types, frozenset(), program.dims)[0], GPU)


@pytest.mark.parametrize(
    ("heads", "rows", "keys", "parts"),
    [
        (16, 1, 16384, 24),  # 384 groups of 11 or 10 steps; 396 are on units at once
        (16, 1, 640, 10),
        (8, 4, 4096, 32),  # two groups of a unit
        (1024, 1, 4096, 1),
        (16, 1, "n", 24),
    ],
)
def test_all_groups_are_on_units_at_once(
    heads: int, rows: int, keys: int | str, parts: int
) -> None:
    program = few_rows(heads, rows, keys, 128, 128, "f16")
    assert choice_of(program) == FlashDecoding(256, 4, 8, 32, 2, parts)
    assert SplitKeys(GPU.units, GPU)(program).items == program.items
    other = replace(GPU, arrivals=False)
    split = SplitKeys(GPU.units, other)(program)
    assert (split.items == program.items) == (heads > GPU.units)


@pytest.mark.parametrize(("rows", "keys"), [(1, 512), (8, 4096)])
def test_few_keys_and_more_rows_are_as_before(rows: int, keys: int) -> None:
    program = few_rows(16, rows, keys, 128, 128, "f16")
    split = SplitKeys(GPU.units, GPU)(program)
    assert len(split.items) == (2 if keys > 512 else 1)
    scheduled = schedule_groups(split, machine=GPU)
    assert not any(isinstance(s, Arrive) for f in scheduled.functions for s in statements(f.body))


def test_the_text_of_a_schedule_has_its_parts() -> None:
    text = print_schedule(SCHEDULES[2])
    assert re.search(r"flash_decoding\(.*parts=3", text)
    assert parse_schedule(text) == SCHEDULES[2]


@pytest.mark.parametrize(
    ("program", "schedule", "message"),
    [
        (CASES["one row"], FlashDecoding(12, 1, 1, 3), "warps of a power of two"),
        (CASES["one row"], FlashDecoding(8, 1, 1, 4, 1), "two buffers at least"),
        (CASES["one row"], FlashDecoding(8, 1, 16, 4), "no whole vectors"),
        (CASES["halves"], FlashDecoding(8, 1, 1, 4), "copied by 4, 8 or 16 bytes"),
        (few_rows(1, 1, 9, 8, 16), FlashDecoding(16, 1, 4, 8), "as many lanes read a key"),
        (few_rows(1, 9, 9, 8, 8), FlashDecoding(8, 1, 4, 2), "totals of few rows"),
    ],
)
def test_what_does_not_fit_is_refused(
    program: TensorProgram, schedule: FlashDecoding, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_groups(program, schedule)
