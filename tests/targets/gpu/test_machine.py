"""What groups fit a unit, by the numbers of machines."""

from __future__ import annotations

import pytest

from modelcc.targets.gpu.machine import A100, GPUS, H100, PROCESSOR, GpuModel


def test_what_there_is_least_of_bounds_the_groups_of_a_unit() -> None:
    assert H100.groups_at_once(256, 32, 0) == 8, "threads"
    assert H100.groups_at_once(256, 128, 0) == 2, "registers"
    assert H100.groups_at_once(256, 32, 100 << 10) == 2, "shared memory"
    assert H100.groups_at_once(32, 16, 0) == 32, "groups"
    assert H100.groups_at_once(33, 128, 0) == 8, "whole warps"
    assert H100.occupancy(256, 128, 0) == 0.25


def test_what_no_group_may_have() -> None:
    assert A100.groups_at_once(2048, 32, 0) == 0
    assert A100.groups_at_once(128, 256, 0) == 0
    assert A100.groups_at_once(128, 32, 164 << 10) == 0
    assert PROCESSOR.groups_at_once(512, 32, 0) == 0


@pytest.mark.parametrize("machine", GPUS.values(), ids=lambda m: m.name)
def test_machines_make_sense(machine: GpuModel) -> None:
    assert machine.group_shared_bytes <= machine.shared_bytes
    assert machine.group_threads <= machine.unit_threads
    assert machine.limits.threads == machine.group_threads
    assert machine.matrix_flops == 0 or machine.matrix_flops > machine.flops
    assert machine.seconds(machine.flops * 1e12, 0) == pytest.approx(1.0)
    assert machine.seconds(0, machine.bandwidth * 1e9) == pytest.approx(1.0)
