"""Products of few rows: weights are read once, side by side, with several vectors on their way."""

from __future__ import annotations

import re

import numpy as np
import pytest
from group_products import feeds_of, program_of, without
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.constant import Constant
from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupReduction, GroupRows
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.schedule import schedule_groups

GPU = CHIPS["sm_90a"].gpu
CONSTANT = """program @p(%x: {t}[{m}, {k}], %r: {t}[{m}, {n}]) -> (%y) dims() {{
  constant %w: {t}[{k}, {n}] = "{w}"
  kernel @MatMul(%x: {t}[{m}, {k}], %w: {t}[{k}, {n}], %r: {t}[{m}, {n}]) -> (%y: {t}[{m}, {n}]) {{
    %s: f32[{m}, {n}] = [i < {m}, o < {n}] sum[c < {k}] {x} * {f}
    %y: {t}[{m}, {n}] = [i < {m}, o < {n}] {s} + %r[i, o] }} }}"""


def residual(
    m: int, k: int, n: int, dtype: str, rng: np.random.Generator
) -> tuple[TensorProgram, dict[str, np.ndarray]]:
    """``x @ w + r`` of a constant ``w``, and its operands."""
    kind = {"f16": np.float16, "f32": np.float32}[dtype]
    wide = "%x[i, c]", "%w[c, o]"
    x, f = wide if dtype == "f32" else (f"f32({part})" for part in wide)
    s = "%s[i, o]" if dtype == "f32" else f"{dtype}(%s[i, o])"
    w = Constant(rng.integers(-4, 5, (k, n)).astype(kind))
    text = CONSTANT.format(t=dtype, m=m, k=k, n=n, w=w.digest, x=x, f=f, s=s)
    feeds = {"x": rng.integers(-4, 5, (m, k)), "r": rng.integers(-4, 5, (m, n))}
    program = parse_tensor_program(text, {w.digest: w})
    return program, {name: value.astype(kind) for name, value in feeds.items()}


@pytest.mark.parametrize("rows", range(1, 8))
@pytest.mark.parametrize(("k", "n", "dtype"), [(1000, 12, "f16"), (72, 33, "f16"), (516, 9, "f32")])
def test_products_are_right_and_no_threads_race(rows: int, k: int, n: int, dtype: str) -> None:
    program, feeds = residual(rows, k, n, dtype, np.random.default_rng(rows))
    scheduled = schedule_groups(program, machine=GPU)
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})
    np.testing.assert_array_equal(found["y"], run_program(program, feeds, {})["y"])


@pytest.mark.parametrize("rows", range(1, 8))
@pytest.mark.parametrize(("k", "n", "dtype"), [(77, 40, "f16"), (90, 600, "f16"), (130, 12, "f32")])
def test_weights_that_come_at_run_time_are_read_by_vectors(
    rows: int, k: int, n: int, dtype: str
) -> None:
    wide = "%x[i, c] * %w[c, j]" if dtype == "f32" else "f32(%x[i, c]) * f32(%w[c, j])"
    program = program_of(
        f"""%x: {dtype}[{rows}, {k}], %w: {dtype}[{k}, {n}]) -> (%y: f32[{rows}, {n}]) {{
          %y: f32[{rows}, {n}] = [i < {rows}, j < {n}] sum[c < {k}] {wide} }}""",
        {},
    )
    scheduled = schedule_groups(program, machine=GPU)
    (function,) = scheduled.functions
    vector = "x4" if dtype == "f32" else "x8"
    assert re.search(rf"load %x1\[.*\] {vector}", print_function(function))
    feeds = feeds_of(program, {})
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})
    np.testing.assert_array_equal(found["y"], run_program(program, feeds, {})["y"])


@pytest.mark.parametrize(("results", "threads"), [(2048, 16), (16, 16), (60_000, 1)])
def test_rows_whose_elements_lie_apart_are_shared_where_threads_would_wait(
    results: int, threads: int
) -> None:
    """64 parts of each result, as those of attention are: no more than a thread waits, until all
    units have threads."""
    program = program_of(
        f"""%x: f32[64, {results}]) -> (%y: f32[{results}]) {{
          %t: f32[{results}] = [i < {results}] max[p < 64] %x[p, i]
          %y: f32[{results}] = [i < {results}] sum[p < 64] exp(%x[p, i] - %t[i]) }}""",
        {},
    )
    (item,) = program.items
    assert isinstance(item, Kernel)
    kernel = canonical(item, program.types, frozenset(), program.dims)[0]
    schedule = default_schedule(kernel, GPU)
    assert isinstance(schedule, GroupRows)
    assert (schedule.threads > 1) == (threads > 1)


def test_each_barrier_between_vectors_is_needed() -> None:
    schedule = GroupReduction(4, 2, True, ahead=2, rows=3, columns=4)
    program = program_of(
        """%x: f32[3, 20], %w: f32[20, 12]) -> (%y: f32[3, 12]) {
          %y: f32[3, 12] = [i < 3, j < 12] sum[c < 20] %x[i, c] * %w[c, j] }""",
        {},
    )
    (function,) = schedule_groups(program, schedule, GPU).functions
    assert isinstance(function, Function)
    feeds = feeds_of(program, {})
    data = [*feeds.values(), np.zeros((3, 12), np.float32)]
    interpret_loops(function, data, [])
    np.testing.assert_array_equal(data[-1], feeds["x"] @ feeds["w"])
    barriers = sum(isinstance(s, Barrier) for s in statements(function.body))
    assert barriers == 3 * 2
    for number in range(barriers):
        with pytest.raises(RaceError):
            interpret_loops(without(function, (Barrier,), number), data, [])


def test_columns_are_whole_vectors() -> None:
    program, _ = residual(1, 64, 12, "f16", np.random.default_rng(0))
    for schedule, message in (
        (GroupReduction(4, 2, True, columns=8), "no whole vectors"),
        (GroupReduction(4, 2, columns=4), "up to eight results"),
    ):
        with pytest.raises(ScheduleError, match=message):
            schedule_groups(program, schedule, GPU)


@pytest.mark.parametrize("rows", [1, 3])
def test_weights_are_read_once_and_ahead(rows: int) -> None:
    """All loads of a step come before its first sum, and each weight's vector is there once."""
    program, _ = residual(rows, 2816, 1024, "f16", np.random.default_rng(0))
    (function,) = schedule_groups(program, machine=GPU).functions
    text = print_function(function)
    loads = [m.start() for m in re.finditer(r"load %x1\[.*\] x8", text)]
    first = text.index("muladd")
    at_once = sum(start < first for start in loads)
    assert at_once >= 2
    assert len(loads) <= text.count("muladd") // rows


def test_rows_are_those_of_the_product() -> None:
    program, _ = residual(3, 64, 16, "f16", np.random.default_rng(0))
    with pytest.raises(ScheduleError, match="all rows"):
        schedule_groups(program, GroupReduction(8, rows=2), GPU)


def test_named_rows_keep_the_weights_as_they_are() -> None:
    """For a weight lies in one way for all of a named number."""
    program = program_of(
        """%x: f16[m, 64], %w: f16[64, 48]) -> (%y: f32[m, 48]) {
          %y: f32[m, 48] = [i < m, j < 48] sum[c < 64] f32(%x[i, c]) * f32(%w[c, j]) }""",
        {"m": 5},
    )
    scheduled = schedule_groups(program, machine=GPU)
    x = np.ones((5, 64), np.float16)
    w = np.random.default_rng(0).integers(-4, 5, (64, 48)).astype(np.float16)
    found = run_scheduled(scheduled, interpreted(scheduled), {"x": x, "w": w}, {"m": 5})
    np.testing.assert_array_equal(found["y"], x.astype(np.float32) @ w.astype(np.float32))
