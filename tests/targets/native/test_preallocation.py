"""Memory made ready ahead is what would be asked for later: large enough, zero, the caller's."""

from contextlib import closing

import numpy as np
import pytest

from modelcc.targets.native.background import WORTH_A_THREAD, Preallocation


@pytest.mark.parametrize("asked", [1, WORTH_A_THREAD, WORTH_A_THREAD * 9 // 8, WORTH_A_THREAD * 2])
def test_what_is_taken_is_large_enough_and_zero(asked: int) -> None:
    with closing(Preallocation()) as ahead:
        ahead.expect(WORTH_A_THREAD)
        block = ahead.take(asked)
    assert block.size >= asked
    memory = np.frombuffer(block.view, np.uint8)
    assert not memory[:asked].any()
    memory[:asked] = 1


def test_a_block_is_given_once() -> None:
    with closing(Preallocation()) as ahead:
        ahead.expect(WORTH_A_THREAD)
        assert ahead.take(WORTH_A_THREAD).address != ahead.take(WORTH_A_THREAD).address


def test_what_nobody_has_memory_for_is_no_error_until_it_is_asked_for() -> None:
    with closing(Preallocation()) as ahead:
        ahead.expect(1 << 60)
        assert ahead.take(64).size == 64
        with pytest.raises(MemoryError):
            ahead.take(1 << 60)
