"""Fused kernels as groups of threads: what their stages mean, and every barrier is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fused_kernels import KERNELS, feeds_of, program_of, sizes_of
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Barrier, Function, Stmt
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import map_blocks, statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.tensor_interpreter import run_program
from modelcc.schedule.group_schedule import (
    GroupAttention,
    GroupProduct,
    GroupReduction,
    GroupRowProduct,
    GroupRows,
    Pointwise,
)
from modelcc.schedule.schedule import Schedule
from modelcc.targets.gpu.schedule import schedule_groups

SMALL = GroupProduct(4, 8, 4, 2, 4)
AHEAD = replace(SMALL, buffers=2)
WIDE = GroupProduct(8, 8, 4, 2, 4, lanes=4, buffers=2)
COPIED = replace(WIDE, buffers=4)
HALVES = GroupReduction(4, 2, lanes=8, warp=4, ahead=2)
OF_ONE = (
    GroupRowProduct(GroupRows(8, 1, kept=5), HALVES),
    GroupRowProduct(GroupRows(8, 1, kept=8, lanes=4, warp=4, ahead=True), HALVES),
    GroupRowProduct(GroupRows(4, 2, lanes=8, warp=4), HALVES),
    GroupRowProduct(GroupRows(2, 4, lanes=2), replace(HALVES, warp=1, ahead=1)),
    GroupRowProduct(GroupRows(16, 1), GroupReduction(8, 2, warp=4, ahead=5)),
    GroupRowProduct(GroupRows(16, 2), GroupReduction(32, 1, warp=16)),
)
FLOATS = GroupReduction(8, 2, lanes=4, warp=8, ahead=2, rows=3)
OF_THREE = (
    GroupRowProduct(GroupRows(4, 4, kept=18, lanes=2), FLOATS),
    GroupRowProduct(GroupRows(4, 4, kept=20, lanes=4, ahead=True), FLOATS),
    GroupRowProduct(GroupRows(8, 4, kept=12, lanes=4, warp=8), replace(FLOATS, results=4)),
    GroupRowProduct(GroupRows(16, 8), replace(FLOATS, threads=32, results=4, ahead=3)),
)
ACROSS = GroupReduction(4, 8, across=True, ahead=3, rows=4)
OF_FOUR = (
    GroupRowProduct(GroupRows(8, 4, warp=8), ACROSS),
    GroupRowProduct(GroupRows(4, 8), ACROSS),
    GroupRowProduct(GroupRows(4, 4, kept=9), replace(ACROSS, results=4, columns=4)),
    GroupRowProduct(GroupRows(2, 4), replace(ACROSS, results=2, ahead=1, rows=1)),
)
RUNS: list[tuple[str, Schedule | None]] = [
    ("product", SMALL),
    ("product", AHEAD),
    ("product", GroupProduct(6, 4, 3, 3, 1)),
    ("product", GroupReduction(4, 3)),
    ("product of rows", SMALL),
    ("product of rows", WIDE),
    ("product of rows", GroupProduct(16, 16, 8, 4, 4, lanes=2)),
    ("halves", AHEAD),
    ("halves", WIDE),
    ("convolution", AHEAD),
    ("convolution", WIDE),
    *((name, COPIED) for name in ("product", "product of rows", "halves", "convolution")),
    ("channels first", COPIED),
    ("channels first", SMALL),
    ("channels first", WIDE),
    ("softmax", GroupRows(4, 2)),
    ("softmax", GroupRows(1, 4)),
    ("norm", GroupRows(4, 2)),
    ("norm", GroupRows(4, 2, kept=3)),
    ("norm", GroupRows(16, 1, kept=1)),
    ("norm", GroupRows(8, 2, kept=2, warp=4)),
    ("norm", GroupRows(4, 2, warp=4)),
    ("rows", GroupRows(8, 2, kept=4, lanes=4, warp=4)),
    ("rows", GroupRows(2, 3, lanes=2, warp=2)),
    ("norm", GroupRows(4, 2, kept=3, warp=4, ahead=True)),
    ("rows", GroupRows(4, 1, kept=8, lanes=8)),
    ("gathered rows", GroupRows(4, 2, kept=8, lanes=8, warp=4)),
    ("gathered rows", GroupRows(4, 2, kept=8, lanes=8, warp=4, ahead=True)),
    ("gathered rows", GroupRows(4, 2, lanes=2, warp=2)),
    *(("norm and product", schedule) for schedule in OF_ONE),
    *(("norm and twins", schedule) for schedule in OF_THREE),
    *(("softmax and product", schedule) for schedule in OF_FOUR),
    ("terms", GroupReduction(4, 3, lanes=4, warp=2)),
    ("terms", GroupReduction(8, 1, lanes=2, warp=8)),
    ("sum", GroupReduction(4, 2, across=True)),
    ("sum", GroupReduction(1, 4)),
    ("sum", Pointwise(4)),
    ("points", Pointwise(4)),
    ("attention", GroupAttention(4, 4, 4, 2)),
    ("attention", GroupAttention(8, 2, 8, 2)),
    ("causal", GroupAttention(2, 3, 3, 2)),
    ("grouped queries", GroupAttention(4, 4, 8, 1)),
    ("positive weights", GroupAttention(4, 4, 8, 1)),
    *((name, None) for name in KERNELS),
]
BY_SCHEDULE = pytest.mark.parametrize(("name", "schedule"), RUNS, ids=str)


@BY_SCHEDULE
def test_groups_do_what_the_stages_say(name: str, schedule: Schedule | None) -> None:
    program, feeds = program_of(name), feeds_of(program_of(name))
    env = sizes_of(program)
    scheduled = schedule_groups(program, schedule)
    assert len(scheduled.functions) == 1, "fused as it was"
    with np.errstate(all="ignore"):
        wanted = run_program(program, feeds, env)
        found = run_scheduled(scheduled, interpreted(scheduled), feeds, env)
    for output in program.outputs:
        np.testing.assert_allclose(found[output], wanted[output], rtol=2e-5, atol=2e-5)


def without_barrier(function: Function, number: int) -> Function:
    """``function`` without one of its barriers."""
    found = 0

    def rewrite(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        nonlocal found
        kept: list[Stmt] = []
        for s in body:
            if isinstance(s, Barrier):
                found += 1
            if not isinstance(s, Barrier) or found - 1 != number:
                kept.append(map_blocks(s, rewrite))
        return tuple(kept)

    return replace(function, body=rewrite(function.body))


@pytest.mark.parametrize(
    ("name", "schedule", "count"),
    [
        ("product", SMALL, 2),
        ("product", AHEAD, 2),
        ("product", COPIED, 1),
        ("sum", GroupReduction(4, 2, across=True), 2),
        ("softmax", GroupRows(4, 2), 6),
        ("softmax", GroupRows(4, 2, warp=2), 2),
        ("softmax", GroupRows(4, 2, warp=4), 0),
        ("terms", GroupReduction(4, 3, lanes=4, warp=2), 1),
        ("norm and product", OF_ONE[1], 2),
        ("norm and product", OF_ONE[2], 1),
        ("norm and product", OF_ONE[4], 5 + 1 + 1),
        ("norm and twins", OF_THREE[2], 1),
        ("softmax and product", OF_FOUR[1], 3 + 3 + 1 + 4 * 2),
        ("attention", GroupAttention(4, 4, 4, 2), 5),
        ("causal", GroupAttention(2, 2, 4, 1), 5),
        ("grouped queries", GroupAttention(4, 4, 8, 1), 5),
        ("positive weights", GroupAttention(4, 4, 8, 1), 3),
    ],
    ids=str,
)
def test_each_barrier_is_needed(name: str, schedule: Schedule, count: int) -> None:
    """A kernel with one of its barriers missing is found to race."""
    program = program_of(name)
    env = dict.fromkeys(program.dims, 12)
    rng = np.random.default_rng(2)
    types = (program.types[n] for n in (*program.inputs, *program.outputs))
    data = [rng.random([evaluate(e, env) for e in t.shape]).astype(t.dtype.numpy) for t in types]
    (function,) = schedule_groups(program, schedule).functions
    assert isinstance(function, Function)
    numbers = [env[n] for n in function.sizes]
    interpret_loops(function, data, numbers)
    assert sum(isinstance(s, Barrier) for s in statements(function.body)) == count
    for number in range(count):
        broken = without_barrier(function, number)
        verify_function(broken)
        with pytest.raises(RaceError):
            interpret_loops(broken, data, numbers)
