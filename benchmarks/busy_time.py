"""Time and memory of this process, as engines in processes of their own measure themselves."""

from __future__ import annotations

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
