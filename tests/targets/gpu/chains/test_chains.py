"""Gradients of attention: sums of rows of tiles that products make, in threads and on matrix units;
edges, masks, heads in groups, and every wait is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from attention_programs import feeds_of as numbers_of
from chain_programs import gradients
from cuda_products import kernel_of
from group_products import without
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.copies import WaitCopies
from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.types import Array
from modelcc.schedule.group_schedule import GroupChain, GroupSchedule, TensorChain
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.gpu.chains.chain_choice import chain_schedules
from modelcc.targets.gpu.machine import GPUS, PROCESSOR
from modelcc.targets.gpu.schedule import schedule_groups

FEW, MORE = GroupChain(16, 8, 32, 2), GroupChain(8, 16, 32, 1)
VECTORS, COPIED = GroupChain(16, 16, 32, 4, 4), GroupChain(16, 16, 32, 4, 4, True)
WARP, WARPS = TensorChain(16, 16), TensorChain(32, 32)

SHAPES: Mapping[str, tuple[tuple[Any, ...], Mapping[str, Any], GroupSchedule, float]] = {
    "odd sizes": ((2, 20, 37, 5, 7, "f32"), {}, FEW, 3e-6),
    "causal": ((2, 20, 37, 8, 6, "f32"), {"offset": 3}, MORE, 3e-6),
    "rows see nothing": ((1, 37, 20, 8, 6, "f32"), {"offset": -4, "mask": True}, FEW, 3e-6),
    "vectors": ((2, 20, 37, 8, 12, "f32"), {}, VECTORS, 3e-6),
    "vectors, causal": ((2, 20, 37, 16, 20, "f32"), {"offset": 3}, COPIED, 3e-6),
    "groups of halves": ((4, 9, 17, 4, 4, "f16"), {"groups": 2}, FEW, 2e-3),
    "one warp": ((2, 20, 37, 16, 32, "f16"), {}, WARP, 2e-3),
    "two warps, causal": ((2, 36, 70, 32, 16, "bf16"), {"offset": 3}, WARPS, 2e-2),
    "warps and a mask": ((1, 37, 20, 16, 48, "f16"), {"offset": -4, "mask": True}, WARP, 2e-3),
    "warps of groups": ((4, 20, 40, 16, 16, "bf16"), {"groups": 2, "offset": 0}, WARP, 2e-2),
}
CASES: Mapping[str, tuple[TensorProgram, GroupSchedule, float]] = {
    f"{name}, {of}": (gradients(of, *shape, **more), schedule, error)
    for of in ("queries", "keys")
    for name, (shape, more, schedule, error) in SHAPES.items()
}


def feeds_of(program: TensorProgram) -> dict[str, Array]:
    """Operands of one half, and sums larger than all scores."""
    found = numbers_of(program)
    return {n: np.asarray(x + 2 if n == "l" else x * 0.5, x.dtype) for n, x in found.items()}


@pytest.mark.share(4, "case")
@pytest.mark.parametrize("case", CASES)
def test_threads_compute_what_the_stages_say(case: str) -> None:
    program, schedule, error = CASES[case]
    scheduled, feeds = schedule_groups(program, schedule), feeds_of(program)
    assert len(scheduled.functions) == 1
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})
    wanted = run_program(program, feeds, {})
    for name in program.outputs:
        most = float(np.abs(wanted[name].astype(np.float64)).max())
        pair = found[name].astype(np.float64), wanted[name].astype(np.float64)
        np.testing.assert_allclose(*pair, rtol=error, atol=error * most)


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        ("odd sizes, keys", (Barrier,)),
        ("vectors, causal, keys", (Barrier, WaitCopies)),
        ("one warp, keys", (Barrier, WaitCopies)),
    ],
)
def test_each_wait_is_needed(case: str, kinds: tuple[type, ...]) -> None:
    """But warps' last one for copies, behind which there is nothing to wait for."""
    program, schedule, _ = CASES[case]
    (function,) = schedule_groups(program, schedule).functions
    assert isinstance(function, Function)
    results = [np.zeros(program.types[n].static_shape(), program.types[n].dtype.numpy)
               for n in program.outputs]  # fmt: skip
    data = [*feeds_of(program).values(), *results]
    interpret_loops(function, data, [])
    for kind in kinds:
        count = sum(isinstance(s, kind) for s in statements(function.body))
        for number in range(count - (kind is WaitCopies and case.startswith("one warp"))):
            with pytest.raises(RaceError):
                interpret_loops(without(function, (kind,), number), data, [])


def test_no_product_is_made_of_blocks_that_nobody_sees() -> None:
    """What keys hold that queries do not see, NaN here, is in no result."""
    for of in ("queries", "keys"):
        program = gradients(of, 1, 32, 64, 16, 16, "f16", offset=0)
        feeds = feeds_of(program)
        for name in "kv":
            feeds[name][0, 32:] = np.nan
        scheduled = schedule_groups(program, TensorChain(16, 16))
        found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})
        seen = {n: x[:, :32] for n, x in found.items()}
        assert all(np.isfinite(x.astype(np.float64)).all() for x in seen.values())


@pytest.mark.parametrize(
    ("program", "schedule", "message"),
    [
        (gradients("keys", 1, 20, 20, 16, 16, "f32"), WARP, "multiply f16 and bf16"),
        (gradients("keys", 1, 20, 20, 24, 16, "f16"), WARP, "whole fragments of 16"),
        (gradients("keys", 1, 20, 20, 16, 16, "f16"), TensorChain(24, 16), "warps have 16 rows"),
        (gradients("keys", 1, 20, 20, 8, 8, "f16"), VECTORS, "vectors are of f32"),
        (gradients("keys", 1, 20, 20, 6, 8, "f32"), VECTORS, "results are whole vectors"),
        (gradients("keys", 1, 20, 20, 4, 4, "f32"), GroupChain(12, 8, 32, 2), "divide among"),
        (gradients("keys", 1, 20, 20, 4, 4, "f32"), GroupChain(9, 8, 32, 2), "blocks have rows"),
    ],
)
def test_what_does_not_fit_is_refused(
    program: TensorProgram, schedule: GroupSchedule, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_groups(program, schedule)


def chosen(program: TensorProgram, machine: str) -> list[GroupSchedule]:
    gpu = {"a100": find_chip("sm_80").gpu, "h100": find_chip("sm_90a").gpu, "mi300": GPUS["mi300"],
           "processor": PROCESSOR}[machine]  # fmt: skip
    return list(chain_schedules(kernel_of(program), gpu))


def test_which_blocks_are_chosen() -> None:
    """Enough for all units first, then the largest that a unit has room for."""
    halves = gradients("keys", 64, 1024, 1024, 64, 64, "bf16")
    assert chosen(halves, "a100")[0] == TensorChain(128, 64)
    few = gradients("keys", 1, 1024, 1024, 64, 64, "bf16")
    assert chosen(few, "h100")[0] == TensorChain(16, 32)
    wide = gradients("keys", 64, 1024, 1024, 256, 256, "bf16")
    assert all(isinstance(s, TensorChain) and s.rows < 128 for s in chosen(wide, "a100"))
    floats = gradients("keys", 64, 1024, 1024, 64, 64, "f32")
    first = chosen(floats, "a100")[0]
    assert isinstance(first, GroupChain)
    assert (first.rows, first.lanes, first.copies) == (64, 4, True)
    odd = chosen(gradients("keys", 64, 1024, 1024, 63, 63, "f32"), "a100")[0]
    for found in (odd, chosen(floats, "processor")[0]):
        assert isinstance(found, GroupChain) and found.lanes == 1


def test_where_matrix_units_have_no_schedule_there_is_none() -> None:
    """Products of halves stay what these units multiply."""
    odd = gradients("keys", 64, 1024, 1024, 24, 24, "f16")
    assert not _runs(odd, "a100")
    assert _runs(odd, "processor")


def _runs(program: TensorProgram, machine: str) -> bool:
    try:
        return bool(chosen(program, machine))
    except ScheduleError:
        return False
