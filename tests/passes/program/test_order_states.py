"""Orders that keep to what steps need, and to what states want where that can be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelcc.passes.program.order_states import StateSteps, bits, stable_order, states_last


def of(*steps: int) -> int:
    return sum(1 << step for step in steps)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], list[StateSteps], int]:
    count = draw(st.integers(1, 12))
    needs = [draw(st.integers(0, (1 << step) - 1)) for step in range(count)]
    sets = st.integers(0, (1 << count) - 1)
    writers = st.lists(st.integers(0, count - 1), min_size=1, max_size=2).map(lambda s: of(*set(s)))
    states = draw(st.lists(st.builds(StateSteps, sets, writers), max_size=4))
    return needs, states, draw(sets)


def meets(order: list[int], state: StateSteps, may_end: int) -> bool:
    first = (state.readers | may_end) & ~state.writers
    place = {step: number for number, step in enumerate(order)}
    return all(place[a] < place[b] for a in bits(first) for b in bits(state.writers))


@given(problems())
def test_orders_are_whole_and_keep_to_needs(
    problem: tuple[list[int], list[StateSteps], int],
) -> None:
    needs, states, may_end = problem
    found = states_last(needs, states, may_end)
    order = stable_order(found)
    assert sorted(order) == list(range(len(needs)))
    place = {step: number for number, step in enumerate(order)}
    assert all(place[a] < place[b] for b, need in enumerate(needs) for a in bits(need))
    alone = [states_last(needs, [state], may_end) != tuple(needs) for state in states]
    if states and alone[0]:
        assert meets(order, states[0], may_end)  # the first comes first


def test_what_wants_nothing_stays_in_order() -> None:
    assert stable_order(states_last([0, 1, 0, 4, 5], [], of(1))) == [0, 1, 2, 3, 4]


def test_a_state_that_hangs_on_its_own_next_value_is_left_alone() -> None:
    """Step 1 writes it, step 2 reads what it was and what step 1 wrote."""
    needs = [0, 1, 2]
    assert states_last(needs, [StateSteps(of(1, 2), of(1))], 0) == tuple(needs)


def test_of_two_from_each_other_the_first_is_met() -> None:
    states = [StateSteps(of(0, 1), of(0)), StateSteps(of(0, 1), of(1))]
    assert states_last([0, 0], states, 0) == (of(1), 0)
    assert stable_order((of(1), 0)) == [1, 0]
