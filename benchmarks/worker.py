"""One engine, one model, one process: loads, checks and times on request.

Separate processes isolate memory figures, spinning threads and crashes.
`python -m benchmarks.worker FD` speaks pickled messages over the inherited socket FD.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from benchmarks.messages import Failed, Loaded, Task
from benchmarks.peers import Arrays, Run, loader


def peak_bytes() -> int:
    """Peak resident set of this process.

    From /proc if available: getrusage on Linux includes the parent's, from between fork and exec.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else []:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _load(task: Task) -> tuple[Run, Loaded]:
    load = loader(task.peer)
    start = time.perf_counter()
    run = load(task.model, task.threads)
    ready = time.perf_counter()
    outputs = {name: np.array(value) for name, value in run(task.feeds).items()}
    again = time.perf_counter()
    run(task.feeds)
    return run, Loaded(ready - start, time.perf_counter() - again, outputs)


def _times(run: Run, feeds: Arrays, calls: int) -> list[float]:
    """Seconds of each of `calls` calls, after a warm-up call."""
    run(feeds)
    seconds: list[float] = []
    for _ in range(calls):
        start = time.perf_counter()
        run(feeds)
        seconds.append(time.perf_counter() - start)
    return seconds


def serve(connection: Connection) -> None:
    """Answers a `Task` with `Loaded` or `Failed`, then counts of calls with their times.

    A count of zero ends the conversation with the peak memory in bytes.
    """
    task: Task = connection.recv()
    os.sched_setaffinity(0, task.cores)
    try:
        run, loaded = _load(task)
    except Exception as error:  # any engine may raise anything: it is reported, not handled
        connection.send(Failed(f"{type(error).__name__}: {error}".strip().splitlines()[0]))
        return
    connection.send(loaded)
    while calls := int(connection.recv()):
        connection.send(_times(run, task.feeds, calls))
    connection.send(peak_bytes())


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
