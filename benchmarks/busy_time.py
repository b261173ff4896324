"""Time and memory of this process, as engines in processes of their own measure themselves."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

ROUND_SECONDS = 0.05


def seconds_of(threads: int) -> float:
    """Of this process and those it waited for, if there is one thread: what others do on the
    machine does not count then.  Else by the clock."""
    if threads > 1:
        return time.perf_counter()
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def seconds_with_helpers(threads: int) -> float:
    """As :func:`seconds_of`, with those of processes that it started and that are still there."""
    if threads > 1:
        return seconds_of(threads)
    return seconds_of(threads) + sum(map(_ticks, Path("/proc").glob("[0-9]*"))) / _TICKS


_TICKS = os.sysconf("SC_CLK_TCK")


def _ticks(process: Path) -> int:
    """What a process and those it waited for have taken, if it is a child of this one."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended just now
        return 0
    return sum(map(int, fields[11:15])) if int(fields[1]) == os.getpid() else 0


def seconds_of_call(call: Callable[[], object], threads: int) -> float:
    """The mean over a round, after one that refills the caches."""
    call()
    count, start = 0, seconds_of(threads)
    while (elapsed := seconds_of(threads) - start) < ROUND_SECONDS or not count:
        call()
        count += 1
    return elapsed / count


def reset_peak() -> None:
    """:func:`peak_bytes` begins anew."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The most memory of the process that was resident since it was last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
