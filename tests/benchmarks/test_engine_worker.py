"""Engines in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from benchmarks.engine_worker import Worker


def serve(connection: Connection, seconds: str) -> None:
    """Says which process it has started, and waits with it."""
    sleeping = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"])
    connection.send(sleeping.pid)
    sleeping.wait()


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_an_engine_has_started_ends_with_it() -> None:
    """Its compilers would take the processor's time of what is measured next."""
    worker = Worker(serve, ("600",), 60.0)
    pid = worker.answer()
    assert _runs(pid)
    worker.close()
    end = time.perf_counter() + 20
    while _runs(pid) and time.perf_counter() < end:
        time.sleep(0.05)
    assert not _runs(pid)
