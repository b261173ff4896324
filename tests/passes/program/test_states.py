"""States are where they were, or are copied there at the end; the old ones are read before."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduled_programs import execute, kernel, program_of, scheduled_programs, tensor

from modelcc.ir.index_bound import IndexBound
from modelcc.ir.program import CopyTensor, Launch, Program, Step
from modelcc.ir.program_verifier import verify_program
from modelcc.passes.program.apply_plan import apply_plan
from modelcc.passes.program.order import order_steps
from modelcc.passes.program.plan_memory import plan_memory

FLAT = tensor(16)


def planned(program: Program) -> Program:
    return apply_plan(program, plan_memory(program))


@settings(max_examples=300)
@given(scheduled_programs(states=2), st.booleans())
def test_states_are_kept_and_what_they_replace_is_read_before(
    scheduled: Program, reorder: bool
) -> None:
    scheduled = order_steps(scheduled) if reorder else scheduled
    program = planned(scheduled)
    execute(scheduled, program, {})
    assert len(program.states) == len(scheduled.states)
    verify_program(program, scheduled)


def of(steps: list[Step], states: dict[str, str], *outputs: str, **more: Any) -> Program:
    """A program of tensors of one type."""
    inputs = ("x", *dict.fromkeys(states.values()))
    names = dict.fromkeys((*inputs, *outputs, *states))
    names |= dict.fromkeys(n for s in steps if isinstance(s, Launch) for n in s.arguments)
    return program_of(
        inputs, (*outputs, *states), steps, dict.fromkeys(names, FLAT), states=states, **more
    )


def launch(inputs: str, outputs: str, **more: Any) -> Step:
    read, made = inputs.split(), outputs.split()
    return kernel(read, made, dict.fromkeys([*read, *made], FLAT), **more)


def copies(program: Program) -> list[tuple[str, str]]:
    return [(s.target, s.source_tensor) for s in program.steps if isinstance(s, CopyTensor)]


def order(program: Program) -> list[str]:
    return [s.arguments[-1] for s in order_steps(program).steps if isinstance(s, Launch)]


UPDATE = launch("s g", "t", in_place=(("t", "s"), ("t", "g")))
"""The next state, from the state and a gradient, either of which it may be written over."""


def test_an_update_is_in_place_and_needs_no_memory() -> None:
    program = planned(of([launch("x", "g"), UPDATE], {"t": "s"}))
    assert not copies(program) and program.placed.arena == 64  # the gradient alone
    assert program.placed.bindings["t"].place == "input" and program.position("t") == 1


def test_an_update_that_reads_elsewhere_is_copied() -> None:
    program = planned(of([launch("x s", "t")], {"t": "s"}))
    assert copies(program) == [("t.output", "t")]
    assert program.placed.bindings["t"].place == "arena"


def test_what_reads_a_state_comes_before_its_update() -> None:
    steps = [launch("x", "g"), UPDATE, launch("s", "y")]
    program = of(steps, {"t": "s"}, "y")
    assert order(program) == ["g", "y", "t"]
    assert not copies(planned(order_steps(program))) and copies(planned(program))


def test_an_update_comes_after_what_may_end_the_run() -> None:
    checked = launch("x", "y", bounds=(IndexBound(4),))
    program = of([launch("x", "g"), UPDATE, checked], {"t": "s"}, "y")
    assert order(program) == ["g", "y", "t"]
    assert not copies(planned(order_steps(program))) and copies(planned(program))


TWICE = [launch("s g", "m", in_place=(("m", "s"),)), launch("m g", "t", in_place=(("t", "m"),))]


def test_two_updates_of_a_state_are_where_it_is() -> None:
    checked = launch("x", "z", bounds=(IndexBound(4),))
    steps = [launch("x", "g"), *TWICE, launch("m", "y"), launch("s", "w"), checked]
    scheduled = order_steps(of(steps, {"t": "s"}, "w", "y", "z"))
    assert order(scheduled) == ["g", "w", "z", "m", "y", "t"]
    program = planned(scheduled)
    assert not copies(program) and program.placed.arena == 64  # the gradient alone
    execute(scheduled, program, {})


def test_two_updates_with_the_end_of_the_run_depending_on_the_first_are_copied() -> None:
    checked = launch("m", "z", bounds=(IndexBound(4),))
    scheduled = order_steps(of([launch("x", "g"), *TWICE, checked], {"t": "s"}, "z"))
    program = planned(scheduled)
    assert copies(program) == [("t.output", "t")]
    execute(scheduled, program, {})


def test_an_update_that_may_end_the_run_itself_is_copied() -> None:
    update = launch("s g", "t", in_place=(("t", "s"),), bounds=(IndexBound(4),))
    assert copies(planned(order_steps(of([launch("x", "g"), update], {"t": "s"}))))


def test_states_of_each_other() -> None:
    """The first can be where it was; then the second cannot."""
    steps = [launch("a b", "c", in_place=(("c", "a"),)), launch("a b", "d", in_place=(("d", "b"),))]
    program = planned(order_steps(of(steps, {"c": "a", "d": "b"})))
    assert copies(program) == [("d.output", "d")]


def test_states_that_change_places() -> None:
    program = planned(of([], {"a": "b", "b": "a"}))
    assert copies(program) == [
        ("a.kept", "a"), ("b.kept", "b"), ("a.output", "a.kept"), ("b.output", "b.kept")
    ]  # fmt: skip
    execute(of([], {"a": "b", "b": "a"}), program, {})


def test_a_state_that_stays() -> None:
    program = planned(of([launch("x", "y")], {"s": "s"}, "y"))
    assert not copies(program) and program.states == {"s.output": "s"}
    verify_program(program)


def test_what_a_state_was_is_returned() -> None:
    program = planned(of([launch("x", "g"), UPDATE], {"t": "s"}, "s"))
    assert copies(program) == [("s.output", "s"), ("t.output", "t")]
