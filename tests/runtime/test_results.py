"""Memory of results is used again as soon as nobody holds an array in it, and no sooner."""

import gc
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelcc.ir.types import Array
from modelcc.runtime.results import ResultMemory

F4 = np.dtype(np.float32)


def array(memory: ResultMemory, length: int) -> Array:
    return memory.array((length,), F4, 4 * length)


def address(value: Array) -> int:
    return value.ctypes.data


def test_what_was_let_go_is_used_again():
    memory = ResultMemory()
    first = address(array(memory, 100))
    assert address(array(memory, 100)) == first
    held = array(memory, 100)
    second = address(array(memory, 100))
    assert second != address(held) == first
    assert address(array(memory, 100)) == second, "two blocks take turns"


def test_growing_results_find_room():
    memory = ResultMemory()
    first = address(array(memory, 1000))
    assert address(array(memory, 1010)) == first


def test_much_smaller_results_do_not_hold_on_to_large_memory():
    memory = ResultMemory()
    array(memory, 100_000)
    small = array(memory, 1000)
    assert small.base is not None and small.base.size < 10_000


HOLDERS: tuple[Callable[[Array], object], ...] = (
    lambda a: a,
    lambda a: a[3:5],
    lambda a: a.reshape(-1, 2).T,
    lambda a: a.data,
    lambda a: np.frombuffer(a.data, np.uint8),
    lambda a: np.from_dlpack(a),
)


@given(st.lists(st.tuples(st.sampled_from(HOLDERS), st.integers(0, 4)), max_size=12))
def test_held_memory_is_never_given_again(calls: Sequence[tuple[Callable[[Array], object], int]]):
    """Whatever keeps a result alive, its values stay."""
    memory = ResultMemory()
    held: list[tuple[object, Array, int]] = []
    for number, (holder, lifetime) in enumerate(calls):
        result = array(memory, 64)
        assert address(result) % 64 == 0
        result[:] = number
        if lifetime:
            keeper = holder(result)
            held.append((keeper, np.array(keeper), number + lifetime))
            del keeper
        del result
        gc.collect(0)
        for keeper, expected, _ in held:
            assert np.array_equal(np.array(keeper), expected)
        held = [h for h in held if h[2] > number]
