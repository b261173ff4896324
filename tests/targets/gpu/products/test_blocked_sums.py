"""Sums of a product that take the terms of a block as a sum of their own: rounding, against f64."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from group_products import function_of, program_of
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.loop import ScalarCall
from modelcc.ir.loop_traversal import statements
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupProduct, GroupSchedule
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import H100, PROCESSOR, GpuModel
from modelcc.targets.gpu.schedule import schedule_groups

TERMS = 512


def product(side: int, kind: str, total: str, terms: int = TERMS) -> TensorProgram:
    """A square product of operands of one type, summed in another one."""
    wide = f"{total}(%a[i, l]) * {total}(%b[l, j])" if kind != total else "%a[i, l] * %b[l, j]"
    return program_of(
        f"""%a: {kind}[{side}, {terms}], %b: {kind}[{terms}, {side}])
          -> (%y: {total}[{side}, {side}]) {{
          %y: {total}[{side}, {side}] = [i < {side}, j < {side}] sum[l < {terms}] {wide} }}""",
        {},
    )


SUMS = product(16, "f32", "f32")


def error_of(schedule: GroupSchedule, bias: float) -> float:
    """Of results, by the sums of their terms without signs; root mean square."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) + np.float32(bias)
            for s in ((16, TERMS), (TERMS, 16)))  # fmt: skip
    scheduled = schedule_groups(SUMS, schedule)
    found = run_scheduled(scheduled, interpreted(scheduled), {"a": a, "b": b}, {})["y"]
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    return float(np.sqrt(np.mean(((found - a64 @ b64) / (abs(a64) @ abs(b64))) ** 2)))


@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize(("terms", "buffers"), [(8, 1), (16, 2), (16, 4)])
def test_errors_are_those_of_the_longer_sum(bias: float, terms: int, buffers: int) -> None:
    """An addition makes an error like its result.  Of n terms, results of which grow by their
    square root or, biased, by their number, errors come to squares of n²/2 or n³/3; those within
    blocks of b terms are b/n or (b/n)² of that, those of totals 1/b."""
    plain = GroupProduct(16, 16, terms, 4, 2, buffers=buffers)
    expected = sqrt((terms / TERMS) ** (2 if bias else 1) + 1 / terms)
    ratio = error_of(replace(plain, blocked=True), bias) / error_of(plain, bias)
    assert 0.8 * expected < ratio < 1.25 * expected


def default_of(machine: GpuModel, program: TensorProgram) -> GroupSchedule:
    (kernel,) = (item for item in program.items if isinstance(item, Kernel))
    key, _ = canonical(kernel, program.types, frozenset(), {})
    found = default_schedule(key, machine)
    assert isinstance(found, GroupSchedule)
    return found


@pytest.mark.parametrize(("machine", "blocked"), [(PROCESSOR, True), (H100, False)])
def test_processors_have_the_totals_in_memory_anyway(machine: GpuModel, blocked: bool) -> None:
    found = default_of(machine, product(64, "f32", "f32"))
    assert isinstance(found, GroupProduct)
    assert found.blocked == blocked


def test_whole_numbers_are_exact_in_any_order() -> None:
    found = default_of(PROCESSOR, product(64, "i8", "i32"))
    assert isinstance(found, GroupProduct)
    assert not found.blocked


def test_one_block_has_one_sum() -> None:
    def additions(terms: int) -> int:
        function = function_of(SUMS, GroupProduct(8, 8, terms, 2, 2, blocked=True))
        values = (getattr(s, "value", None) for s in statements(function.body))
        return sum(isinstance(v, ScalarCall) and v.function == "add" for v in values)

    assert additions(TERMS // 2) == 4
    assert additions(TERMS) == 0
