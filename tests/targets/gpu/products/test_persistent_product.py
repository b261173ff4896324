"""Groups that have several tiles of a product, and finish those of one while they multiply the
next: values, no race, what is refused, and where they are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from cuda_products import kernel_of, product
from group_products import assert_same_meaning, feeds_of, function_of, program_of, without

from modelcc.ir.index import Index, evaluate, symbols
from modelcc.ir.loop import Alloc, Barrier, BindIndex, Function, IndexOf
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import launch_extents, statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.shared_layout import shared_layout
from modelcc.ir.tiles import CopyTile, WaitArrival, WaitRoutines
from modelcc.ir.types import BF16, F16, F32
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.gpu.lower import candidates, default_schedule, lower_groups
from modelcc.targets.gpu.products.epilogue_staging import kept_type
from modelcc.targets.gpu.products.warpgroup_product import tile_bytes

SIZES = {"m": 19}
ONE = TensorProduct(64, 64, 64, 1, 1, 2, "wgmma")
TWO = TensorProduct(128, 64, 64, 2, 1, 3, "wgmma")
FEW = TensorProduct(32, 64, 64, 1, 1, 2, "wgmma")

PRODUCTS: Mapping[str, tuple[TensorProduct, str]] = {
    "rounded sums": (ONE, """%a: f16[140, 264], %b: f16[264, 72], %c: f16[72])
      -> (%y: f16[140, 72]) {
      %p: f32[140, 72] = [i < 140, j < 72] sum[l < 264] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[140, 72] = [i < 140, j < 72] max(f16(%p[i, j]) + %c[j], 0.0:f16) }"""),
    "a residual, odd columns": (ONE, """%a: bf16[70, 256], %b: bf16[67, 256], %r: bf16[70, 67])
      -> (%y: bf16[70, 67]) {
      %p: f32[70, 67] = [i < 70, j < 67] sum[l < 256] f32(%a[i, l]) * f32(%b[j, l])
      %y: bf16[70, 67] = [i < 70, j < 67] bf16(%p[i, j] + f32(%r[i, j])) }"""),
    "a batch, two results": (TWO, """%a: bf16[3, 130, 320], %b: bf16[3, 72, 320])
      -> (%y: bf16[3, 130, 72], %z: f32[3, 130, 72]) {
      %p: f32[3, 130, 72] = [h < 3, i < 130, j < 72] sum[l < 320]
        f32(%a[h, i, l]) * f32(%b[h, j, l])
      %z: f32[3, 130, 72] = [h < 3, i < 130, j < 72] %p[h, i, j] * 0.5
      %y: bf16[3, 130, 72] = [h < 3, i < 130, j < 72] bf16(%z[h, i, j]) }"""),
    "padded images": (TWO, """%x: bf16[4, 6, 10, 64], %w: bf16[3, 3, 64, 72], %r: bf16[72])
      -> (%y: bf16[4, 6, 10, 72]) {
      %p: f32[4, 6, 10, 72] = [n < 4, h < 6, w < 10, j < 72] sum[c < 64, a < 3, b < 3]
        f32((%x[n, h + a - 1, w + b - 1, c]
          if [h + a >= 1, h + a < 7, w + b >= 1, w + b < 11] else 0.0:bf16)) * f32(%w[a, b, c, j])
      %y: bf16[4, 6, 10, 72] = [n < 4, h < 6, w < 10, j < 72]
        bf16(max(%p[n, h, w, j] + f32(%r[j]), 0.0)) }"""),
    "few rows": (FEW, """%a: f16[40, 328], %b: f16[328, 136], %c: f32[136])
      -> (%y: f16[40, 136]) {
      %p: f32[40, 136] = [i < 40, j < 136] sum[l < 328] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[40, 136] = [i < 40, j < 136] f16(%p[i, j] + %c[j]) }"""),
}  # fmt: skip


@pytest.mark.share(3, "name", "groups")
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("name", PRODUCTS)
def test_groups_compute_what_the_stages_say(name: str, groups: int) -> None:
    """One has all tiles; of two or three some have more than others."""
    schedule, kernel = PRODUCTS[name]
    program = program_of(kernel, SIZES)
    if name != "a residual, odd columns" or groups < 3:
        assert_same_meaning(program, replace(schedule, groups=groups), SIZES)
    (count,), _ = launch_extents(function_of(program, replace(schedule, groups=1)))
    assert count == 1


WAITING = (Barrier, WaitArrival, WaitRoutines)


def test_each_wait_is_needed() -> None:
    """Of a block: for the tiles, for the products before, for the other threads; behind all blocks
    for the last products; and before the results of the last tile."""
    program = program_of(PRODUCTS["rounded sums"][1], SIZES)
    function = function_of(program, replace(ONE, groups=2))
    feeds = [*feeds_of(program, SIZES).values(), np.zeros((140, 72), np.float16)]
    kinds = [type(s) for s in statements(function.body) if isinstance(s, WAITING)]
    assert kinds == [WaitArrival, WaitRoutines, Barrier, WaitRoutines, Barrier]
    for number in range(len(kinds)):
        broken = without(function, WAITING, number)
        verify_function(broken)
        with pytest.raises(RaceError):
            interpret_loops(broken, feeds, [])


def test_sums_are_kept_as_what_they_are_rounded_to() -> None:
    """In 16 bits, if nothing reads all of theirs."""
    names = {"rounded sums": F16, "a residual, odd columns": F32, "few rows": F32}
    for name, kept in names.items():
        schedule, kernel = PRODUCTS[name]
        program = program_of(kernel, SIZES)
        found = kept_type(kernel_of(program).group)
        function = function_of(program, replace(schedule, groups=1))
        slab = next(
            s.buffer
            for s in statements(function.body)
            if isinstance(s, Alloc) and s.buffer.space == "shared"
        )
        assert found == slab.dtype == kept
        layout = shared_layout(function)
        assert not layout.overlaid
        assert layout.size == tile_bytes(replace(schedule, groups=1), kept)


def test_infinite_and_missing_numbers_stay_with_their_results() -> None:
    """Of one tile, though the next one is multiplied meanwhile."""
    program = program_of(PRODUCTS["rounded sums"][1], SIZES)
    feeds = feeds_of(program, SIZES)
    feeds["a"][3, 5], feeds["a"][139, 0], feeds["b"][7, 70] = np.inf, np.nan, np.nan
    arguments = [*feeds.values(), np.zeros((140, 72), np.float16)]
    interpret_loops(function_of(program, replace(ONE, groups=2)), arguments, [])
    with np.errstate(invalid="ignore"):
        sums = feeds["a"].astype(np.float32) @ feeds["b"].astype(np.float32)
    wanted = np.maximum(sums.astype(np.float16) + feeds["c"], np.float16(0))
    met = np.zeros((140, 72), bool)
    met[[3, 139]], met[:, 70] = True, True
    assert np.isfinite(wanted[~met]).all()
    np.testing.assert_array_equal(arguments[-1][~met], wanted[~met])
    assert not np.isfinite(arguments[-1][139]).any()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("rounded sums", {"groups": 7}, "a tile each"),
        ("rounded sums", {"groups": 1, "parts": 5}, "multiply whole ones"),
        ("rounded sums", {"groups": 1, "buffers": 6}, "are fewer than 6"),
        ("few", {"groups": 1}, "too few to finish results by"),
        ("named", {"groups": 1}, "known number"),
        ("bytes", {"groups": 1, "terms": 128}, "of 16 bits"),
    ],
)
def test_what_has_no_such_groups_is_refused(
    name: str, change: Mapping[str, int], message: str
) -> None:
    refused = {
        "few": """%a: f16[72, 128], %b: f16[128, 72]) -> (%y: f32[72, 72]) {
          %p: f32[72, 72] = [i < 72, j < 72] sum[l < 128] f32(%a[i, l]) * f32(%b[l, j])
          %y: f32[72, 72] = [i < 72, j < 72] exp(%p[i, j]) }""",
        "named": """%a: f16[m, 256], %b: f16[256, 72]) -> (%y: f32[m, 72]) {
          %y: f32[m, 72] = [i < m, j < 72] sum[l < 256] f32(%a[i, l]) * f32(%b[l, j]) }""",
        "bytes": """%a: f8e4m3fn[40, 336], %b: f8e4m3fn[72, 336]) -> (%y: f32[40, 72]) {
          %y: f32[40, 72] = [i < 40, j < 72] sum[l < 336] f32(%a[i, l]) * f32(%b[j, l]) }""",
    }
    kernel = refused.get(name) or PRODUCTS[name][1]
    with pytest.raises(ScheduleError, match=message):
        function_of(program_of(kernel, SIZES), replace(ONE, **change))


def test_they_are_chosen_where_units_have_several_tiles() -> None:
    """Not where each has one, and never more groups than there are at once."""
    machine = find_chip("sm_90a").gpu
    several = default_schedule(kernel_of(product(4096, 3072, 768, "bf16")).kernel, machine)
    assert isinstance(several, TensorProduct)
    assert several.groups and several.groups % machine.units == 0
    assert tile_bytes(several, BF16) * (several.groups // machine.units) <= machine.shared_bytes
    for rows, columns in ((4096, 768), (512, 1024)):
        one = default_schedule(kernel_of(product(rows, columns, 768, "bf16")).kernel, machine)
        assert isinstance(one, TensorProduct)
        assert one.groups == 0


@pytest.mark.parametrize(
    ("shape", "groups", "met"),
    [((512, 256), 6, (2, 3)), ((320, 256), 4, (1, 4)), ((448, 64), 2, (2, 1))],
)
def test_groups_at_the_same_time_share_rows_and_columns(
    shape: tuple[int, int], groups: int, met: tuple[int, int]
) -> None:
    """They begin with so many tiles of rows and of columns, of a divisor of all rows' or of one."""
    rows, columns = shape
    kernel = f"""%a: f16[{rows}, 128], %b: f16[128, {columns}]) -> (%y: f16[{rows}, {columns}]) {{
      %p: f32[{rows}, {columns}] = [i < {rows}, j < {columns}] sum[l < 128]
        f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[{rows}, {columns}] = [i < {rows}, j < {columns}] f16(%p[i, j]) }}"""
    program, schedule = program_of(kernel, SIZES), replace(ONE, groups=groups)
    assert_same_meaning(program, schedule, SIZES)
    function = function_of(program, schedule)
    left, right = [s for s in statements(function.body) if isinstance(s, CopyTile)][:2]
    assert _places(function, left.at[0], groups) == met[0]
    assert _places(function, right.at[0], groups) == met[1]


def _places(function: Function, index: Index, groups: int) -> int:
    """How many values an index that is bound has in so many groups."""
    bound = {s.symbol: s.value for s in statements(function.body) if isinstance(s, BindIndex)}

    def value(index: Index, group: int) -> int:
        known = {"g0": group}
        for name in symbols(index) - set(known):
            inner = bound[name]
            assert isinstance(inner, IndexOf)
            known[name] = value(inner.index, group)
        return evaluate(index, known)

    return len({value(index, group) for group in range(groups)})


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("shape", [(4096, 3072, 768), (6300, 765, 1000), (300, 40000, 512)])
def test_all_that_are_considered_can_be_lowered(shape: tuple[int, int, int], dtype: str) -> None:
    machine, kernel = find_chip("sm_90a").gpu, kernel_of(product(*shape, dtype))
    found = [
        s for s in candidates(kernel.kernel, machine) if isinstance(s, TensorProduct) and s.groups
    ]
    assert found or shape[2] % 8 or shape[1] % 8
    for schedule in found:
        lower_groups(kernel, schedule)
