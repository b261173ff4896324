"""Memory plans and lowered programs, run on tags by an executor of their own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduled_programs import (
    definition_values,
    execute,
    kernel,
    program_of,
    scheduled_programs,
    tensor,
)

from modelcc.ir.constant import Constant
from modelcc.ir.index import Range, Sym, evaluate, symbols
from modelcc.ir.program import CopyTensor, Launch, Program, Step
from modelcc.ir.tensor import View
from modelcc.ir.types import F32, TensorType, blocked
from modelcc.passes.program.apply_plan import apply_plan
from modelcc.passes.program.order import order_steps
from modelcc.passes.program.plan_memory import MemoryPlan, plan_memory
from modelcc.passes.program.timeline import timeline


def lowered(scheduled: Program) -> tuple[MemoryPlan, Program]:
    plan = plan_memory(scheduled)
    return plan, apply_plan(scheduled, plan)


@settings(max_examples=150)
@given(scheduled_programs(), st.booleans())
def test_static_programs_keep_every_tensor(scheduled: Program, reorder: bool) -> None:
    scheduled = order_steps(scheduled) if reorder else scheduled
    plan, program = lowered(scheduled)
    execute(scheduled, program, {})
    assert isinstance(plan.arena, int) and not plan.definitions
    assert program.placed.arena == plan.peak >= plan.lower_bound


@settings(max_examples=100)
@given(scheduled_programs(symbolic=True), st.booleans(), st.data())
def test_symbolic_programs_keep_every_tensor_at_any_size(
    scheduled: Program, reorder: bool, data: st.DataObject
) -> None:
    scheduled = order_steps(scheduled) if reorder else scheduled
    plan, program = lowered(scheduled)
    assert evaluate(plan.arena, definition_values(plan.definitions, plan.nominal)) == plan.peak
    for _ in range(3):
        values = {"n": data.draw(st.integers(1, 2000)), "m": data.draw(st.integers(1, 300))}
        execute(scheduled, program, values)


@settings(max_examples=100)
@given(scheduled_programs())
def test_order_is_valid_and_never_needs_more(scheduled: Program) -> None:
    ordered = order_steps(scheduled)
    assert calls(ordered) == calls(scheduled)
    assert plan_memory(ordered).lower_bound <= plan_memory(scheduled).lower_bound


def test_no_order_takes_a_result_from_what_it_is_written_over() -> None:
    """In this order t becomes y; with y before z, t is a tensor of the arena."""
    types = {n: tensor(100 if n in "ty" else 1) for n in "xabctzy"}
    items = [
        kernel(["x"], ["a"], types),
        kernel(["x"], ["t"], types),
        kernel(["x"], ["b"], types),
        kernel(["t"], ["z"], types),
        kernel(["x"], ["c"], types),
        kernel(["t", "a"], ["y"], types, in_place=(("y", "t"),)),
    ]
    program = scheduled(items, types)
    assert plan_memory(order_steps(program)).lower_bound == plan_memory(program).lower_bound


def launches(program: Program) -> list[Launch]:
    return [step for step in program.steps if isinstance(step, Launch)]


def calls(program: Program) -> list[int]:
    return sorted(map(id, timeline(program).calls.values()))


def scheduled(
    items: Sequence[Step],
    types: dict[str, TensorType],
    inputs: tuple[str, ...] = ("x",),
    outputs: tuple[str, ...] = ("y",),
    **rest: Any,
) -> Program:
    return program_of(inputs, outputs, items, types, **rest)


def test_order_finishes_one_branch_before_the_next() -> None:
    types = {"x": tensor(16), "y": tensor(16)}
    types |= {f"{a}{i}": tensor(16 if a == "s" else 4096) for a in "bs" for i in range(4)}
    wide = [kernel(["x"], [f"b{i}"], types) for i in range(4)]
    narrow = [kernel([f"b{i}"], [f"s{i}"], types) for i in range(4)]
    last = kernel([f"s{i}" for i in range(4)], ["y"], types)
    given = scheduled([*wide, *narrow, last], types)
    assert plan_memory(given).peak == 4 * 4096 * 4 + 64
    assert plan_memory(order_steps(given)).peak == 4096 * 4 + 4 * 64


def test_results_go_straight_to_the_output_even_through_views_and_in_place() -> None:
    types = {n: tensor(100) for n in "xah"} | {"y": tensor(10, 10)}
    items = [
        kernel(["x"], ["h"], types),
        kernel(["h"], ["a"], types, in_place=(("a", "h"),)),
        View("y", "a"),
    ]
    plan, program = lowered(scheduled(items, types))
    assert program.placed.arena == 0
    assert [s.arguments for s in launches(program)] == [("x", "y"), ("y", "y")]
    assert program.types["y"] == types["y"]
    assert plan.home["h"].place == "output"


@pytest.mark.parametrize("later_reader", [False, True])
def test_operands_that_are_read_later_are_not_overwritten(later_reader: bool) -> None:
    types = {n: tensor(100) for n in "xhabcy"}
    items = [
        kernel(["x"], ["h"], types),
        kernel(["h"], ["a"], types, in_place=(("a", "h"),)),
        kernel(["a", "h"] if later_reader else ["a"], ["b"], types),
        kernel(["b"], ["y"], types),
    ]
    plan, _ = lowered(scheduled(items, types))
    assert (plan.home["h"] is plan.home["a"]) != later_reader


def test_inputs_and_constants_are_never_overwritten() -> None:
    types = {n: tensor(100) for n in "xwaby"}
    items = [
        kernel(["x"], ["a"], types, in_place=(("a", "x"),)),
        kernel(["w", "a"], ["b"], types, in_place=(("b", "w"),)),
        kernel(["b"], ["y"], types),
    ]
    constants = {"w": Constant(np.zeros(100, np.float32))}
    plan, program = lowered(scheduled(items, types, constants=constants))
    assert plan.home["x"].tensors == ("x",) and plan.home["w"].tensors == ("w",)
    assert program.constants == constants


def test_another_view_of_the_operand_prevents_in_place() -> None:
    types = {n: tensor(100) for n in "xhvay"}
    items = [
        kernel(["x"], ["h"], types),
        View("v", "h"),
        kernel(["h", "v"], ["a"], types, in_place=(("a", "h"),)),
        kernel(["a"], ["y"], types),
    ]
    plan, _ = lowered(scheduled(items, types))
    assert plan.home["h"] is not plan.home["a"]


def test_outputs_that_nobody_writes_are_copied() -> None:
    types = {n: tensor(16) for n in ("x", "w", "v", "h")}
    items = [View("v", "x"), kernel(["x"], ["h"], types)]
    constants = {"w": Constant(np.zeros(16, np.float32))}
    outputs = ("x", "v", "w", "h", "h")
    _, program = lowered(scheduled(items, types, outputs=outputs, constants=constants))
    assert program.outputs == ("x.output", "v", "w.output", "h", "h.output")
    assert [s for s in program.steps if isinstance(s, CopyTensor)] == [
        CopyTensor("x.output", "x"),
        CopyTensor("v", "x"),
        CopyTensor("w.output", "w"),
        CopyTensor("h.output", "h"),
    ]
    assert program.placed.bindings["x"].place == "input"
    assert program.placed.bindings["w"].place == "constant"


def test_partial_writers_share_one_live_buffer() -> None:
    types = {n: tensor(64) for n in "xabcy"}
    items = [
        kernel(["x"], ["a"], types, partial=("a",)),
        kernel(["x"], ["b"], types),
        kernel(["b"], ["a"], types, partial=("a",)),
        kernel(["a"], ["y"], types),
    ]
    plan, _ = lowered(scheduled(items, types))
    assert (plan.home["a"].first, plan.home["a"].last) == (0, 3)
    assert plan.peak == 2 * 256


def test_layers_that_scale_with_a_dimension_need_no_definitions() -> None:
    n = Sym("n")
    types = {name: tensor(n, 16 * (i + 1)) for i, name in enumerate("xabcy")}
    items = [kernel([a], [b], types) for a, b in zip("xabc", "abcy", strict=True)]
    program = scheduled(items, types, dims={"n": Range(1, None)})
    plan, lowered_program = lowered(program)
    assert not plan.definitions
    assert str(plan.arena) == "448*n"  # b and c, 3 and 4 lines for each n
    assert lowered_program.dims == {"n": Range(1, None)}


def test_incomparable_sizes_get_names_that_are_free() -> None:
    n, at0 = Sym("n"), Sym("at0")
    types = {name: tensor(size) for name, size in zip("xabcy", [n, n, at0, n, 1], strict=True)}
    items = [
        kernel(["x"], ["a"], types),
        kernel(["x", "a"], ["b"], types),
        kernel(["b"], ["c"], types),
        kernel(["c"], ["y"], types),
    ]
    plan, program = lowered(scheduled(items, types))
    assert all(d.symbol not in ("n", "at0") for d in plan.definitions)
    assert set(program.dims) == {"n", "at0"}
    execute(scheduled(items, types), program, {"n": 3, "at0": 100})
    execute(scheduled(items, types), program, {"n": 100, "at0": 3})


def bounded_layers(**dims: Range) -> Program:
    n, m = Sym("n"), Sym("m")
    shapes = {"x": (n, 4), "h": (n, m), "g": (n + m, 8), "y": (n, 4)}
    types = {name: TensorType(shape, F32) for name, shape in shapes.items()}
    steps = [kernel([a], [b], types) for a, b in zip("xhg", "hgy", strict=True)]
    return scheduled(steps, types, dims=dims)


def test_bounded_dimensions_give_a_static_arena_of_the_greatest_sizes() -> None:
    bounded = plan_memory(bounded_layers(n=Range(1, 16), m=Range(2, 32)))
    assert bounded.arena == 4 * 16 * 32 + 4 * (16 + 32) * 8
    assert all(isinstance(offset, int) for offset in bounded.offsets.values())
    assert not bounded.definitions
    assert bounded.peak == bounded.lower_bound == bounded.arena


def test_an_unbounded_dimension_alone_is_left_in_the_arena() -> None:
    half = plan_memory(bounded_layers(n=Range(1, None), m=Range(2, 32)))
    assert {name for d in (half.arena, *half.offsets.values()) for name in symbols(d)} <= {
        "n", *(d.symbol for d in half.definitions)
    }  # fmt: skip


def test_equal_kernels_become_one_function() -> None:
    types = {n: tensor(16) for n in "xabcdy"}
    items = [
        kernel([a], [b], types, source=(f"node_{b}",))
        for a, b in zip("xabcd", "abcdy", strict=True)
    ]
    types["z"] = tensor(32)
    items.append(kernel(["d"], ["z"], types))
    _, program = lowered(scheduled(items, types, outputs=("y", "z")))
    # the caller's buffers may be unaligned, so first and last kernel differ from the middle
    middle = ["16 to 16_2"] * 3
    called = ["16 to 16", *middle, "16 to 16_3", "16 to 32"]
    assert [s.callee for s in launches(program)] == called
    aligns = [[p.buffer.align for p in f.parameters] for f in program.functions]
    assert aligns == [[4, 64], [64, 64], [64, 4], [64, 4]]
    assert program.steps[1].source == ("node_b",)


def test_outputs_must_be_row_major() -> None:
    types = {"x": tensor(1, 32, 4, 4), "y": TensorType((1, 32, 4, 4), F32, blocked(4, 1, 16))}
    program = scheduled([kernel(["x"], ["y"], types)], types)
    with pytest.raises(ValueError, match="output 'y' of p has layout"):
        apply_plan(program, plan_memory(program))


def test_a_tensor_that_nobody_writes_is_reported() -> None:
    types = {n: tensor(16) for n in "xty"}
    with pytest.raises(ValueError, match="no kernel writes tensor 't'"):
        plan_memory(scheduled([View("v", "t"), kernel(["x"], ["y"], types)], types))
