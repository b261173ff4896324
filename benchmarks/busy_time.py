"""Time and memory of this process, as measured by engines in their own processes."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

ROUND_SECONDS = 0.05


def seconds_of(threads: int) -> float:
    """CPU time of this process and its waited-for children, if single-threaded: other load on the
    machine does not count then.  Else wall time."""
    if threads > 1:
        return time.perf_counter()
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def seconds_with_helpers(threads: int) -> float:
    """As :func:`seconds_of`, including processes that it started and that still run."""
    if threads > 1:
        return seconds_of(threads)
    return seconds_of(threads) + sum(map(_ticks, Path("/proc").glob("[0-9]*"))) / _TICKS


_TICKS = os.sysconf("SC_CLK_TCK")


def _ticks(process: Path) -> int:
    """CPU ticks of a process and its waited-for children, if it is a child of this one."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0
    return sum(map(int, fields[11:15])) if int(fields[1]) == os.getpid() else 0


def seconds_of_call(call: Callable[[], object], threads: int) -> float:
    """The mean over a round, after a warm-up call."""
    call()
    count, start = 0, seconds_of(threads)
    while (elapsed := seconds_of(threads) - start) < ROUND_SECONDS or not count:
        call()
        count += 1
    return elapsed / count


def reset_peak() -> None:
    """Resets :func:`peak_bytes`."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Peak resident memory of the process since the last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
