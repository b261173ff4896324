"""Attention to a named number of keys is one kernel, and of no keys it is 0, as sums of nothing
are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from attention_models import feeds_for, joint_attention, scheduled
from attention_programs import named_attention
from kernel_runs import functions_of, interpreted, run_scheduled
from machines import chosen_cpu

from modelcc.ir.index import evaluate
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.schedule.group_schedule import GroupAttention, GroupSchedule, TensorAttention
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.gpu.schedule import schedule_groups

CASES: Mapping[str, tuple[dict[str, Any], tuple[dict[str, int], ...]]] = {
    "length": (
        {"batch": 1, "rows": "n", "heads": 2, "groups": 2},
        ({"n": 5}, {"n": 37}, {"n": 0}),
    ),
    "past and length": (
        {"batch": "b", "rows": "n", "heads": 4, "groups": 2, "past": "p"},
        ({"b": 1, "n": 3, "p": 17}, {"b": 2, "n": 2, "p": 0}),
    ),
    "other keys": (
        {"batch": 2, "rows": 18, "heads": 2, "groups": 2, "keys": "k", "mask": True},
        ({"k": 21}, {"k": 0}),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", ["cuda:sm_90a", "opencl", "webgpu", "metal"])
def test_one_kernel_computes_what_onnxruntime_does(target: str, case: str) -> None:
    """For any number, with no races."""
    arguments, numbers = CASES[case]
    source = joint_attention(**arguments)
    program = scheduled(source, target)
    assert sum("Attention" in f.name for f in functions_of(program)) == 1
    session = onnxruntime.InferenceSession(source.SerializeToString())
    outputs = [value.name for value in source.graph.output]
    for sizes in numbers:
        feeds = feeds_for(source, sizes)
        found = run_scheduled(program, interpreted(program), feeds, sizes)
        for name, result in zip(outputs, session.run(outputs, feeds), strict=True):
            wanted = np.asarray(result)
            np.testing.assert_allclose(found[name], wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("keys", [0, 7, 300])
@pytest.mark.parametrize(
    ("target", "rows", "kernels"),
    [("cuda:sm_90a", 2, 1), ("cuda:sm_90a", 9, 2), ("amdgpu:gfx942", 2, 2)],
)
def test_few_rows_put_any_number_of_parts_together(
    target: str, rows: int, kernels: int, keys: int
) -> None:
    """In one kernel where groups count each other and threads have totals of all rows."""
    source = joint_attention(1, rows, 2, 2, keys="k")
    program = scheduled(source, target)
    assert sum("Attention" in f.name for f in functions_of(program)) == kernels
    feeds = feeds_for(source, {"k": keys})
    found = run_scheduled(program, interpreted(program), feeds, {"k": keys})["y"]
    session = onnxruntime.InferenceSession(source.SerializeToString())
    wanted = np.asarray(session.run(["y"], feeds)[0])
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


SCORES = {
    "plain": "{} * 0.5",
    "mask": "{} * 0.5 + %b[i, j]",
    "causal": "select(ge(index(i - j):i64, 0), {} * 0.25, -inf)",
    "rows that see nothing": "select(ge(index(i - j - 3):i64, 0), {} * 0.25, -inf)",
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    "schedule",
    [TensorAttention(64, 64, "wgmma"), TensorAttention(16, 16), GroupAttention(8, 8, 32, 2)],
    ids=str,
)
def test_all_schedules_take_named_numbers(schedule: GroupSchedule, score: str) -> None:
    program = named_attention(16, "f16", SCORES[score])
    planned = schedule_groups(program, schedule)
    assert len(planned.functions) == 1
    agrees(program, planned)


@pytest.mark.parametrize("score", SCORES)
def test_the_processor_takes_them_where_a_device_has_no_such_numbers(score: str) -> None:
    program = named_attention(16, "f16", SCORES[score])
    planned = schedule_program(program, chosen_cpu())
    assert len(planned.functions) == 1
    agrees(program, planned)


def agrees(program: TensorProgram, planned: Program) -> None:
    """``planned`` computes what ``program`` says, of no keys and of some."""
    for sizes in ({"n": 0, "r": 20}, {"n": 70, "r": 66}):
        rng = np.random.default_rng(0)
        feeds = {
            name: rng.standard_normal([evaluate(e, sizes) for e in type_.shape]).astype(
                type_.dtype.numpy
            )
            for name, type_ in ((n, program.types[n]) for n in program.inputs)
        }
        found = run_scheduled(planned, interpreted(planned), feeds, sizes)["y"]
        wanted = run_program(program, feeds, sizes)["y"]
        given = (one.astype(np.float32) for one in (found, wanted))
        np.testing.assert_allclose(*given, rtol=2e-3, atol=2e-3)
