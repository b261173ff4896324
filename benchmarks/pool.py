"""The parent's side of the workers: starts and interleaves them."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.lock import exclusively
from benchmarks.messages import Failed, Loaded, Task
from benchmarks.trees import ROOT, environment_of

PAUSE_SECONDS = 0.02
"""Between turns: idle threads of the previous engine stop spinning."""


@dataclass(frozen=True)
class Worker:
    """A running engine with its model loaded."""

    peer: str
    process: subprocess.Popen[bytes]
    connection: Connection
    loaded: Loaded


@dataclass(frozen=True)
class Timing:
    """Milliseconds per call, one list per round; and the peak memory in bytes."""

    rounds: tuple[tuple[float, ...], ...]
    peak_bytes: int

    def median(self) -> float:
        """Over all calls."""
        return statistics.median(value for one in self.rounds for value in one)

    def spread(self) -> tuple[float, float]:
        """10th and 90th percentile over all calls."""
        values = sorted(value for one in self.rounds for value in one)
        return values[len(values) // 10], values[(len(values) * 9) // 10]

    def medians(self) -> tuple[float, ...]:
        """Of each round."""
        return tuple(statistics.median(one) for one in self.rounds)

    def ratio(self, other: Timing) -> float:
        """Speedup over `other`, round by round."""
        return ratio(self.medians(), other.medians())


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Ratio of `theirs` to `ours`: the median over rounds."""
    return statistics.median(b / a for a, b in zip(ours, theirs, strict=True))


def start(task: Task, timeout: float, sources: Path | None = None) -> Worker | Failed:
    """Starts a process that loads the engine and the model, within `timeout` seconds.

    `sources` is a folder whose modules take precedence over installed ones.
    """
    ours, theirs = Pipe()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.worker", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        cwd=ROOT,
        env=environment_of(sources),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    theirs.close()
    try:
        ours.send(task)
        answer = _receive(ours, timeout)
    except TimeoutError:
        process.kill()
        answer = Failed(f"not loaded within {timeout:.0f} s")
    except (EOFError, OSError):
        answer = Failed(f"the process ended with status {process.wait()}")
    if isinstance(answer, Failed):
        process.wait()
        return answer
    return Worker(task.peer, process, ours, answer)


def _receive(connection: Connection, timeout: float) -> Any:
    if not connection.poll(timeout):
        raise TimeoutError
    return connection.recv()


def measure(
    workers: Sequence[Worker], rounds: int, seconds: float, timeout: float, lock: Path | None
) -> dict[str, Timing | Failed]:
    """Times all workers, interleaved, `rounds` times, about `seconds` per turn, and ends them."""
    times: dict[str, list[tuple[float, ...]]] = {worker.peer: [] for worker in workers}
    failed: dict[str, Failed] = {}
    with exclusively(lock):
        for turn in range(rounds):
            # Every other round is reversed, so that no worker always follows the same neighbour.
            for worker in workers if turn % 2 == 0 else reversed(workers):
                if worker.peer in failed:
                    continue
                try:
                    times[worker.peer].append(_turn(worker, seconds, timeout))
                except (EOFError, OSError, TimeoutError):
                    worker.process.kill()
                    status = worker.process.wait()
                    reason = f"stopped answering in round {turn}: status {status}"
                    failed[worker.peer] = Failed(reason)
    peaks = {worker.peer: _finish(worker) for worker in workers if worker.peer not in failed}
    done = {peer: Timing(tuple(times[peer]), peak) for peer, peak in peaks.items()}
    return {**done, **failed}


def _turn(worker: Worker, seconds: float, timeout: float) -> tuple[float, ...]:
    """Milliseconds of each call."""
    time.sleep(PAUSE_SECONDS)
    calls = max(1, min(1000, round(seconds / worker.loaded.call_seconds)))
    worker.connection.send(calls)
    return tuple(1e3 * value for value in _receive(worker.connection, timeout))


def _finish(worker: Worker) -> int:
    worker.connection.send(0)
    peak = int(worker.connection.recv())
    worker.connection.close()
    worker.process.wait()
    return peak
