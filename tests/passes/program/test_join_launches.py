"""Small launches that nothing orders become one, and mean the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.ir.program import Launch, Program, leaves
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.passes.program.join_launches import JoinLaunches
from modelcc.targets.gpu.machine import H100
from modelcc.targets.gpu.schedule import schedule_groups

TEXT = """program @main(%a: f32[40], %b: f32[7, 8], %w: f32[7, 512]) -> (%s, %t, %u, %v) {{
  kernel @Neg(%a: f32[40]) -> (%s: f32[40]) {{
    %s: f32[40] = [i < 40] -%a[i]
  }}
  kernel @Turn(%b: f32[7, 8], %a: f32[40]) -> (%t: f32[8, 7]) {{
    %t: f32[8, 7] = [i < 8, j < 7] %b[j, i] + (%a[i + j] if [i < 5] else %b[0, i])
  }}
  kernel @Scale(%b: f32[7, 8]) -> (%u: f32[7, 8]) {{
    %u: f32[7, 8] = [i < 7, j < 8] {scaled}
  }}
  kernel @Sum(%w: f32[7, 512]) -> (%v: f32[7]) {{
    %v: f32[7] = [i < 7] sum[j < 512] %w[i, j]
  }}
}}"""
TENSORS = parse_tensor_program(TEXT.format(scaled="%b[i, j] * 2.0"), {})
DEPENDENT = parse_tensor_program(
    TEXT.format(scaled="%s[i + j] * 2.0").replace("@Scale(%b: f32[7, 8])", "@Scale(%s: f32[40])"),
    {},
)


def launched(program: Program) -> list[str]:
    return [step.callee for step in leaves(program.steps) if isinstance(step, Launch)]


def scheduled(tensors: object = TENSORS) -> Program:
    assert isinstance(tensors, type(TENSORS))
    return schedule_groups(tensors, machine=H100)


@pytest.mark.parametrize("tensors", [TENSORS, DEPENDENT], ids=["apart", "in order"])
def test_they_mean_the_same(tensors: object) -> None:
    """In any order of groups, without races; what needs a result of another one comes behind."""
    assert isinstance(tensors, type(TENSORS))
    before = scheduled(tensors)
    after = JoinLaunches(1 << 20)(before)
    verify_program(after)
    assert len(launched(before)) == 4
    expected = 2 if tensors is TENSORS else 3
    assert len(launched(after)) == expected
    rng = np.random.default_rng(0)
    shapes = {"a": (40,), "b": (7, 8), "w": (7, 512)}
    feeds = {n: rng.integers(-9, 9, shape).astype(np.float32) for n, shape in shapes.items()}
    wanted = run_program(tensors, feeds, {})
    found = run_scheduled(after, interpreted(after), feeds, {})
    for name in tensors.outputs:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_groups_of_both_come_in_any_order() -> None:
    (name, *_) = launched(program := JoinLaunches(1 << 20)(scheduled()))
    function = program.callee[name]
    assert isinstance(function, Function)

    def backwards(*extents: int) -> list[tuple[int, ...]]:
        return [*np.ndindex(*extents)][::-1]

    results: list[list[np.ndarray]] = []
    for order in (None, backwards):
        rng = np.random.default_rng(3)
        sizes = [int(str(p.buffer.size)) for p in function.parameters]
        arrays = [rng.standard_normal(size).astype(np.float32) for size in sizes]
        run = compile_loops(function) if order is None else compile_loops(function, order)
        run(arrays, [])
        results.append(arrays)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_operand_of_both_is_one_parameter() -> None:
    program = JoinLaunches(1 << 20)(scheduled())
    first = next(step for step in leaves(program.steps) if isinstance(step, Launch))
    assert sorted(first.arguments) == ["a", "b", "s", "t", "u"]
    assert len(program.callees) == 2


@pytest.mark.parametrize(
    "rules", [JoinLaunches(64), JoinLaunches(1 << 20, parameters=3)], ids=["threads", "parameters"]
)
def test_large_ones_stay_apart(rules: JoinLaunches) -> None:
    assert launched(rules(scheduled())) == launched(scheduled())


@pytest.mark.parametrize("kind", ["state", "in place"])
def test_what_memory_is_planned_by_stays_apart(kind: str) -> None:
    """States may lie where what another launch reads does."""
    before = scheduled()
    if kind == "state":
        before = replace(before, states={"t": "b", "s": "a", "u": "b"})
    else:
        launches = [step for step in leaves(before.steps) if isinstance(step, Launch)]
        over = (("t", "b"),)
        steps = [
            replace(step, in_place=over) if "t" in step.arguments else step for step in launches
        ]
        before = replace(before, steps=tuple(steps))
    assert len(launched(JoinLaunches(1 << 20)(before))) == 4


def test_the_same_pair_is_one_function() -> None:
    """Layers that are alike launch the same."""
    before = scheduled()
    first, second, _, last = before.steps
    twice = replace(before, steps=(first, second, last, first, second))
    after = JoinLaunches(1 << 20)(twice)
    names = launched(after)
    assert names[0] == names[2] and len(after.callees) == 2


PARTS = """program @main(%a: f32[5, 3], %b: f32[5, 4], %c: f32[5, 12]) -> (%y, %z) {
  kernel @Concat(%a: f32[5, 3]) -> (%y: f32[5, 7]) { %y: f32[5, 7] = [i < 5, j < 3] %a[i, j] }
  kernel @Concat(%b: f32[5, 4]) -> (%y: f32[5, 7]) {
    %y[i, j + 3]: f32[5, 7] = [i < 5, j < 4] %b[i, j] * 2.0 }
  kernel @Read(%y: f32[5, 7], %c: f32[5, 12]) -> (%z: f32[5, 7]) {
    %z: f32[5, 7] = [i < 5, j < 7] %y[i, j] + %c[i, j + 5] }
}"""


def test_parts_of_a_concatenation_are_one_launch() -> None:
    """What reads the whole comes behind."""
    tensors = parse_tensor_program(PARTS, {})
    before = scheduled(tensors)
    after = JoinLaunches(1 << 20)(before)
    verify_program(after)
    assert (len(launched(before)), len(launched(after))) == (3, 2)
    (first, _) = (step for step in leaves(after.steps) if isinstance(step, Launch))
    assert sorted(first.arguments) == ["a", "b", "y"] and first.partial == ("y",)
    shapes = {"a": (5, 3), "b": (5, 4), "c": (5, 12)}
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    found = run_scheduled(after, interpreted(after), feeds, {})
    wanted = run_program(tensors, feeds, {})
    for name in tensors.outputs:
        np.testing.assert_array_equal(found[name], wanted[name])


THREE = """program @main(%a: f32[8], %b: f32[8], %c: f32[9]) -> (%s, %t, %u) {
  kernel @Neg(%a: f32[8]) -> (%s: f32[8]) { %s: f32[8] = [i < 8] -%a[i] }
  kernel @Twice(%b: f32[8]) -> (%t: f32[8]) { %t: f32[8] = [i < 8] %b[i] * 2.0 }
  kernel @Pair(%c: f32[9]) -> (%u: f32[8]) { %u: f32[8] = [i < 8] %c[i] + %c[i + 1] }
}"""


def test_parameters_are_called_like_no_value_of_a_later_one() -> None:
    """The second %x0 becomes %x0_1, which a value of @Pair is, too."""
    tensors = parse_tensor_program(THREE, {})
    after = JoinLaunches(1 << 20)(scheduled(tensors))
    verify_program(after)
    assert len(launched(after)) == 1
    feeds = {n: np.arange(k, dtype=np.float32) for n, k in (("a", 8), ("b", 8), ("c", 9))}
    found = run_scheduled(after, interpreted(after), feeds, {})
    wanted = run_program(tensors, feeds, {})
    for name in tensors.outputs:
        np.testing.assert_array_equal(found[name], wanted[name])
