"""Cases in separate processes: a crash or a hang affects one case only."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from conformance.cases import Case
from conformance.check import Outcome, attempt

_CONTEXT = multiprocessing.get_context("fork")  # generated cases are inherited, not sent
SHARE = 200
"""Cases per process, so that leaked memory is returned."""


@dataclass
class Worker:
    """A process and its current case."""

    process: BaseProcess
    pipe: Connection
    case: int = -1
    since: float = 0.0
    done: int = 0

    def give(self, case: int) -> None:
        """Starts a case."""
        self.case, self.since = case, time.monotonic()
        self.pipe.send(case)

    def stop(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def outcomes(
    cases: Sequence[Case], jobs: int, seconds: float, target: str = "native"
) -> Iterator[Outcome]:
    """Outcomes on ``target`` as they arrive; a case that takes longer than ``seconds`` fails."""
    waiting = deque(range(len(cases)))
    workers: list[Worker] = []
    while waiting or workers:
        while waiting and len(workers) < jobs:
            worker = _started(cases, partial(attempt, target=target))
            worker.give(waiting.popleft())
            workers.append(worker)
        ready = wait([worker.pipe for worker in workers], timeout=0.5)
        for worker in list(workers):
            outcome = _outcome(worker, cases[worker.case], worker.pipe in ready, seconds)
            if outcome is None:
                continue
            yield outcome
            if worker.process.is_alive() and waiting and worker.done < SHARE:
                worker.give(waiting.popleft())
            else:
                worker.stop()
                workers.remove(worker)


def _outcome(worker: Worker, case: Case, ready: bool, seconds: float) -> Outcome | None:
    spent = time.monotonic() - worker.since
    failed = Outcome(case.name, case.kind, "failed", "", spent)
    if ready:
        try:
            found: Outcome = worker.pipe.recv()
        except EOFError:
            worker.process.join()
            return replace(failed, reason=f"crash: exit code {worker.process.exitcode}")
        worker.done += 1
        return replace(found, seconds=spent)
    if spent > seconds:
        worker.process.kill()
        worker.process.join()
        return replace(failed, reason=f"timeout: more than {seconds:g} s")
    return None


def _started(cases: Sequence[Case], run: Callable[[Case], Outcome]) -> Worker:
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve, args=(cases, theirs, run), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


def _serve(cases: Sequence[Case], pipe: Connection, run: Callable[[Case], Outcome]) -> None:
    while True:
        try:
            pipe.send(run(cases[pipe.recv()]))
        except EOFError:
            return
