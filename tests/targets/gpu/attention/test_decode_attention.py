"""Attention of few rows: in one group each, and in parts of the keys that are put together."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from attention_programs import few_rows
from group_products import without
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import Array
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupDecode
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import PROCESSOR
from modelcc.targets.gpu.passes.split_keys import SplitKeys
from modelcc.targets.gpu.schedule import schedule_groups

SMALL = replace(PROCESSOR, exchanges=True, lanes=4)
CAUSAL = "select(ge(index(j - i - 3):i64, 0), -inf, {} * 0.5)"
MASKED = "{} + %b[j]"


def feeds_of(program: TensorProgram, sizes: dict[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    types = {name: program.types[name] for name in program.inputs}
    shapes = {n: [evaluate(e, sizes) for e in t.shape] for n, t in types.items()}
    return {n: rng.standard_normal(shapes[n]).astype(t.dtype.numpy) for n, t in types.items()}


ONE = few_rows(2, 1, 21, 16, 8)
SCHEDULES = (GroupDecode(8, 1, 1, 4), GroupDecode(16, 2, 4, 8), GroupDecode(8, 3, 2, 4))
CASES = {
    "one row": ONE,
    "causal": few_rows(1, 3, 19, 8, 16, score=CAUSAL),
    "mask": few_rows(1, 5, 16, 12, 12, score=MASKED),
    "halves": few_rows(2, 2, 33, 24, 16, "f16"),
    "more rows than registers": few_rows(1, 11, 9, 8, 32),
}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_few_rows_mean_the_same(case: str, schedule: GroupDecode) -> None:
    program = CASES[case]
    scheduled, feeds = schedule_groups(program, schedule), feeds_of(program, {})
    assert len(scheduled.functions) == 1
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
    wanted = run_program(program, feeds, {})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-3 if found.itemsize < 4 else 2e-5, atol=2e-6)


def test_each_barrier_is_needed() -> None:
    program = few_rows(1, 5, 9, 8, 64)
    (function,) = schedule_groups(program, GroupDecode(8, 2, 2, 4)).functions
    assert isinstance(function, Function)
    data = [*feeds_of(program, {}).values(), np.zeros((1, 5, 64), np.float32)]
    interpret_loops(function, data, [])
    count = sum(isinstance(s, Barrier) for s in statements(function.body))
    assert count == 2 + 2 * 3, "registers hold sums of two rows"
    for number in range(count):
        with pytest.raises(RaceError):
            interpret_loops(without(function, (Barrier,), number), data, [])


def test_first_keys_and_values_are_on_their_way_before_barriers() -> None:
    """Converted behind them: nothing waits before."""
    (function,) = schedule_groups(CASES["halves"], GroupDecode(16, 2, 4, 8)).functions
    text = print_function(function)
    first, second, third = [m.start() for m in re.finditer("barrier", text)][:3]
    assert text.index("load %x1[") < first
    assert text.index("convert[f32](%x1_") > first
    assert first < text.index("load %x2[") < second
    assert text.index("convert[f32](%x2_") > third


@pytest.mark.parametrize(
    ("heads", "keys", "threads", "at_once"),
    [(4, 129, 256, 5), (4, 100, 256, 4), (200, 129, 128, 4)],
)
def test_few_groups_wait_as_seldom_as_they_can(
    heads: int, keys: int, threads: int, at_once: int
) -> None:
    """129 keys of 64 are a step of 32 by 5."""
    gpu = CHIPS["sm_90a"].gpu
    program = few_rows(heads, 2, keys, 64, 64, "f16")
    (item,) = program.items
    assert isinstance(item, Kernel)
    kernel = canonical(item, program.types, frozenset(), program.dims)[0]
    assert default_schedule(kernel, gpu) == GroupDecode(threads, at_once, 8, 32)


def test_groups_at_the_same_time_read_heads_that_lie_side_by_side() -> None:
    """Parts of keys lie further apart than heads in one case, and nearer in the other."""
    text = """program @p(%q: f32[2, 8], %k: f32[{k}, 8], %v: f32[{k}, 8]) -> (%y) dims() {{
      kernel @k(%q: f32[2, 8], %k: f32[{k}, 8], %v: f32[{k}, 8]) -> (%y: f32[3, 2, 8]) {{
        %p: f32[3, 2, 16] = [a < 3, h < 2, j < 16] sum[d < 8] %q[h, d] * %k[{at}, d]
        %t: f32[3, 2] = [a < 3, h < 2] max[j < 16] %p[a, h, j]
        %e: f32[3, 2, 16] = [a < 3, h < 2, j < 16] exp(%p[a, h, j] - %t[a, h])
        %y: f32[3, 2, 8] = [a < 3, h < 2, c < 8] sum[j < 16] %e[a, h, j] * %v[{at}, c] }} }}"""
    for at, order in (("2*j + 32*a + h", ("a", "h")), ("j + 16*a + 48*h", ("h", "a"))):
        program = parse_tensor_program(text.format(k="96", at=at), {})
        scheduled = schedule_groups(program, GroupDecode(8, 2, 4, 4))
        (function,) = scheduled.functions
        bound = re.findall(r"index (\w+) = index\[i64\]\((?:gb0)", print_function(function))
        assert len(bound) == 2
        inner = re.search(r"index \w+ = index\[i64\]\(gb0 mod (\d)\)", print_function(function))
        assert inner is not None
        assert inner[1] == {"a": "3", "h": "2"}[order[1]]
        feeds = feeds_of(program, {})
        found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
        np.testing.assert_allclose(found, run_program(program, feeds, {})["y"], rtol=2e-5)


@pytest.mark.parametrize(
    ("keys", "sizes", "score"),
    [
        (640, {}, "{}"),
        (521, {}, MASKED),
        ("n", {"n": 300}, "{}"),
        (600, {}, CAUSAL),
    ],
    ids=str,
)
def test_parts_of_keys_are_put_together(keys: int | str, sizes: dict[str, int], score: str) -> None:
    """Also where whole parts are masked."""
    program = few_rows(2, 2, keys, 8, 8, score=score)
    split = SplitKeys(SMALL.units)(program)
    verify_tensor_program(split)
    assert len(split.items) == 2
    scheduled, feeds = schedule_groups(split, machine=SMALL), feeds_of(program, sizes)
    assert len(scheduled.functions) == 2, "both are kernels"
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, sizes)["y"]
    wanted = run_program(program, feeds, sizes)["y"]
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_few_keys_stay_together() -> None:
    assert SplitKeys(132)(ONE).items == ONE.items


@pytest.mark.parametrize(
    ("program", "schedule", "message"),
    [
        (ONE, GroupDecode(12, 1, 1, 3), "warps of a power of two"),
        (ONE, GroupDecode(8, 1, 16, 4), "no whole vectors"),
        (few_rows(1, 2, 9, 6, 8), GroupDecode(8, 1, 4, 4), "no whole vectors"),
        (few_rows(1, 17, 9, 8, 8), GroupDecode(8, 1, 4, 4), "of few rows and known keys"),
        (few_rows(1, 2, "n", 8, 8), GroupDecode(8, 1, 4, 4), "of few rows and known keys"),
    ],
)
def test_what_does_not_fit_is_refused(
    program: TensorProgram, schedule: GroupDecode, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_groups(program, schedule)
