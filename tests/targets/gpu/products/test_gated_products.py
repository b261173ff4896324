"""Two products of one operand and what follows both, as one kernel: values, no race, what is
refused, and which schedules are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from cuda_products import kernel_of
from gate_kernels import gate, rounded
from group_products import assert_same_meaning, function_of, program_of, run_in_order

from modelcc.ir.loop_traversal import statements
from modelcc.ir.tiles import CopyTile
from modelcc.schedule.group_schedule import (
    GroupProduct,
    GroupReduction,
    GroupSchedule,
    GroupWindows,
    Pointwise,
    TensorProduct,
)
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.lower import candidates, default_schedule, lower_groups

SIZES = {"m": 19}


MMA = TensorProduct(32, 64, 32, 1, 2, 2)
WGMMA = TensorProduct(64, 128, 64, 1, 1, 2, "wgmma")
TURNED = TensorProduct(16, 128, 64, 1, 2, 2, "wgmma")
KERNELS: Mapping[str, tuple[GroupSchedule, str]] = {
    "mma": (MMA, gate("f16", "70", 96, 72)),
    "mma, odd columns": (MMA, gate("bf16", "40", 80, 67)),
    "mma, two warps of rows": (replace(MMA, rows=64, warp_rows=2), gate("f16", "70", 96, 72)),
    "mma, terms side by side": (MMA, gate("f16", "40", 96, 72, True)),
    "mma, named rows": (MMA, gate("f16", "m, 3", 96, 72)),
    "mma, parts": (replace(MMA, parts=3), gate("f16", "40", 96, 72)),
    "mma, held": (replace(MMA, copies=False, buffers=1), gate("f16", "40", 96, 72)),
    "wgmma": (WGMMA, gate("f16", "70", 136, 72)),
    "wgmma, asks early": (replace(WGMMA, ahead=64), gate("f16", "70", 136, 72)),
    "wgmma, terms side by side": (replace(WGMMA, columns=64), gate("bf16", "70", 136, 72, True)),
    "wgmma, named rows": (WGMMA, gate("f16", "m, 3", 136, 72)),
    "wgmma, parts": (replace(WGMMA, parts=2), gate("bf16", "70", 256, 72)),
    "turned": (TURNED, gate("f16", "19", 136, 72)),
    "turned, terms side by side": (replace(TURNED, rows=8), gate("f16", "19", 136, 72, True)),
    "persistent, rounded sums": (
        replace(WGMMA, groups=2),
        rounded(gate("f16", "140", 264, 72), "f16"),
    ),
    "persistent": (replace(WGMMA, groups=2), gate("f16", "140", 264, 136)),
    "persistent, side by side": (replace(WGMMA, groups=3), gate("bf16", "140", 264, 136, True)),
    "threads": (GroupProduct(16, 16, 8, 4, 4, 2, 2), gate("f32", "30", 20, 36)),
    "threads, odd columns": (GroupProduct(16, 16, 8, 4, 4, 1, 1), gate("f32", "30", 20, 35)),
    "threads, copied": (GroupProduct(16, 16, 8, 4, 4, 2, 4), gate("f32", "30", 20, 36)),
    "threads, parts": (GroupProduct(16, 16, 8, 4, 4, 1, 2, 3), gate("f32", "30", 24, 36)),
    "a row": (GroupReduction(32, 4, lanes=4, warp=32, ahead=2), gate("f32", "1", 264, 36, True)),
    "a row, down": (GroupReduction(8, 4, True, ahead=2, columns=4), gate("f32", "1", 264, 36)),
    "few rows": (
        GroupReduction(32, 2, lanes=8, warp=32, ahead=2, rows=3),
        gate("f16", "3", 264, 36, True),
    ),
    "points": (Pointwise(64), gate("f32", "5", 12, 9)),
}


@pytest.mark.share(3, "name")
@pytest.mark.parametrize("name", KERNELS)
def test_groups_compute_what_the_stages_say(name: str) -> None:
    schedule, kernel = KERNELS[name]
    program = program_of(kernel, SIZES)
    assert function_of(program, schedule)
    assert_same_meaning(program, schedule, SIZES)


def test_what_is_read_twice_is_copied_once() -> None:
    """A block is a box of rows and one of either weight, of half of a tile's columns each."""
    function = function_of(program_of(gate("f16", "140", 264, 136), {}), WGMMA)
    copies = [s for s in statements(function.body) if isinstance(s, CopyTile)]
    boxes = {(copy.source, copy.box) for copy in copies}
    assert boxes == {(name, (64, 64)) for name in ("x0", "x1", "x2")}


@pytest.mark.parametrize("schedule", [WGMMA, MMA, GroupProduct(16, 16, 8, 4, 4, 2, 2)])
def test_an_order_of_groups_changes_no_bit(schedule: GroupSchedule) -> None:
    """Parts of both sums are added in their order by whoever comes last."""
    assert isinstance(schedule, TensorProduct | GroupProduct)
    dtype = "f32" if isinstance(schedule, GroupProduct) else "f16"
    program = program_of(gate(dtype, "9", 192, 24), {})
    function = function_of(program, replace(schedule, parts=3))
    first, *others = (run_in_order(function, order) for order in range(3))
    for found in others:
        for one, other in zip(first, found, strict=True):
            np.testing.assert_array_equal(one, other)


REFUSED: tuple[tuple[GroupSchedule, str], ...] = (
    (replace(MMA, columns=32, warp_columns=2), gate("f16", "40", 96, 72)),
    (replace(WGMMA, columns=64), gate("f16", "70", 136, 72)),
    (replace(TURNED, columns=64, warp_columns=1), gate("f16", "19", 136, 72)),
    (GroupProduct(16, 16, 8, 4, 4, 4, 2), gate("f32", "30", 20, 36)),
    (GroupWindows(32, 2), gate("f32", "30", 20, 36)),
)
"""Tiles whose halves are no whole fragments, boxes or vectors, and strips."""


@pytest.mark.parametrize(("schedule", "kernel"), REFUSED)
def test_halves_are_whole(schedule: GroupSchedule, kernel: str) -> None:
    with pytest.raises(ScheduleError):
        function_of(program_of(kernel, {}), schedule)


CHOSEN: tuple[tuple[str, str, type[GroupSchedule]], ...] = (
    ("sm_80", gate("f16", "512", 1024, 2816), TensorProduct),
    ("sm_90a", gate("f16", "512", 1024, 2816), TensorProduct),
    ("sm_90a", gate("bf16", "16384", 1024, 2816), TensorProduct),
    ("sm_90a", gate("f16", "32", 1024, 2816), TensorProduct),
    ("sm_90a", gate("f32", "512", 1024, 2816), GroupProduct),
    ("sm_90a", gate("f16", "1", 1024, 2816), GroupReduction),
)


@pytest.mark.parametrize(("chip", "kernel", "kind"), CHOSEN)
def test_units_and_threads_have_both(chip: str, kernel: str, kind: type[GroupSchedule]) -> None:
    """All that are candidates fit, and the first of them is of this kind."""
    machine = find_chip(chip).gpu
    own = kernel_of(program_of(kernel, {})).kernel
    found = list(candidates(own, machine))
    assert isinstance(found[0], kind)
    for schedule in found[:4]:
        lower_groups(GroupKernel(own, "k"), schedule)


def test_many_rows_have_several_tiles_a_group() -> None:
    """Sums that are rounded first take half of the memory."""
    text = rounded(gate("bf16", "16384", 1024, 2816), "bf16")
    kernel = kernel_of(program_of(text, {})).kernel
    chosen = default_schedule(kernel, find_chip("sm_90a").gpu)
    assert isinstance(chosen, TensorProduct)
    assert (chosen.instruction, chosen.groups) == ("wgmma", 132)
