"""Operands that are read across, by tiles in shared memory; the interpreter watches threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from group_products import without
from kernel_runs import interpreted
from transpositions import CASES, SQUARE, Turned, check_turned

from modelcc.ir.loop import Barrier, Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.tensor import Kernel
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import BOOL, F16, F32, DType
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupSchedule, GroupTranspose, Pointwise
from modelcc.schedule.schedule import Schedule, ScheduleError
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import A100, APPLE, H100, INTEGRATED, PROCESSOR, GpuModel
from modelcc.targets.gpu.schedule import schedule_groups


@pytest.mark.parametrize("size", [0, 1, 3, 45])
@pytest.mark.parametrize("name", CASES)
def test_tiles_turn(name: str, size: int) -> None:
    check_turned(name, interpreted, H100, size)


def test_tiles_are_read_behind_a_barrier() -> None:
    (function,) = schedule_groups(Turned(shape="1, 64, 64").program, SQUARE, H100).functions
    assert isinstance(function, Function)
    arrays = [np.zeros(4096, np.float32), np.zeros(4096, np.float32)]
    with pytest.raises(RaceError, match="tile"):
        interpret_loops(without(function, (Barrier,), 0), arrays, ())


def default(turned: Turned, machine: GpuModel) -> GroupSchedule:
    program = turned.program
    (item,) = program.items
    assert isinstance(item, Kernel)
    kernel = canonical(item, program.types, frozenset(), program.dims)[0]
    return default_schedule(kernel, machine)


MACHINES = {"H100": H100, "A100": A100, "integrated": INTEGRATED, "Apple": APPLE}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("dtype", [F32, F16, BOOL], ids=str)
def test_the_default_takes_vectors(machine: GpuModel, dtype: DType) -> None:
    found = default(Turned(dtype, "8, 256, 3136"), machine)
    assert isinstance(found, GroupTranspose)
    bytes_ = found.read * dtype.bytes, found.lanes * dtype.bytes
    assert min(bytes_) >= (8 if machine.lanes > 1 else dtype.bytes)


@pytest.mark.parametrize(
    ("shape", "machine"),
    [("8, 3, 4096", H100), ("1, 64, 64", H100), ("8, 256, 3136", PROCESSOR)],
    ids=["few channels", "few points", "a processor"],
)
def test_others_have_a_point_each(shape: str, machine: GpuModel) -> None:
    assert isinstance(default(Turned(shape=shape), machine), Pointwise)


WRONG: dict[str, tuple[Schedule, Turned]] = {
    "no whole vectors": (replace(SQUARE, read=4), Turned(shape="n, 40, 70")),
    "results are no whole vectors": (replace(SQUARE, lanes=4), Turned(shape="n, 42, 72")),
    "no vector": (replace(SQUARE, read=3), Turned()),
    "a side of no whole vectors": (GroupTranspose(36, 64, 8), Turned()),
    "no threads": (replace(SQUARE, threads=0), Turned()),
}


@pytest.mark.parametrize("name", WRONG)
def test_schedules_that_do_not_fit(name: str) -> None:
    schedule, turned = WRONG[name]
    with pytest.raises(ScheduleError, match="tiles are whole vectors"):
        schedule_groups(turned.program, schedule, H100)


def test_what_is_read_as_it_is_written_has_no_tiles() -> None:
    program = parse_tensor_program(
        """program @p(%x: f32[64, 64]) -> (%y) dims() {
  kernel @Relu(%x: f32[64, 64]) -> (%y: f32[64, 64]) {
    %y: f32[64, 64] = [i < 64, j < 64] max(%x[i, j], 0.0) } }""",
        {},
    )
    with pytest.raises(ScheduleError, match="nothing is read across"):
        schedule_groups(program, SQUARE, H100)
