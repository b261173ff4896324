"""Memory of arenas and constants."""

import numpy as np
import pytest

from modelcc.artifact.memory import HUGE_PAGE, Memory


@pytest.mark.parametrize("size", [0, 1, 64, 100_000, HUGE_PAGE, 3 * HUGE_PAGE + 5])
def test_memory_is_aligned_zeroed_and_writable(size: int) -> None:
    memory = Memory(size)
    assert memory.address % (HUGE_PAGE if size >= HUGE_PAGE else 64) == 0
    assert memory.size == len(memory.view) == size
    view = np.frombuffer(memory.view, np.uint8) if size else np.empty(0, np.uint8)
    assert not view.any()
    view[:] = 7
    assert view.ctypes.data == memory.address or not size


@pytest.mark.parametrize("start", [0, 1, 100_000, HUGE_PAGE])
def test_what_is_released_is_zero_and_the_rest_is_kept(start: int) -> None:
    memory = Memory(HUGE_PAGE + 5)
    view = np.frombuffer(memory.view, np.uint8)
    view[:] = 7
    memory.release(start)
    assert (view[:start] == 7).all() and not view[start + 4096 :].any()
    view[:] = 8
    assert (view == 8).all()


def test_too_much_memory_is_refused() -> None:
    with pytest.raises(MemoryError, match=r"the system has no [\d,]+ bytes of memory"):
        Memory(1 << 60)
