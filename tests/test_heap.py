"""Memory that was freed goes back to the system."""

import sys
from pathlib import Path

import pytest

from modelcc.heap import release_heap


@pytest.mark.skipif(sys.platform != "linux", reason="others have no such call")
def test_freed_blocks_go_back() -> None:
    blocks = [b"x" * 60_000 for _ in range(1000)]
    last = b"y" * 60_000  # above them on the heap, so that it cannot shrink by itself
    before = _resident()
    del blocks
    release_heap()
    assert before - _resident() > 40 << 20
    assert last


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
