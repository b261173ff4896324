"""Attention of f32 whose operands are copied beside: edges, masks, hostile numbers, and that every
wait is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from attention_programs import CAUSAL, attention, feeds_of, named_attention
from cuda_products import kernel_of
from group_products import program_of, without
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.copies import CopyAsync, WaitCopies
from modelcc.ir.loop import Barrier, For, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import launch_extents, statements
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.types import Array
from modelcc.schedule.group_schedule import GroupAttention
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.gpu.attention.async_copy_attention import copied_bytes
from modelcc.targets.gpu.attention.async_copy_choice import BLOCKS, copied_schedules
from modelcc.targets.gpu.attention.attention_parts import find_attention
from modelcc.targets.gpu.lower import default_schedule, lower_groups
from modelcc.targets.gpu.schedule import schedule_groups
from modelcc.targets.llvm.groups import shared_bytes

WIDE = GroupAttention(16, 8, 16, 8, lanes=4, warp=32)
SCHEDULES = (
    WIDE,
    GroupAttention(8, 16, 16, 4, lanes=4, warp=32),
    GroupAttention(8, 8, 32, 2, lanes=4, warp=32, interleaved=True),
    GroupAttention(8, 16, 32, 4, lanes=4, warp=32, interleaved=True),
    GroupAttention(8, 8, 32, 2, lanes=4, warp=8),
    GroupAttention(4, 4, 2, 2, lanes=2, warp=2),
)
LATER = "select(ge(index(i - j - 3):i64, 0), {} * 0.25, -inf)"
MASK = "{} * 0.5 + %b[i, j]"


def softmax_of(feeds: Mapping[str, Array], seen: int | None, scale: float) -> Array:
    """In f64: rows see keys up to so many behind their own, or all; a row that sees none has no
    weights."""
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = np.einsum("hgid,hjd->hgij", q, k) * scale
    if "b" in feeds:
        scores += feeds["b"]
    if seen is not None:
        rows, keys = np.indices(scores.shape[2:])
        scores = np.where(rows - keys + seen >= 0, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return 2 * np.einsum("hgij,hjc->higc", powers / powers.sum(-1, keepdims=True), v)


CASES: Mapping[str, tuple[TensorProgram, int | None, float]] = {
    "ragged": (attention(1, 1, 20, 37, 16, 32, "f32", "{}"), None, 1.0),
    "causal in groups": (attention(2, 2, 17, 35, 8, 16, "f32", CAUSAL), 18, 0.25),
    "rows that see nothing": (attention(1, 2, 33, 33, 8, 8, "f32", LATER), -3, 0.25),
    "mask": (attention(1, 1, 16, 33, 16, 24, "f32", MASK), None, 0.5),
    "no whole vectors": (attention(1, 1, 9, 10, 6, 7, "f32", "{} * 2.0"), None, 2.0),
    "whole blocks": (attention(1, 1, 16, 32, 8, 32, "f32", "{} * 0.5"), None, 0.5),
}


def result_of(
    program: TensorProgram, schedule: GroupAttention, feeds: Mapping[str, Array]
) -> Array:
    """Of one kernel."""
    scheduled = schedule_groups(program, schedule)
    assert len(scheduled.functions) == 1
    with np.errstate(all="ignore"):
        return run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_threads_compute_what_numpy_does(case: str, schedule: GroupAttention) -> None:
    program, seen, scale = CASES[case]
    feeds = feeds_of(program)
    with np.errstate(invalid="ignore"):
        wanted = softmax_of(feeds, seen, scale)
    assert np.isnan(wanted).any() == (case == "rows that see nothing")
    found = result_of(program, schedule, feeds)
    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize(
    ("keys", "values"), [("h, d, j", "h, j, c"), ("h, j, d", "h, c, j"), ("h, d, j", "h, c, j")]
)
def test_operands_may_lie_either_way(keys: str, values: str) -> None:
    """Those whose neighbours in memory are not neighbours of a tile are copied one by one."""
    extents = {"h": 2, "j": 21, "d": 8, "c": 12}

    def shape(names: str) -> str:
        return ", ".join(str(extents[name]) for name in names.split(", "))

    program = program_of(
        f"""%q: f32[2, 19, 8], %k: f32[{shape(keys)}], %v: f32[{shape(values)}])
          -> (%y: f32[2, 19, 12]) {{
          %p: f32[2, 19, 21] = [h < 2, i < 19, j < 21] sum[d < 8] %q[h, i, d] * %k[{keys}]
          %t: f32[2, 19] = [h < 2, i < 19] max[j < 21] %p[h, i, j]
          %e: f32[2, 19, 21] = [h < 2, i < 19, j < 21] exp(%p[h, i, j] - %t[h, i])
          %s: f32[2, 19] = [h < 2, i < 19] sum[j < 21] %e[h, i, j]
          %w: f32[2, 19, 21] = [h < 2, i < 19, j < 21] %e[h, i, j] / %s[h, i]
          %y: f32[2, 19, 12] = [h < 2, i < 19, c < 12] sum[j < 21] %w[h, i, j] * %v[{values}] }}""",
        {},
    )
    (function,) = schedule_groups(program, WIDE).functions
    assert isinstance(function, Function)
    assert len({s.to for s in statements(function.body) if isinstance(s, CopyAsync)}) == 3
    feeds = feeds_of(program)
    k = np.einsum(f"{keys.replace(', ', '')}->hjd", feeds["k"])
    v = np.einsum(f"{values.replace(', ', '')}->hjc", feeds["v"])
    wanted = softmax_of({"q": feeds["q"][:, None], "k": k, "v": v}, None, 1.0)[:, :, 0] / 2
    np.testing.assert_allclose(result_of(program, WIDE, feeds), wanted, rtol=3e-6, atol=3e-6)


def test_what_is_computed_on_the_way_passes_through_registers() -> None:
    """Keys with a bias of each term."""
    program = program_of(
        """%q: f32[13, 8], %k: f32[21, 8], %v: f32[21, 8], %c: f32[8]) -> (%y: f32[13, 8]) {
          %p: f32[13, 21] = [i < 13, j < 21] sum[d < 8] %q[i, d] * (%k[j, d] + %c[d])
          %t: f32[13] = [i < 13] max[j < 21] %p[i, j]
          %e: f32[13, 21] = [i < 13, j < 21] exp(%p[i, j] - %t[i])
          %s: f32[13] = [i < 13] sum[j < 21] %e[i, j]
          %w: f32[13, 21] = [i < 13, j < 21] %e[i, j] / %s[i]
          %y: f32[13, 8] = [i < 13, e < 8] sum[j < 21] %w[i, j] * %v[j, e] }""",
        {},
    )
    feeds = feeds_of(program)
    one = {"q": feeds["q"][None, None], "k": (feeds["k"] + feeds["c"])[None], "v": feeds["v"][None]}
    wanted = softmax_of(one, None, 1.0)[0, :, 0] / 2
    np.testing.assert_allclose(result_of(program, WIDE, feeds), wanted, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_numbers_that_are_none_stay_in_their_rows(schedule: GroupAttention) -> None:
    """A query that is NaN or infinite, and a value that is, of the last key."""
    program, _, scale = CASES["ragged"]
    feeds = feeds_of(program)
    feeds["q"][0, 0, 3] = np.nan
    feeds["q"][0, 0, 9, 0] = np.inf
    with np.errstate(invalid="ignore"):
        wanted = softmax_of(feeds, None, scale)
    assert np.isnan(wanted).sum() == 2 * 32
    np.testing.assert_allclose(result_of(program, schedule, feeds), wanted, rtol=3e-6, atol=3e-6)
    feeds = feeds_of(program)
    feeds["v"][0, 36, 5] = np.nan
    wanted = softmax_of(feeds, None, scale)
    np.testing.assert_allclose(result_of(program, schedule, feeds), wanted, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min])
def test_rows_of_padding_are_what_their_scores_say(low: float) -> None:
    """Of the least number all keys have the same weight, also where scores times log2(e) would
    overflow; of minus infinity there is none."""
    program = attention(1, 1, 16, 33, 16, 24, "f32", "{} + %b[i, j]")
    feeds = feeds_of(program)
    feeds["b"][:, 7:] = low
    feeds["b"][4] = low
    feeds["b"][5, :30] = low
    with np.errstate(all="ignore"):
        wanted = softmax_of(feeds, None, 1.0)
    if np.isfinite(low):
        mean = feeds["v"][0].astype(np.float64).mean(0)
        wanted[0, 4, 0] = 2 * mean
    np.testing.assert_allclose(result_of(program, WIDE, feeds), wanted, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("size", [1e3, 1e12])
def test_large_scores_leave_the_largest(size: float) -> None:
    """Scores are whole numbers, exact in f32."""
    program = attention(1, 1, 20, 37, 16, 32, "f32", "{} * 2.0")
    rng = np.random.default_rng(3)
    feeds = {
        n: rng.integers(-3, 4, a.shape).astype(np.float32) for n, a in feeds_of(program).items()
    }
    feeds["q"] *= np.float32(2.0 ** np.round(np.log2(size)))
    wanted = softmax_of(feeds, None, 2.0)
    np.testing.assert_allclose(result_of(program, WIDE, feeds), wanted, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize(
    "sizes", [{"n": 0, "r": 20}, {"n": 70, "r": 66}, {"n": 1, "r": 1}], ids=str
)
@pytest.mark.parametrize("score", ["{} * 0.25", LATER, MASK])
def test_any_number_of_keys(sizes: dict[str, int], score: str) -> None:
    """Also none, of which results are 0."""
    program = named_attention(16, "f32", score)
    scheduled = schedule_groups(program, WIDE)
    rng = np.random.default_rng(0)
    n, r = sizes["n"], sizes["r"]
    shapes = {"q": (2, r, 16), "k": (2, n, 16), "v": (2, n, 16), "b": (r, n)}
    feeds = {m: rng.standard_normal(shapes[m]).astype(np.float32) for m in program.inputs}
    with np.errstate(all="ignore"):
        found = run_scheduled(scheduled, interpreted(scheduled), feeds, sizes)["y"]
    if not n:
        np.testing.assert_array_equal(found, 0)
        return
    given = {**feeds, "q": feeds["q"][:, None]}
    with np.errstate(invalid="ignore"):
        scale = 0.5 if score == MASK else 0.25
        wanted = softmax_of(given, -3 if score == LATER else None, scale)[:, :, 0] / 2
    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("case", ["ragged", "causal in groups"])
def test_each_wait_is_needed(case: str) -> None:
    """For other threads, or for what is being copied; blocks that need no mask have their own."""
    program = CASES[case][0]
    (function,) = schedule_groups(program, WIDE).functions
    assert isinstance(function, Function)
    (name,) = program.outputs
    types = [program.types[n] for n in (*program.inputs, name)]
    data = [np.zeros(t.static_shape(), np.float32) for t in types]
    kinds = (Barrier, WaitCopies)
    waits = [type(s) for s in statements(function.body) if isinstance(s, kinds)]
    assert waits == [WaitCopies, Barrier] * 4
    interpret_loops(function, data, [])
    for number in range(len(waits)):
        with pytest.raises(RaceError):
            interpret_loops(without(function, kinds, number), data, [])


def test_only_the_last_blocks_are_masked() -> None:
    """And the longest rows begin first."""
    for case in ("ragged", "causal in groups"):
        (function,) = schedule_groups(CASES[case][0], WIDE).functions
        assert isinstance(function, Function)
        loops = [
            s for s in statements(function.body) if isinstance(s, For) and s.variable[:2] == "kb"
        ]
        open_blocks, masked = (
            print_function(Function("f", (), (), loop.body)).split("for j")[0] for loop in loops
        )
        assert "-inf" in masked.replace("const", "")
        assert open_blocks.count("select") < masked.count("select")
    assert launch_extents(function)[0] == (4, 2), "heads go together"
    whole = schedule_groups(CASES["whole blocks"][0], WIDE).functions[0]
    assert isinstance(whole, Function)
    assert sum(isinstance(s, WaitCopies) for s in statements(whole.body)) == 2


@pytest.mark.parametrize("width", [16, 80, 128])
@pytest.mark.parametrize("blocks", BLOCKS[::3], ids=str)
def test_blocks_take_the_shared_memory_that_is_planned(blocks: GroupAttention, width: int) -> None:
    kernel = kernel_of(attention(1, 1, 256, 256, 30, width, "f32", "{}"))
    planned = copied_bytes(blocks, find_attention(kernel))
    taken = shared_bytes(lower_groups(kernel, blocks))
    assert 0.9 * planned <= taken <= planned


@pytest.mark.parametrize("heads", [1, 16, 512])
def test_all_units_have_some(heads: int) -> None:
    """Large blocks only where there are enough; none where machines do not copy, or of f16."""
    chip = CHIPS["sm_90a"].gpu
    program = attention(heads, 1, 512, 512, 64, 64, "f32", "{}")
    kernel = kernel_of(program).kernel
    chosen = default_schedule(kernel, chip)
    assert isinstance(chosen, GroupAttention)
    assert chosen.lanes == 4
    assert chosen.rows == {1: 16, 16: 32, 512: 128}[heads]
    plain = default_schedule(kernel, replace(chip, copies=False))
    assert isinstance(plain, GroupAttention)
    assert plain.lanes == 1
    halves = find_attention(kernel_of(attention(1, 1, 64, 64, 24, 24, "f16", "{}")))
    assert not list(copied_schedules(halves, chip))


@pytest.mark.parametrize(
    ("program", "schedule", "message"),
    [
        (attention(1, 1, 16, 16, 16, 16, "f16", "{}"), WIDE, "operands that are copied are f32"),
        (CASES["ragged"][0], GroupAttention(16, 6, 12, 8, 4, 32), "exchange registers"),
        (CASES["ragged"][0], GroupAttention(16, 8, 16, 8, 4, 4), "exchange registers"),
        (CASES["ragged"][0], GroupAttention(16, 10, 4, 8, 4, 32), "whole vectors"),
        (CASES["ragged"][0], GroupAttention(16, 8, 16, 8, 4, 32, True), "squares of two by two"),
    ],
)
def test_what_does_not_fit_is_refused(
    program: TensorProgram, schedule: GroupAttention, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_groups(program, schedule)
