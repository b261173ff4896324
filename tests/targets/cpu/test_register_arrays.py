"""Stages that hand on small arrays: few to schedule, and never in memory."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from kernel_runs import interpreted, native, run_scheduled
from machines import chosen_cpu

from modelcc.ir.loop import Alloc, For
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Launch
from modelcc.ir.tensor import Kernel, Stage, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import Array
from modelcc.passes.tensor.register_axes import shared_depth
from modelcc.schedule.listing import Listing
from modelcc.schedule.wanted import Wanted
from modelcc.schedule.workload import workload_key
from modelcc.targets.cpu.candidates import candidates
from modelcc.targets.cpu.schedule import schedule_program, scheduled_kernels

HAAR = "linear[[[0.5, 0.5], [0.5, -0.5]]]"
FOUR = "[[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]]"
ACROSS = f"""
    %d: f32[n, 40, 2, 2] = [i < n, c < 40, j < 2, a < 2] {HAAR}[a](%x[i, 0, j, c], %x[i, 1, j, c])
    %y[2*a + b, i, c]: f32[4, n, 40] = [i < n, c < 40, a < 2, b < 2]
        {HAAR}[b](%d[i, c, 0, a], %d[i, c, 1, a])"""
BODIES = {
    "a transform of two steps": ACROSS,
    "values of other stages, choices, a guard": f"""
    %d: f32[n, 40, 2, 2] = [i < n, c < 40, j < 2, a < 2] {HAAR}[a](%x[i, 0, j, c], %x[i, 1, j, c])
    %s: f32[n, 40] = [i < n, c < 40] %d[i, c, 0, 1] + %d[i, c, 1, 0] * %x[i, 1, 1, c]
    %y[2*a + b, i, c]: f32[4, n, 40] = [i < n, c < 40, a < 2, b < 2]
        (max({HAAR}[b](%d[i, c, 0, a], %d[i, c, 1, a]), %s[i, c]) if [i >= 1] else %s[i, c])""",
    "a row by a long axis": """
    %y: f32[4, n, 40] = [r < 4, i < n, c < 40]
        linear[ROWS][r](%x[i, 0, 0, c], %x[i, 0, 1, c], %x[i, 1, 0, c], %x[i, 1, 1, c])""",
    "one stage": """
    %y[r, i, c]: f32[4, n, 40] = [i < n, c < 40, r < 4]
        linear[ROWS][r](%x[i, 0, 0, c], %x[i, 0, 1, c], %x[i, 1, 0, c], %x[i, 1, 1, c])""",
    "own axes of no unrolled size": """
    %d: f32[n, 4, 40] = [i < n, r < 4, c < 40]
        linear[ROWS][r](%x[i, 0, 0, c], %x[i, 0, 1, c], %x[i, 1, 0, c], %x[i, 1, 1, c])
    %y: f32[4, n, 40] = [r < 4, i < n, c < 40] linear[ROWS][r](%d[i, 0, c], %d[i, 1, c],
        %d[i, 2, c], %d[i, 3, c])""",
    "an element by a loop": f"""
    %d: f32[n, 40, 2, 2] = [i < n, c < 40, j < 2, a < 2] {HAAR}[a](%x[i, 0, j, c], %x[i, 1, j, c])
    %y[2*a + b, i, c]: f32[4, n, 40] = [i < n, c < 40, a < 2, b < 2]
        {HAAR}[b](%d[i, c, i mod 2, a], %d[i, c, 1, a])""",
    "vectors across memory": f"""
    %d: f32[40, n, 2, 2] = [c < 40, i < n, j < 2, a < 2] {HAAR}[a](%x[i, 0, j, c], %x[i, 1, j, c])
    %y[2*a + b, i, c]: f32[4, n, 40] = [c < 40, i < n, a < 2, b < 2]
        {HAAR}[b](%d[c, i, 0, a], %d[c, i, 1, a])""",
}


def program_of(body: str) -> TensorProgram:
    stages = body.replace("ROWS", FOUR)
    program = parse_tensor_program(
        f"""program @p(%x: f32[n, 2, 2, 40]) -> (%y) dims(n in 1:) {{
          kernel @k(%x: f32[n, 2, 2, 40]) -> (%y: f32[4, n, 40]) {{ {stages} }}
        }}""",
        {},
    )
    verify_tensor_program(program)
    return program


def stages_of(program: TensorProgram) -> tuple[Stage, ...]:
    (kernel,) = program.items
    assert isinstance(kernel, Kernel)
    return kernel.stages


def values(n: int) -> Array:
    return np.random.default_rng(n).standard_normal((n, 2, 2, 40)).astype(np.float32)


@pytest.mark.parametrize("name", BODIES)
def test_schedules_keep_their_meaning(name: str) -> None:
    program = program_of(BODIES[name])
    scheduled = schedule_program(program, chosen_cpu())
    for executor in (interpreted, native):
        run = executor(scheduled)
        for n in (1, 3):
            wanted = run_program(program, {"x": values(n)}, {"n": n})["y"]
            found = run_scheduled(scheduled, run, {"x": values(n)}, {"n": n})["y"]
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", BODIES)
def test_any_schedule_keeps_the_meaning(name: str) -> None:
    program, x = program_of(BODIES[name]), values(3)
    wanted = run_program(program, {"x": x}, {"n": 3})["y"]
    for one in scheduled_kernels(program, chosen_cpu()):
        for schedule in islice(candidates(one.kernel, one.schedule, chosen_cpu()), 8):
            asked = Wanted(Listing("", {workload_key(one.kernel): schedule}))
            scheduled = schedule_program(program, chosen_cpu(), wanted=asked)
            found = run_scheduled(scheduled, interpreted(scheduled), {"x": x}, {"n": 3})["y"]
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_a_transform_against_numpy() -> None:
    haar = np.array([[0.5, 0.5], [0.5, -0.5]])
    x = values(3)
    wanted = np.einsum("ap,bq,npqc->abnc", haar, haar, x).reshape(4, 3, 40)
    found = run_program(program_of(ACROSS), {"x": x}, {"n": 3})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_arrays_are_registers() -> None:
    """One loop around vectors of points, no local memory, and nothing read or computed twice."""
    (function,) = schedule_program(program_of(ACROSS), chosen_cpu()).functions
    found = list(statements(function.body))
    assert not any(isinstance(s, Alloc) for s in found)
    assert 1 <= sum(isinstance(s, For) for s in found) <= 3


@pytest.mark.parametrize(("swap", "shared"), [(True, False), (False, True)])
def test_results_take_the_place_of_operands_that_no_later_element_needs(
    swap: bool, shared: bool
) -> None:
    last = "linear[[[0.0, 1.0], [1.0, 0.0]]][b](%s[i, c, 0], %s[i, c, 1])"
    pointwise = "%s[i, c, b] + linear[[[1.0], [2.0]]][b](%x[b, i, c])"
    program = parse_tensor_program(
        f"""program @p(%x: f32[2, 3, 40]) -> (%y) {{
          kernel @k(%x: f32[2, 3, 40]) -> (%y: f32[2, 3, 40]) {{
            %s: f32[3, 40, 2] = [i < 3, c < 40, a < 2] abs(%x[a, i, c])
            %y[b, i, c]: f32[2, 3, 40] = [i < 3, c < 40, b < 2] {last if swap else pointwise}
          }}
        }}""",
        {},
    )
    verify_tensor_program(program)
    (call,) = schedule_program(program, chosen_cpu()).steps
    assert isinstance(call, Launch) and bool(call.in_place) == shared


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("a transform of two steps", 2),
        ("values of other stages, choices, a guard", 2),
        ("one stage", 2),
        ("own axes of no unrolled size", None),
        ("a row by a long axis", None),
    ],
)
def test_own_axes(name: str, depth: int | None) -> None:
    assert shared_depth(stages_of(program_of(BODIES[name]))) == depth
