"""Products of few rows that a norm makes, as one kernel: values, races, what is read meanwhile, and
where two kernels are left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from group_products import without
from kernel_runs import interpreted, run_scheduled
from norm_products import NormProduct

from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import Kernel
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import Array
from modelcc.passes.tensor.fuse_row_products import FuseRowProducts
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupReduction, GroupRowProduct, GroupRows
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import GPUS, MI300X, PROCESSOR, GpuModel
from modelcc.targets.gpu.rows.row_product_cost import pays_as_row_product
from modelcc.targets.gpu.schedule import schedule_groups

GPU = CHIPS["sm_90a"].gpu
ERRORS = {"f32": 3e-6, "f16": 2e-3, "bf16": 1.6e-2}
"""Of results, beside what their terms come to without signs: a row that f64 rounds otherwise is off
by as much as its type tells apart."""
CASES = {
    "odd terms": NormProduct("rms", 1, 77, 40),
    "few terms of a thread": NormProduct("rms", 2, 24, 33),
    "vectors": NormProduct("rms", 1, 1000, 12),
    "two rows": NormProduct("layer", 2, 1000, 12),
    "three rows": NormProduct("layer", 3, 516, 9, "f32"),
    "four rows": NormProduct("softmax", 4, 264, 33, "bf16"),
    "odd floats": NormProduct("softmax", 1, 131, 70, "f32"),
    "twins": NormProduct("rms", 1, 520, 30, twins=True),
    "twins of rows": NormProduct("layer", 4, 72, 64, "f32", twins=True),
    "more results than threads": NormProduct("rms", 1, 256, 600),
    "one column": NormProduct("rms", 2, 96, 1),
}


def by_groups(case: NormProduct, feeds: dict[str, Array], machine: GpuModel = GPU) -> Array:
    """The result of the one function of a case, by the interpreter."""
    scheduled = schedule_groups(case.program(), machine=machine)
    assert len(scheduled.functions) == 1
    with np.errstate(all="ignore"):
        return run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]


def assert_close(case: NormProduct, found: Array, feeds: dict[str, Array]) -> None:
    """By what each result's terms come to without their signs."""
    w = np.abs(case.constants[0]).astype(np.float64)
    scale = np.abs(feeds["g"]).max() * w.sum(0) + np.abs(feeds["r"]).astype(np.float64) + 1
    scale = scale * w.sum(0) if case.twins else scale
    assert (np.abs(found - case.wanted(feeds)) <= ERRORS[case.dtype] * scale).all()


@pytest.mark.parametrize("machine", [GPU, MI300X, PROCESSOR], ids=lambda m: m.name)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_are_right_and_no_threads_race(case: NormProduct, machine: GpuModel) -> None:
    """With warps of 32 and of 64, and where threads exchange no registers."""
    (item,) = case.program().items
    assert isinstance(item, Kernel)
    assert_close(case, by_groups(case, case.feeds, machine), case.feeds)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("rows", ["rms", "layer", "softmax"])
def test_rows_are_rounded_as_they_were(rows: str, dtype: str) -> None:
    """Sums of whole numbers are exact in any order, and so is what they come to."""
    case = NormProduct(rows, 2, 64, 40, dtype)
    feeds = {name: np.sign(value) for name, value in case.feeds.items()}
    wanted = run_program(case.program(apart=True), feeds, {})["y"]
    np.testing.assert_allclose(by_groups(case, feeds), wanted, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("rows", ["rms", "layer", "softmax"])
def test_one_element_that_is_no_number_spoils_its_row_only(rows: str, value: float) -> None:
    case = NormProduct(rows, 3, 72, 33, "f32")
    feeds = case.feeds
    feeds["x"][1, 5] = value
    with np.errstate(all="ignore"):
        wanted = run_program(case.program(), feeds, {})["y"]
    found = by_groups(case, feeds)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    assert np.isfinite(found[[0, 2]]).all()
    np.testing.assert_allclose(found[[0, 2]], wanted[[0, 2]], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("words", ["u32[2, 4, 48]", "u32[48, 2, 4]"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_weights_of_few_bits_are_multiplied_by_rows_that_are_made(dtype: str, words: str) -> None:
    """Eight fields of a word, with a scale for each 32 terms, either way."""
    weight = "%w[b, w, j]" if words.endswith("48]") else "%w[j, b, w]"
    field = f"f32(and(shr({weight}, index(4*f):u32), 15:u32)) * %z[b, j]"
    row = "%h[i, 32*b + 8*w + f]"
    text = f"""program @p(%x: f32[2, 64], %w: {words}, %z: f32[2, 48]) -> (%y) dims() {{
      kernel @k(%x: f32[2, 64], %w: {words}, %z: f32[2, 48]) -> (%y: f32[2, 48]) {{
        %s: f32[2] = [i < 2] max[c < 64] abs(%x[i, c])
        %h: {dtype}[2, 64] = [i < 2, c < 64] {dtype}(%x[i, c] + %s[i])
        %y: f32[2, 48] = [i < 2, j < 48] sum[b < 2, w < 4, f < 8] f32({row}) * ({field}) }} }}"""
    if dtype == "f32":
        text = text.replace(f"f32({row})", row).replace("f32(%x", "(%x")
    program, rng = parse_tensor_program(text, {}), np.random.default_rng(0)
    (kernel,) = program.items
    assert isinstance(kernel, Kernel)
    own = canonical(kernel, program.types, frozenset(), program.dims)[0]
    assert isinstance(default_schedule(own, GPU), GroupRowProduct)
    feeds = {
        "x": rng.integers(-4, 5, (2, 64)).astype(np.float32),
        "w": rng.integers(0, 1 << 32, program.types["w"].static_shape(), np.uint32),
        "z": rng.integers(-4, 5, (2, 48)).astype(np.float32),
    }
    scheduled = schedule_groups(program, machine=GPU)
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
    np.testing.assert_array_equal(found, run_program(program, feeds, {})["y"])


def test_each_barrier_is_needed() -> None:
    """Of both reductions, of rows that are made, and of sums of warps."""
    case = NormProduct("layer", 1, 264, 12)
    product = GroupReduction(64, 2, lanes=8, warp=32)
    schedule = GroupRowProduct(GroupRows(128, 1, kept=4, lanes=4, warp=32, ahead=True), product)
    scheduled = schedule_groups(case.program(), schedule, GPU)
    (function,) = scheduled.functions
    assert isinstance(function, Function)
    barriers = sum(isinstance(s, Barrier) for s in statements(function.body))
    assert barriers == 2 + 1 + 1
    for number in range(barriers):
        broken = replace(scheduled, callees=(without(function, (Barrier,), number),))
        with pytest.raises(RaceError):
            run_scheduled(broken, interpreted(broken), case.feeds, {})


@pytest.mark.parametrize(
    "case",
    [
        NormProduct("rms", 1, 1000, 600),
        NormProduct("layer", 1, 520, 600, twins=True),
        NormProduct("softmax", 4, 256, 600, "bf16"),
        NormProduct("rms", 2, 1024, 400, "f32"),
    ],
    ids=str,
)
def test_weights_are_on_their_way_before_rows_are_made(case: NormProduct) -> None:
    """All first ones, and other operands of the norm, before any thread waits for others."""
    (function,) = schedule_groups(case.program(), machine=GPU).functions
    text = print_function(function)
    first = min(text.index(word) for word in ("exchange", "barrier") if word in text)
    sums = text[text.index("for n0 in 0 .. 1") :].partition("}")[0]
    for parameter in function.parameters[2 : 4 if case.twins else 3]:
        weight = f"load %{parameter.buffer.name}["
        there = text[:first].count(weight)
        assert there, "it is read before threads wait for each other"
        assert weight not in sums and sums.count("muladd") == there * case.m * (1 + case.twins)


def test_weights_are_prefetched_and_operands_of_the_norm_are_not() -> None:
    case = NormProduct("rms", 1, 1024, 1536)
    (function,) = schedule_groups(case.program(), machine=GPU).functions
    found = [p.prefetched for p in function.parameters]
    assert found == [0, 0, 2 * 1024 * 1536, 0, 0]


def pays(case: NormProduct, machine: GpuModel = GPU) -> bool:
    program = case.program()
    (kernel,) = program.items
    assert isinstance(kernel, Kernel)
    return pays_as_row_product(kernel, program, machine)


def test_rows_of_a_decoder_are_made_again_and_longer_ones_are_not() -> None:
    assert pays(NormProduct("rms", 1, 1024, 1536))
    assert pays(NormProduct("rms", 1, 1024, 2816, twins=True))
    assert pays(NormProduct("layer", 1, 768, 2304, "f32"))
    assert pays(NormProduct("layer", 4, 768, 3072))
    assert not pays(NormProduct("rms", 1, 4096, 6144)), "each of 384 groups would read 32 KB"
    assert not pays(NormProduct("rms", 1, 1024, 32000)), "16 rounds of groups"
    assert not pays(NormProduct("rms", 5, 1024, 1536)), "many rows"
    assert not pays(NormProduct("rms", 64, 768, 768)), "tiles"
    assert not pays(NormProduct("rms", 1, 1024, 1536), PROCESSOR), "what threads do takes longer"
    assert not pays(NormProduct("rms", 1, 1024, 1536), GPUS["integrated"])


def test_named_sizes_have_no_such_schedule() -> None:
    """There may be many rows, or none, or long ones."""
    text = """program @p(%x: f32[{m}, {k}], %w: f32[{k}, 512]) -> (%y) dims(n in 0:) {{
      kernel @k(%x: f32[{m}, {k}], %w: f32[{k}, 512]) -> (%y: f32[{m}, 512]) {{
        %s: f32[{m}] = [i < {m}] sum[c < {k}] %x[i, c] * %x[i, c]
        %h: f32[{m}, {k}] = [i < {m}, c < {k}] %x[i, c] * rsqrt(%s[i] + 1.0)
        %y: f32[{m}, 512] = [i < {m}, o < 512] sum[c < {k}] %h[i, c] * %w[c, o] }} }}"""
    for m, k in (("n", 64), (1, "n"), (0, 64), (1, 0)):
        program = parse_tensor_program(text.format(m=m, k=k), {})
        (kernel,) = program.items
        assert isinstance(kernel, Kernel)
        assert not pays_as_row_product(kernel, program, GPU)
        if "n" not in (m, k):
            continue
        scheduled = schedule_groups(program, machine=GPU)
        assert len(scheduled.functions) > 1
        for size in (0, 1, 3):
            rows, terms = (size if extent == "n" else int(extent) for extent in (m, k))
            x, w = np.ones((rows, terms), np.float32), np.ones((terms, 512), np.float32)
            feeds, env = {"x": x, "w": w}, {"n": size}
            found = run_scheduled(scheduled, interpreted(scheduled), feeds, env)["y"]
            h = x / np.sqrt((x * x).sum(-1, keepdims=True) + 1)
            np.testing.assert_allclose(found, h @ w, rtol=1e-5)


def test_rows_too_long_for_memory_have_no_schedule() -> None:
    program = NormProduct("rms", 1, 40_000, 16, "f32").program()
    assert len(schedule_groups(program, machine=PROCESSOR).functions) == 5, "one for each stage"


OF_THREE = GroupReduction(32, 4, warp=32, rows=3)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (GroupRowProduct(GroupRows(16, 4), OF_THREE), "other threads"),
        (GroupRowProduct(GroupRows(64, 2), OF_THREE), "all rows"),
        (GroupRowProduct(GroupRows(32, 4, warp=16), OF_THREE), "other threads, or warps"),
        (GroupRowProduct(GroupRows(32, 4, kept=1), OF_THREE), "kept"),
        (GroupRowProduct(GroupRows(32, 4), replace(OF_THREE, rows=2)), "rows of a contraction"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(schedule: GroupRowProduct, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_groups(NormProduct("rms", 3, 64, 16).program(), schedule, GPU)


@pytest.mark.parametrize("k", [64, 1000])
def test_fused_programs_compute_the_same(k: int) -> None:
    """By way of a view, too."""
    for between in ("", f"view %v: f16[1, 2, {k}] = %h"):
        case = NormProduct("rms", 2, k, 48)
        apart = case.program(apart=True, between=between)
        fused = FuseRowProducts()(apart)
        (item,) = fused.items
        assert isinstance(item, Kernel)
        kernel = canonical(item, fused.types, frozenset(fused.constants), fused.dims)[0]
        assert isinstance(default_schedule(kernel, GPU), GroupRowProduct)
        scheduled = schedule_groups(fused, machine=GPU)
        found = run_scheduled(scheduled, interpreted(scheduled), case.feeds, {})["y"]
        assert_close(case, found, case.feeds)
